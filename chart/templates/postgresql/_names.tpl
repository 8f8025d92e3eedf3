{{/*
SPDX-License-Identifier: Apache-2.0
The small PostgreSQL for trials, and the metadata connection made of it or of data.metadataConnection.
*/}}

{{- define "airflow.postgresql.host" -}}
{{- printf "%s-postgresql.%s" (include "airflow.fullname" .) .Release.Namespace -}}
{{- end -}}
{{- define "airflow.postgresql.user" -}}
{{- .Values.postgresql.auth.username | default .Values.data.metadataConnection.user -}}
{{- end -}}
{{/* The password given in the values, empty where the secrets Job makes one. */}}
{{- define "airflow.postgresql.password" -}}
{{- if .Values.postgresql.auth.username -}}
{{- .Values.postgresql.auth.password | default "" -}}
{{- else -}}
{{- .Values.postgresql.auth.postgresPassword | default "" -}}
{{- end -}}
{{- end -}}

{{/* The connection as the values give it; empty where the secrets Job writes it. */}}
{{- define "airflow.metadataConnection" -}}
{{- $c := .Values.data.metadataConnection -}}
{{- if .Values.data.metadataSecretName -}}
{{- else if .Values.postgresql.enabled -}}
{{- with include "airflow.postgresql.password" . -}}
{{- printf "postgresql://%s:%s@%s:5432/%s" (include "airflow.postgresql.user" $ | urlquery | replace "+" "%20") (. | urlquery | replace "+" "%20") (include "airflow.postgresql.host" $) $c.db -}}
{{- end -}}
{{- else -}}
{{- printf "%s://%s:%s@%s:%v/%s" $c.protocol ($c.user | urlquery | replace "+" "%20") ($c.pass | default "" | urlquery | replace "+" "%20") $c.host $c.port $c.db -}}
{{- end -}}
{{- end -}}
