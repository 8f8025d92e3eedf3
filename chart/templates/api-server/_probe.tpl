{{/* SPDX-License-Identifier: Apache-2.0 */}}

{{/* The version answers without a database: an outage of the database must not restart the server. */}}
{{- define "airflow.apiServerProbe" -}}
httpGet:
  path: {{ (urlParse (tpl (dig "api" "base_url" "" .ctx.Values.config | toString) .ctx)).path | trimSuffix "/" }}/api/v2/version
  port: api-server
  scheme: {{ .probe.scheme | default "HTTP" }}
{{- include "airflow.probeTiming" .probe }}
{{- end -}}
