{{/*
SPDX-License-Identifier: Apache-2.0
Security contexts that Pod Security "restricted" admits. A user's context is merged over the default key by key, so that
setting fsGroup does not take runAsNonRoot away.
*/}}

{{/* A list of maps laid over each other by top-level key, as YAML: unlike `merge`, a false or a 0 counts. */}}
{{- define "airflow.overlay" -}}
{{- $out := dict -}}
{{- range $layer := . -}}
{{- range $key, $value := $layer | default dict -}}{{- $_ := set $out $key $value -}}{{- end -}}
{{- end -}}
{{- toYaml $out -}}
{{- end -}}

{{/* Pod level. Call with (dict "ctx" $ "values" .Values.scheduler). */}}
{{- define "airflowPodSecurityContext" -}}
{{- $default := dict
      "runAsNonRoot" true
      "runAsUser" (int .ctx.Values.uid)
      "runAsGroup" (int .ctx.Values.gid)
      "fsGroup" (int .ctx.Values.gid)
      "seccompProfile" (dict "type" "RuntimeDefault") -}}
{{- $legacy := (.values).securityContext | default .ctx.Values.securityContext -}}
{{- include "airflow.overlay" (list $default $legacy (.ctx.Values.securityContexts).pod ((.values).securityContexts).pod) -}}
{{- end -}}

{{/* Container level. Call with (dict "ctx" $ "own" <map or nil>); "own" is the component's securityContexts.container. */}}
{{- define "containerSecurityContext" -}}
{{- $default := dict
      "allowPrivilegeEscalation" false
      "capabilities" (dict "drop" (list "ALL")) -}}
{{- include "airflow.overlay" (list $default (.ctx.Values.securityContexts).containers .own) -}}
{{- end -}}
