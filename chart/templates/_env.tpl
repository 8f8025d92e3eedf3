{{/*
SPDX-License-Identifier: Apache-2.0
Environment of containers. Server-side apply refuses two entries of one name, so every list goes through "airflow.envList":
the last entry of a name wins and keeps its place.
*/}}

{{- define "airflow.envList" -}}
{{- $seen := dict -}}
{{- $out := list -}}
{{- range reverse .entries -}}
{{- if not (hasKey $seen .name) -}}
{{- $_ := set $seen .name true -}}
{{- $out = prepend $out . -}}
{{- end -}}
{{- end -}}
{{- toYaml $out -}}
{{- end -}}

{{/* One entry that reads a key of a Secret, as JSON. Call with (dict "name" "secret" "key"). */}}
{{- define "airflow.secretEnv" -}}
{{- dict "name" .name "valueFrom" (dict "secretKeyRef" (dict "name" .secret "key" .key)) | toJson -}}
{{- end -}}

{{/*
Secrets as environment, as a JSON list. Call with (dict "ctx" $ "jwt" true "database" true): the token key goes only to
those who sign or check tokens, the database and the fernet key only to those who open the metadata database.
*/}}
{{- define "airflow.builtInSecrets" -}}
{{- $v := .ctx.Values -}}
{{- $on := $v.enableBuiltInSecretEnvVars -}}
{{- $out := list -}}
{{- $database := dict "secret" (include "airflow_metadata_secret" .ctx) "key" (include "airflow_metadata_secret_key" .ctx) -}}
{{- if .database -}}
{{- if $on.AIRFLOW__CORE__FERNET_KEY -}}
{{- $out = append $out (include "airflow.secretEnv" (dict "name" "AIRFLOW__CORE__FERNET_KEY" "secret" (include "fernet_key_secret" .ctx) "key" "fernet-key") | fromJson) -}}
{{- end -}}
{{- if $on.AIRFLOW__DATABASE__SQL_ALCHEMY_CONN -}}
{{- $out = append $out (include "airflow.secretEnv" (merge (dict "name" "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN") $database) | fromJson) -}}
{{- end -}}
{{- if $on.AIRFLOW_CONN_AIRFLOW_DB -}}
{{- $out = append $out (include "airflow.secretEnv" (merge (dict "name" "AIRFLOW_CONN_AIRFLOW_DB") $database) | fromJson) -}}
{{- end -}}
{{- with $v.data.metadataConnection.sslmode -}}
{{- $out = append $out (dict "name" "PGSSLMODE" "value" .) -}}
{{- end -}}
{{- if $on.AIRFLOW__API__SECRET_KEY -}}
{{- $out = append $out (include "airflow.secretEnv" (dict "name" "AIRFLOW__API__SECRET_KEY" "secret" (include "api_secret_key_secret" .ctx) "key" "api-secret-key") | fromJson) -}}
{{- end -}}
{{- end -}}
{{- if and .jwt $on.AIRFLOW__API_AUTH__JWT_SECRET -}}
{{- $out = append $out (include "airflow.secretEnv" (dict "name" "AIRFLOW__API_AUTH__JWT_SECRET" "secret" (include "jwt_secret" .ctx) "key" "jwt-secret") | fromJson) -}}
{{- end -}}
{{- toJson $out -}}
{{- end -}}

{{/* The user's entries: root secret, env, extraEnv, then the component's own. A JSON list. Call with (dict "ctx" $ "env" <list>). */}}
{{- define "airflow.userEnv" -}}
{{- $out := list -}}
{{- range .ctx.Values.secret -}}
{{- $out = append $out (include "airflow.secretEnv" (dict "name" .envName "secret" (tpl .secretName $.ctx) "key" (.secretKey | default "value")) | fromJson) -}}
{{- end -}}
{{- range .ctx.Values.env -}}{{- $out = append $out . -}}{{- end -}}
{{- with .ctx.Values.extraEnv -}}
{{- range tpl . $.ctx | fromYamlArray -}}
{{- if not (kindIs "map" .) -}}{{- fail (printf "extraEnv: not a YAML list of environment entries: %v" .) -}}{{- end -}}
{{- $out = append $out . -}}
{{- end -}}
{{- end -}}
{{- range .env -}}{{- $out = append $out . -}}{{- end -}}
{{- toJson $out -}}
{{- end -}}

{{/*
The whole environment of an Airflow container, as YAML. Call with
(dict "ctx" $ "env" <component's list> "database" bool "jwt" bool "user" bool "first" <list> "last" <list>).
"first" can be overridden by the user, "last" cannot; "user" false leaves root env and extraEnv out.
*/}}
{{- define "airflow.env" -}}
{{- $home := .ctx.Values.airflowHome -}}
{{- $entries := list
      (dict "name" "AIRFLOW_HOME" "value" $home)
      (dict "name" "AIRFLOW_CONFIG" "value" (printf "%s/airflow.cfg" (include "airflow.configPath" .ctx)))
      (dict "name" "CONNECTION_CHECK_MAX_COUNT" "value" "0") -}}
{{- $entries = concat $entries (include "airflow.builtInSecrets" . | fromJsonArray) (.first | default list) -}}
{{- if .user -}}
{{- $entries = concat $entries (include "airflow.userEnv" . | fromJsonArray) -}}
{{- else -}}
{{- $entries = concat $entries (.env | default list) -}}
{{- end -}}
{{- $entries = concat $entries (.last | default list) -}}
{{- if include "steadfast.byConfigMap" .ctx -}}
{{- $path := include "steadfast.codePath" .ctx -}}
{{- range $entries -}}
{{- if eq .name "PYTHONPATH" -}}
{{- if not .value -}}{{- fail "env: PYTHONPATH needs a plain value here (valueFrom cannot be extended by the chart); or set steadfast.install.method=image." -}}{{- end -}}
{{- $path = printf "%s:%s" .value (include "steadfast.codePath" $.ctx) -}}
{{- end -}}
{{- end -}}
{{- $entries = append $entries (dict "name" "PYTHONPATH" "value" $path) -}}
{{- end -}}
{{- include "airflow.envList" (dict "entries" $entries) -}}
{{- end -}}

{{/* envFrom of every Airflow container. */}}
{{- define "custom_airflow_environment_from" -}}
{{- with .Values.extraEnvFrom }}{{ tpl . $ }}{{- end -}}
{{- end -}}
