{{/*
SPDX-License-Identifier: Apache-2.0
The user writes KubernetesExecutor; Airflow is given the guarded class under that alias, so that Dags which name
KubernetesExecutor still route to it.
*/}}

{{- define "steadfast.executorPath" -}}
airflow_steadfast.launch_guard.executor.GuardedKubernetesExecutor
{{- end -}}

{{/* A word of which one is off, which YAML reads as false where it is not quoted. Call with the value. */}}
{{- define "steadfast.offWord" -}}
{{- if and (kindIs "bool" .) (not .) -}}off{{- else -}}{{- toString . -}}{{- end -}}
{{- end -}}
{{- define "steadfast.guardMode" -}}{{ include "steadfast.offWord" .Values.steadfast.launchGuard.mode }}{{- end -}}

{{/* "true" where the launch guard replaces the stock executor. */}}
{{- define "steadfast.guarded" -}}
{{- if and .Values.steadfast.enabled (ne (include "steadfast.guardMode" .) "off") -}}true{{- end -}}
{{- end -}}

{{/* The parts of `executor`, checked: a JSON list. Fails on a part that this chart cannot run. */}}
{{- define "airflow.executorParts" -}}
{{- $parts := list -}}
{{- range regexSplit "[,;]" .Values.executor -1 -}}
{{- $part := trim . -}}
{{- $class := last (splitList ":" $part) | splitList "." | last -}}
{{- if not (or (eq $class "KubernetesExecutor") (and (contains "." $part) (hasSuffix "KubernetesExecutor" $class))) -}}
{{- fail (printf "executor: %q is not supported by this chart. Use \"KubernetesExecutor\", or the import path of a class whose name ends in KubernetesExecutor." $part) -}}
{{- end -}}
{{- $parts = append $parts $part -}}
{{- end -}}
{{- toJson $parts -}}
{{- end -}}

{{/* The value of [core] executor. */}}
{{- define "airflow.executor" -}}
{{- $out := list -}}
{{- range include "airflow.executorParts" . | fromJsonArray -}}
{{- if and (eq . "KubernetesExecutor") (include "steadfast.guarded" $) -}}
{{- $out = append $out (printf "KubernetesExecutor:%s" (include "steadfast.executorPath" $)) -}}
{{- else -}}
{{- $out = append $out . -}}
{{- end -}}
{{- end -}}
{{- join "," $out -}}
{{- end -}}
