{{/*
SPDX-License-Identifier: Apache-2.0
The pod of a task. It holds no database password, no fernet key and no token key: a task speaks to the execution API with
the token of its own workload.
*/}}

{{/* Values of task pods: workers.kubernetes.<key>, else the older workers.<key>; the newer one replaces, it does not merge. */}}
{{- define "airflow.workerValues" -}}
{{- $out := dict -}}
{{- $own := .Values.workers.kubernetes | default dict -}}
{{- range $key, $value := omit .Values.workers "kubernetes" "celery" -}}
{{- $_ := set $out $key $value -}}
{{- end -}}
{{- range $key, $value := $own -}}
{{- if or (kindIs "bool" $value) (not (empty $value)) -}}
{{- if and (hasKey $out $key) (has $key (list "serviceAccount" "securityContexts")) -}}
{{- $merged := deepCopy (get $out $key | default dict) -}}
{{- range $inner, $set := $value -}}
{{- if or (kindIs "bool" $set) (not (empty $set)) -}}{{- $_ := set $merged $inner $set -}}{{- end -}}
{{- end -}}
{{- $_ := set $out $key $merged -}}
{{- else -}}
{{- $_ := set $out $key $value -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- toJson $out -}}
{{- end -}}

{{- define "worker.kubernetes.serviceAccountName" -}}
{{- include "airflow.serviceAccountName" (dict "ctx" . "component" "worker" "values" (include "airflow.workerValues" . | fromJson)) -}}
{{- end -}}

{{- define "airflow.podTemplateName" -}}
{{- printf "%s-pod-template" (include "airflow.fullname" .) -}}
{{- end -}}

{{- define "airflow.podTemplate" -}}
{{- if .Values.podTemplate -}}
{{- tpl .Values.podTemplate . -}}
{{- else -}}
{{- $values := include "airflow.workerValues" . | fromJson -}}
{{- $database := .Values.steadfast.workers.metadataAccess -}}
{{- $last := list (dict "name" "AIRFLOW__CORE__EXECUTOR" "value" "LocalExecutor") -}}
{{- $it := dict "ctx" . "component" "worker" "values" $values "env" $values.env "database" $database "jwt" false "user" true "last" $last "dags" true "image" (include "pod_template_image" .) -}}
apiVersion: v1
kind: Pod
metadata:
  name: placeholder-name
  {{- include "airflow.podMetadata" $it | nindent 2 }}
spec:
  restartPolicy: Never
  {{- include "airflow.podHead" $it | nindent 2 }}
  {{- with $values.extraInitContainers }}
  initContainers:
    {{- tpl (toYaml .) $ | nindent 4 }}
  {{- end }}
  containers:
    - name: base
      {{- include "airflow.containerBody" $it | nindent 6 }}
      {{- with $values.command }}
      command:
        {{- tpl (toYaml .) $ | nindent 8 }}
      {{- end }}
      volumeMounts:
        {{- include "airflow.mounts" $it | nindent 8 }}
    {{- with $values.extraContainers }}
    {{- tpl (toYaml .) $ | nindent 4 }}
    {{- end }}
  volumes:
    {{- include "airflow.volumes" $it | nindent 4 }}
{{- end -}}
{{- end -}}
