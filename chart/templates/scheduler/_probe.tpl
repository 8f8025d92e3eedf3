{{/*
SPDX-License-Identifier: Apache-2.0
The scheduler answers for itself over HTTP ([scheduler] enable_health_check); a command given by the user goes first.
*/}}

{{- define "airflow.schedulerHealthPort" -}}
{{- dig "scheduler" "scheduler_health_check_server_port" 8974 .Values.config -}}
{{- end -}}

{{- define "airflow.schedulerProbe" -}}
{{- if .probe.command -}}
exec:
  command:
    {{- tpl (toYaml .probe.command) .ctx | nindent 4 }}
{{- else -}}
httpGet:
  path: /health
  port: health
{{- end }}
{{- include "airflow.probeTiming" .probe }}
{{- end -}}
