{{/*
SPDX-License-Identifier: Apache-2.0
Helpers that values files written for the official chart call in their templates, beside those of the same name elsewhere here.
*/}}

{{/* A Kubernetes processor quantity in whole processors, rounded up; 1 where there is none. */}}
{{- define "cpu_count" -}}
{{- $quantity := toString (. | default "1") -}}
{{- if hasSuffix "m" $quantity -}}
{{- ceil (divf (float64 (trimSuffix "m" $quantity)) 1000) -}}
{{- else -}}
{{- ceil (float64 $quantity) -}}
{{- end -}}
{{- end -}}

{{- define "airflow_logs_no_quote" -}}{{ include "airflow_logs" . }}{{- end -}}
