{{/*
SPDX-License-Identifier: Apache-2.0
What the secrets Job makes where it is absent. Nothing random is rendered: `helm template` twice gives the same bytes.
*/}}

{{/* "true" where the chart's own PostgreSQL is used and its password is not given. */}}
{{- define "airflow.mintsDatabasePassword" -}}
{{- if and .Values.postgresql.enabled (not .Values.data.metadataSecretName) (not (include "airflow.postgresql.password" .)) -}}true{{- end -}}
{{- end -}}

{{/* Instructions for files/scripts/secrets_init.py, as JSON. */}}
{{- define "airflow.secretsPlan" -}}
{{- $name := include "airflow.fullname" . -}}
{{- $keys := list -}}
{{- if not (or .Values.fernetKey .Values.fernetKeySecretName) -}}
{{- $keys = append $keys (dict "name" (printf "%s-fernet-key" $name) "key" "fernet-key" "form" "fernet" "guarded" true "annotations" .Values.fernetKeySecretAnnotations) -}}
{{- end -}}
{{- if not (or .Values.jwtSecret .Values.jwtSecretName) -}}
{{- $keys = append $keys (dict "name" (printf "%s-jwt-secret" $name) "key" "jwt-secret" "form" "token" "guarded" true "annotations" .Values.jwtSecretAnnotations) -}}
{{- end -}}
{{- if not (or .Values.apiSecretKey .Values.apiSecretKeySecretName) -}}
{{- $keys = append $keys (dict "name" (printf "%s-api-secret-key" $name) "key" "api-secret-key" "form" "token" "guarded" false "annotations" .Values.apiSecretAnnotations) -}}
{{- end -}}
{{- $plan := dict
      "namespace" .Release.Namespace
      "release" .Release.Name
      "keys" $keys
      "database" (dict "secret" (include "airflow_metadata_secret" .) "key" (include "airflow_metadata_secret_key" .))
      "database_wait_seconds" .Values.steadfast.secrets.databaseWaitSeconds
      "allow_new_keys" .Values.steadfast.secrets.allowNewKeysBesideData -}}
{{- if include "airflow.mintsDatabasePassword" . -}}
{{- $_ := set $plan "trial_database" (dict
      "secret" (include "airflow.postgresql.secret" .)
      "key" "password"
      "user" (include "airflow.postgresql.user" .)
      "host" (include "airflow.postgresql.host" .)
      "port" 5432
      "database" .Values.data.metadataConnection.db) -}}
{{- end -}}
{{- toJson $plan -}}
{{- end -}}

{{/* "true" where there is anything to make. */}}
{{- define "airflow.secretsJob" -}}
{{- $plan := include "airflow.secretsPlan" . | fromJson -}}
{{- if and (or $plan.keys $plan.trial_database) (not .Values.steadfast.addonsOnly) -}}true{{- end -}}
{{- end -}}

{{- define "airflow.secretsJobData" -}}
plan.json: {{ include "airflow.secretsPlan" . | quote }}
secrets_init.py: |
  {{- .Files.Get "files/scripts/secrets_init.py" | required "chart/files/scripts/secrets_init.py is missing" | nindent 2 }}
{{- end -}}

{{- define "airflow.secretsJobSpec" -}}
{{- $values := .Values.steadfast.secrets -}}
{{- $it := dict "ctx" . "component" "secrets" "values" $values -}}
backoffLimit: 10
template:
  metadata:
    labels:
      {{- include "airflow.selector" $it | nindent 6 }}
      app.kubernetes.io/instance: {{ .Release.Name }}
    annotations:
      checksum/plan: {{ include "airflow.secretsJobData" . | sha256sum }}
  spec:
    restartPolicy: OnFailure
    {{- include "airflow.podHead" $it | nindent 4 }}
    containers:
      - name: secrets
        image: {{ include "airflow_image" . }}
        imagePullPolicy: {{ .Values.images.airflow.pullPolicy }}
        securityContext:
          {{- include "containerSecurityContext" (dict "ctx" . "own" (dict "readOnlyRootFilesystem" true)) | nindent 10 }}
        env:
          - name: CONNECTION_CHECK_MAX_COUNT
            value: "0"
          {{- with .Values.data.metadataConnection.sslmode }}
          - name: PGSSLMODE
            value: {{ . | quote }}
          {{- end }}
        args: [python, /etc/steadfast-secrets/secrets_init.py, /etc/steadfast-secrets/plan.json]
        {{- with $values.resources }}
        resources:
          {{- toYaml . | nindent 10 }}
        {{- end }}
        volumeMounts:
          - name: script
            mountPath: /etc/steadfast-secrets
            readOnly: true
    volumes:
      - name: script
        configMap:
          name: {{ include "airflow.fullname" . }}-secrets-init
{{- end -}}
