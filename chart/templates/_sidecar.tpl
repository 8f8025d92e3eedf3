{{/*
SPDX-License-Identifier: Apache-2.0
The metrics sidecar of the scheduler.
*/}}

{{- define "steadfast.handoffPath" -}}/var/lib/steadfast/handoff{{- end -}}

{{- define "steadfast.secretsPath" -}}/etc/steadfast{{- end -}}

{{/* Secrets that the sidecar is given as folders: a JSON list of volume, Secret and settings by file. */}}
{{- define "steadfast.sidecarSecrets" -}}
{{- $own := .Values.steadfast.sidecar -}}
{{- $given := list
      (dict "volume" "steadfast-tls" "secret" $own.tlsSecretName "files" (dict "tls.crt" "STEADFAST_TLS_CERT_FILE" "tls.key" "STEADFAST_TLS_KEY_FILE"))
      (dict "volume" "steadfast-client-ca" "secret" $own.clientCaSecretName "files" (dict "ca.crt" "STEADFAST_TLS_CLIENT_CA_FILE"))
      (dict "volume" "steadfast-token" "secret" $own.bearerTokenSecretName "files" (dict $own.bearerTokenSecretKey "STEADFAST_BEARER_TOKEN_FILE")) -}}
{{- $wanted := list -}}
{{- range $given -}}{{- if .secret -}}{{- $wanted = append $wanted . -}}{{- end -}}{{- end -}}
{{- toJson $wanted -}}
{{- end -}}

{{- define "steadfast.sidecarVolumes" -}}
{{- range include "steadfast.sidecarSecrets" . | fromJsonArray }}
- name: {{ .volume }}
  secret:
    secretName: {{ tpl .secret $ }}
    items:
      {{- range $file, $_ := .files }}
      - {key: {{ $file | quote }}, path: {{ $file | quote }}}
      {{- end }}
{{- end }}
{{- end -}}

{{/*
Its startup probe asks only whether the process serves: the scheduler must start without a database for the sidecar and
without its tables. It has no readiness probe, since a native sidecar's readiness counts for the pod's, and the numbers must
never hold up a rollout of the scheduler. `/readyz` is there for people and for alerts. Of Airflow's secrets it is given the
metadata connection alone, or a narrower one (steadfast.sidecar.databaseSecretName).
*/}}
{{- define "steadfast.sidecar" -}}
{{- $own := .ctx.Values.steadfast.sidecar -}}
{{- $first := list
      (dict "name" "STEADFAST_CONSUMER" "valueFrom" (dict "fieldRef" (dict "fieldPath" "metadata.uid")))
      (dict "name" "STEADFAST_HANDOFF_DIR" "value" (include "steadfast.handoffPath" .ctx))
      (dict "name" "STEADFAST_LISTEN" "value" (printf "[::]:%v" $own.port))
      (dict "name" "STEADFAST_POLL_INTERVAL" "value" (toString $own.pollIntervalSeconds)) -}}
{{- if $own.databaseSecretName -}}
{{- $first = append $first (include "airflow.secretEnv" (dict "name" "STEADFAST_DATABASE_URL" "secret" (tpl $own.databaseSecretName .ctx) "key" $own.databaseSecretKey) | fromJson) -}}
{{- else if .ctx.Values.enableBuiltInSecretEnvVars.AIRFLOW__DATABASE__SQL_ALCHEMY_CONN -}}
{{- $first = append $first (include "airflow.secretEnv" (dict "name" "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN" "secret" (include "airflow_metadata_secret" .ctx) "key" (include "airflow_metadata_secret_key" .ctx)) | fromJson) -}}
{{- end -}}
{{- $secrets := include "steadfast.sidecarSecrets" .ctx | fromJsonArray -}}
{{- range $secret := $secrets -}}
{{- range $file, $variable := $secret.files -}}
{{- $first = append $first (dict "name" $variable "value" (printf "%s/%s/%s" (include "steadfast.secretsPath" $.ctx) $secret.volume $file)) -}}
{{- end -}}
{{- end -}}
{{- $scheme := ternary "HTTPS" "HTTP" (not (empty $own.tlsSecretName)) -}}
{{- with .ctx.Values.data.metadataConnection.sslmode -}}
{{- $first = append $first (dict "name" "PGSSLMODE" "value" .) -}}
{{- end -}}
{{- $security := dict "readOnlyRootFilesystem" true -}}
{{- range $key, $value := $own.securityContext -}}{{- $_ := set $security $key $value -}}{{- end -}}
- name: steadfast-sidecar
  {{- if $own.native }}
  restartPolicy: Always
  {{- end }}
  {{- include "airflow.containerBody" (merge (dict "own" (dict "resources" $own.resources "securityContexts" (dict "container" $security)) "env" $own.env "first" $first "jwt" false "database" false "user" true "image" $own.image) (omit . "jwt" "database")) | nindent 2 }}
  args: [python, -m, steadfast_sidecar, serve]
  ports:
    - name: sf-metrics
      containerPort: {{ $own.port }}
  startupProbe:
    httpGet: {path: /, port: sf-metrics, scheme: {{ $scheme }}}
    periodSeconds: 2
    timeoutSeconds: 5
    failureThreshold: 150
  livenessProbe:
    httpGet: {path: /livez, port: sf-metrics, scheme: {{ $scheme }}}
    periodSeconds: 30
    timeoutSeconds: 20
    failureThreshold: 5
  volumeMounts:
    {{- include "airflow_config_mount" .ctx | nindent 4 }}
    {{- include "steadfast.codeMount" .ctx | nindent 4 }}
    - name: steadfast-handoff
      mountPath: {{ include "steadfast.handoffPath" .ctx }}
      readOnly: true
    {{- range $secrets }}
    - name: {{ .volume }}
      mountPath: {{ include "steadfast.secretsPath" $.ctx }}/{{ .volume }}
      readOnly: true
    {{- end }}
{{- end -}}
