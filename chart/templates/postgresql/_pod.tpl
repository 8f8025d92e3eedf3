{{/* SPDX-License-Identifier: Apache-2.0 */}}

{{/* The trial database's pod. Without a volume of its own a new pod is an empty database: see the migration Job. */}}
{{- define "airflow.postgresql.pod" -}}
{{- $p := .Values.postgresql -}}
{{- $it := dict "ctx" . "component" "postgresql" "values" $p -}}
metadata:
  # Nothing that an upgrade of the chart changes: without a volume of its own, a new pod is an empty database.
  labels:
    {{- include "airflow.selector" $it | nindent 4 }}
spec:
  automountServiceAccountToken: false
  terminationGracePeriodSeconds: 60
  {{- include "airflow.placement" $it | nindent 2 }}
  securityContext:
    runAsNonRoot: true
    runAsUser: 999
    runAsGroup: 999
    fsGroup: 999
    seccompProfile:
      type: RuntimeDefault
  {{- with include "image_pull_secrets" . }}
  imagePullSecrets:
    {{- . | nindent 4 }}
  {{- end }}
  containers:
    - name: postgresql
      image: {{ $p.image.repository }}:{{ $p.image.tag }}
      imagePullPolicy: {{ $p.image.pullPolicy }}
      securityContext:
        allowPrivilegeEscalation: false
        capabilities:
          drop: [ALL]
      env:
        - name: POSTGRES_USER
          value: {{ include "airflow.postgresql.user" . | quote }}
        - name: POSTGRES_DB
          value: {{ .Values.data.metadataConnection.db | quote }}
        - name: POSTGRES_PASSWORD
          valueFrom:
            secretKeyRef:
              name: {{ include "airflow.postgresql.secret" . }}
              key: password
        - name: PGDATA
          value: /var/lib/postgresql/data/pgdata
      ports:
        - name: postgresql
          containerPort: 5432
      startupProbe:
        exec:
          command: [sh, -c, 'pg_isready -q -h 127.0.0.1 -U "$POSTGRES_USER" -d "$POSTGRES_DB"']
        periodSeconds: 2
        timeoutSeconds: 10
        failureThreshold: 150
      readinessProbe:
        tcpSocket: {port: postgresql}
        periodSeconds: 10
        timeoutSeconds: 10
      livenessProbe:
        tcpSocket: {port: postgresql}
        periodSeconds: 30
        timeoutSeconds: 20
        failureThreshold: 5
      {{- with $p.resources }}
      resources:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      volumeMounts:
        - name: data
          mountPath: /var/lib/postgresql/data
  {{- if not $p.persistence.enabled }}
  volumes:
    - name: data
      emptyDir: {}
  {{- end }}
{{- end -}}
