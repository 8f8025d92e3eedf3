{{/*
SPDX-License-Identifier: Apache-2.0
airflow.cfg from `config`, with what the chart computes.
*/}}

{{- define "airflow.configPath" -}}/etc/airflow{{- end -}}
{{- define "airflow_dags" -}}{{ .Values.dags.mountPath | default (printf "%s/dags" .Values.airflowHome) }}{{- end -}}
{{- define "airflow_logs" -}}{{ printf "%s/logs" .Values.airflowHome }}{{- end -}}
{{- define "airflow_pod_template_file" -}}{{ printf "%s/pod_templates" .Values.airflowHome }}{{- end -}}
{{- define "dag_bundle_config_list" -}}{{ .Values.dagProcessor.dagBundleConfigList | toJson }}{{- end -}}

{{/* Address of the execution API inside the cluster, with the path of [api] base_url. */}}
{{- define "airflow.executionApiUrl" -}}
{{- $base := tpl (dig "api" "base_url" "" .Values.config | toString) . -}}
{{- $path := (urlParse $base).path | trimSuffix "/" -}}
{{- printf "http://%s-api-server.%s:%v%s/execution/" (include "airflow.fullname" .) .Release.Namespace .Values.ports.apiServer $path -}}
{{- end -}}

{{/* Section [steadfast] from steadfast.launchGuard, durablePod and settings (which wins). */}}
{{- define "steadfast.settings" -}}
{{- $s := .Values.steadfast -}}
{{- $out := dict
      "launch_guard" (include "steadfast.guardMode" .)
      "guard_max_hold" $s.launchGuard.maxHoldSeconds
      "guard_check_timeout" $s.launchGuard.checkTimeoutSeconds
      "guard_create_retry" $s.launchGuard.createRetrySeconds
      "inject" (include "steadfast.offWord" $s.launchGuard.inject)
      "handoff_dir" (include "steadfast.handoffPath" .)
      "patch_kpo" (ternary "True" "False" $s.durablePod.enabled) -}}
{{- include "airflow.overlay" (list $out $s.settings) -}}
{{- end -}}

{{/* All sections: a YAML map of maps, values rendered. */}}
{{- define "airflow.configSections" -}}
{{- $core := dict "executor" (include "airflow.executor" .) "execution_api_server_url" (include "airflow.executionApiUrl" .) -}}
{{- $computed := dict "core" $core -}}
{{- if .Values.steadfast.enabled -}}
{{- $_ := set $computed "steadfast" (include "steadfast.settings" . | fromYaml) -}}
{{- end -}}
{{- $out := dict -}}
{{- range $section := concat (keys $computed) (keys .Values.config) | uniq | sortAlpha -}}
{{- $rendered := dict -}}
{{- range $key, $value := include "airflow.overlay" (list (get $computed $section) (get $.Values.config $section)) | fromYaml -}}
{{- if not (kindIs "invalid" $value) -}}
{{- $text := toString $value -}}
{{- if and (kindIs "float64" $value) (eq $value (floor $value)) -}}
{{- /* Helm reads every number as a float: ten million would be written as 1e+07. */ -}}
{{- $text = $value | int64 | toString -}}
{{- end -}}
{{- $_ := set $rendered $key (tpl $text $) -}}
{{- end -}}
{{- end -}}
{{- $_ := set $out $section $rendered -}}
{{- end -}}
{{- $named := $out.core.executor -}}
{{- if not (has $named (list .Values.executor (include "airflow.executor" .))) -}}
{{- fail (printf "config.core.executor: %q differs from executor: %q. Set the executor by the root key `executor` and leave config.core.executor out." $named .Values.executor) -}}
{{- end -}}
{{- $_ := set $out.core "executor" (include "airflow.executor" .) -}}
{{- toYaml $out -}}
{{- end -}}

{{- define "airflow.cfg" -}}
{{- range $section, $options := include "airflow.configSections" . | fromYaml -}}
[{{ $section }}]
{{ range $key, $value := $options -}}
{{ $key }} = {{ $value | replace "\n" "\n  " }}
{{ end }}
{{ end -}}
{{- end -}}

{{/* Volume and mounts of the configuration. */}}
{{- define "airflow.configVolume" -}}
- name: config
  configMap:
    name: {{ include "airflow_config" . }}
{{- end -}}
{{- define "airflow_config_mount" -}}
- name: config
  mountPath: {{ include "airflow.configPath" . }}
  readOnly: true
{{- if .Values.airflowLocalSettings }}
- name: config
  mountPath: {{ .Values.airflowHome }}/config/airflow_local_settings.py
  subPath: airflow_local_settings.py
  readOnly: true
{{- end }}
{{- end -}}
{{- define "airflow.configChecksum" -}}
{{- include "airflow.configData" . | sha256sum -}}
{{- end -}}
{{- define "airflow.configData" -}}
airflow.cfg: |
  {{- include "airflow.cfg" . | trim | nindent 2 }}
heartbeat.py: |
  {{- .Files.Get "files/scripts/heartbeat.py" | required "chart/files/scripts/heartbeat.py is missing" | nindent 2 }}
{{- with .Values.airflowLocalSettings }}
airflow_local_settings.py: |
  {{- tpl . $ | nindent 2 }}
{{- end }}
{{- end -}}
