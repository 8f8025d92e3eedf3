{{/*
SPDX-License-Identifier: Apache-2.0
Image references and pull secrets.
*/}}

{{- define "airflow_image" -}}
{{- $repository := .Values.images.airflow.repository | default .Values.defaultAirflowRepository -}}
{{- $tag := .Values.images.airflow.tag | default .Values.defaultAirflowTag -}}
{{- $digest := .Values.images.airflow.digest | default .Values.defaultAirflowDigest -}}
{{- if $digest -}}{{ $repository }}@{{ $digest }}{{- else -}}{{ $repository }}:{{ $tag }}{{- end -}}
{{- end -}}

{{/* Image of task pods: the same one unless images.pod_template names another. */}}
{{- define "pod_template_image" -}}
{{- $own := .Values.images.pod_template | default dict -}}
{{- if $own.digest -}}
{{ $own.repository | default .Values.defaultAirflowRepository }}@{{ $own.digest }}
{{- else if or $own.repository $own.tag -}}
{{ $own.repository | default .Values.defaultAirflowRepository }}:{{ $own.tag | default .Values.defaultAirflowTag }}
{{- else -}}
{{ include "airflow_image" . }}
{{- end -}}
{{- end -}}

{{/* Names of pull secrets, as a pod's imagePullSecrets. */}}
{{- define "image_pull_secrets" -}}
{{- $names := list -}}
{{- with (.Values.registry).secretName }}{{- $names = append $names (dict "name" .) }}{{- end -}}
{{- range .Values.imagePullSecrets }}
{{- $names = append $names (ternary (dict "name" .) . (kindIs "string" .)) }}
{{- end -}}
{{- with $names }}{{ toYaml . }}{{- end -}}
{{- end -}}
