{{/*
SPDX-License-Identifier: Apache-2.0
Names, labels and selectors: those of the official chart, so that a running release can be taken over in place.
*/}}

{{/* Prefix of object names: the release name, unless useStandardNaming or fullnameOverride says otherwise. */}}
{{- define "airflow.fullname" -}}
{{- if not .Values.useStandardNaming -}}
{{- .Values.fullnameOverride | default .Release.Name | trunc 63 | trimSuffix "-" -}}
{{- else -}}
{{- include "airflow.standardName" . -}}
{{- end -}}
{{- end -}}

{{/* "<release>-airflow", or the release name alone where it holds the chart's name. */}}
{{- define "airflow.standardName" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 63 | trimSuffix "-" -}}
{{- else -}}
{{- $name := .Values.nameOverride | default .Chart.Name -}}
{{- if contains $name .Release.Name -}}
{{- .Release.Name | trunc 63 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name $name | trunc 63 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/*
Labels of every object. Call with (dict "ctx" $ "component" "scheduler"); "more" are labels of the user, which cannot take
those away that selectors need.
*/}}
{{- define "airflow.labels" -}}
{{- $ours := dict
      "tier" "airflow"
      "component" .component
      "release" .ctx.Release.Name
      "chart" (printf "%s-%s" .ctx.Chart.Name .ctx.Chart.Version | replace "+" "_")
      "heritage" .ctx.Release.Service
      "app.kubernetes.io/name" .ctx.Chart.Name
      "app.kubernetes.io/instance" .ctx.Release.Name
      "app.kubernetes.io/component" .component
      "app.kubernetes.io/managed-by" .ctx.Release.Service -}}
{{- include "airflow.overlay" (list .ctx.Values.labels .more $ours) -}}
{{- end -}}

{{/* The immutable selector of a workload: exactly the official chart's three labels. */}}
{{- define "airflow.selector" -}}
tier: airflow
component: {{ .component }}
release: {{ .ctx.Release.Name }}
{{- end -}}

{{/* Name of a component's ServiceAccount. Call with (dict "ctx" $ "component" "scheduler" "values" .Values.scheduler). */}}
{{- define "airflow.serviceAccountName" -}}
{{- $account := (.values).serviceAccount | default dict -}}
{{- if $account.name -}}
{{- tpl $account.name .ctx -}}
{{- else if eq (toString (dig "create" true $account)) "false" -}}
default
{{- else -}}
{{- printf "%s-%s" (include "airflow.standardName" .ctx) .component -}}
{{- end -}}
{{- end -}}

{{/* A ServiceAccount. Call as the one above; "tokens" false gives one that mounts no API token. */}}
{{- define "airflow.serviceAccount" -}}
{{- $account := (.values).serviceAccount | default dict -}}
{{- if ne (toString (dig "create" true $account)) "false" }}
apiVersion: v1
kind: ServiceAccount
metadata:
  name: {{ include "airflow.serviceAccountName" . }}
  labels:
    {{- include "airflow.labels" . | nindent 4 }}
  {{- with $account.annotations }}
  annotations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
automountServiceAccountToken: {{ and .tokens (ne (toString $account.automountServiceAccountToken) "false") }}
{{- end }}
{{- end -}}

{{/* Secrets: the user's object where one is named, else the chart's. */}}
{{- define "airflow_metadata_secret" -}}
{{- .Values.data.metadataSecretName | default (printf "%s-metadata" (include "airflow.fullname" .)) -}}
{{- end -}}
{{- define "airflow_metadata_secret_key" -}}
{{- .Values.data.metadataSecretKey | default "connection" -}}
{{- end -}}
{{- define "fernet_key_secret" -}}
{{- .Values.fernetKeySecretName | default (printf "%s-fernet-key" (include "airflow.fullname" .)) -}}
{{- end -}}
{{- define "jwt_secret" -}}
{{- .Values.jwtSecretName | default (printf "%s-jwt-secret" (include "airflow.fullname" .)) -}}
{{- end -}}
{{- define "api_secret_key_secret" -}}
{{- .Values.apiSecretKeySecretName | default (printf "%s-api-secret-key" (include "airflow.fullname" .)) -}}
{{- end -}}
{{- define "airflow.postgresql.secret" -}}
{{- printf "%s-postgresql" (include "airflow.fullname" .) -}}
{{- end -}}
{{- define "airflow_config" -}}
{{- printf "%s-config" (include "airflow.fullname" .) -}}
{{- end -}}
