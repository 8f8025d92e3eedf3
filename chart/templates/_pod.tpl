{{/*
SPDX-License-Identifier: Apache-2.0
What the pods of Airflow's components have in common. The dict "it" that these helpers take:
  ctx        the root context
  component  e.g. "scheduler"
  values     the component's values, e.g. .Values.scheduler
  database, jwt, dags   what the component is given
*/}}

{{/* A component's placement, the root's where it has none; each key replaces, none merges. */}}
{{- define "airflow.placement" -}}
{{- $v := .values | default dict -}}
{{- range $key := list "nodeSelector" "affinity" "tolerations" "topologySpreadConstraints" }}
{{- with (get $v $key) | default (get $.ctx.Values $key) }}
{{ $key }}:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}
{{- with $v.schedulerName | default .ctx.Values.schedulerName }}
schedulerName: {{ . }}
{{- end }}
{{- with $v.priorityClassName }}
priorityClassName: {{ tpl . $.ctx }}
{{- end }}
{{- with $v.hostAliases }}
hostAliases:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $v.runtimeClassName }}
runtimeClassName: {{ . }}
{{- end }}
{{- if not (kindIs "invalid" .ctx.Values.enableServiceLinks) }}
enableServiceLinks: {{ .ctx.Values.enableServiceLinks }}
{{- end }}
{{- end -}}

{{/* Start of a pod's spec: account, placement, security, pull secrets. */}}
{{- define "airflow.podHead" -}}
serviceAccountName: {{ include "airflow.serviceAccountName" . }}
{{- with .values.terminationGracePeriodSeconds }}
terminationGracePeriodSeconds: {{ . }}
{{- end }}
{{- include "airflow.placement" . }}
securityContext:
  {{- include "airflowPodSecurityContext" . | nindent 2 }}
{{- with include "image_pull_secrets" .ctx }}
imagePullSecrets:
  {{- . | nindent 2 }}
{{- end }}
{{- end -}}

{{/* Labels and annotations of a pod template. "checksums" is a map of further annotations. */}}
{{- define "airflow.podMetadata" -}}
labels:
  {{- include "airflow.labels" (dict "ctx" .ctx "component" .component "more" .values.labels) | nindent 2 }}
{{- $ours := dict "checksum/airflow-config" (include "airflow.configChecksum" .ctx) -}}
{{- if not (kindIs "invalid" .values.safeToEvict) -}}
{{- $_ := set $ours "cluster-autoscaler.kubernetes.io/safe-to-evict" (toString .values.safeToEvict) -}}
{{- end }}
annotations:
  {{- tpl (include "airflow.overlay" (list $ours .checksums .ctx.Values.airflowPodAnnotations .values.podAnnotations)) .ctx | nindent 2 }}
{{- end -}}

{{/* Volumes of every Airflow pod. "ownLogs": the logs volume is a claim of the StatefulSet. */}}
{{- define "airflow.volumes" -}}
{{- include "airflow.configVolume" .ctx }}
{{- include "steadfast.codeVolume" .ctx }}
{{- if not .ownLogs }}
- name: logs
  {{- if .ctx.Values.logs.persistence.enabled }}
  persistentVolumeClaim:
    claimName: {{ include "airflow_logs_volume_claim" .ctx }}
  {{- else }}
  emptyDir: {{ .ctx.Values.logs.emptyDirConfig | default dict | toJson }}
  {{- end }}
{{- end }}
{{- if and .dags .ctx.Values.dags.persistence.enabled }}
- name: dags
  persistentVolumeClaim:
    claimName: {{ include "airflow_dags_volume_claim" .ctx }}
{{- end }}
{{- with .ctx.Values.volumes }}
{{ toYaml . }}
{{- end }}
{{- with .values.extraVolumes }}
{{ tpl (toYaml .) $.ctx }}
{{- end }}
{{- end -}}

{{/* Mounts of every Airflow container. */}}
{{- define "airflow.mounts" -}}
{{- include "airflow_config_mount" .ctx }}
{{- include "steadfast.codeMount" .ctx }}
- name: logs
  mountPath: {{ include "airflow_logs" .ctx }}
  {{- with .ctx.Values.logs.persistence.subPath }}
  subPath: {{ . }}
  {{- end }}
{{- if and .dags .ctx.Values.dags.persistence.enabled }}
- name: dags
  mountPath: {{ include "airflow_dags" .ctx }}
  readOnly: true
  {{- with .ctx.Values.dags.persistence.subPath }}
  subPath: {{ . }}
  {{- end }}
{{- end }}
{{- with .ctx.Values.volumeMounts }}
{{ toYaml . }}
{{- end }}
{{- with .values.extraVolumeMounts }}
{{ tpl (toYaml .) $.ctx }}
{{- end }}
{{- end -}}

{{- define "airflow_logs_volume_claim" -}}
{{- .Values.logs.persistence.existingClaim | default (printf "%s-logs" (include "airflow.fullname" .)) -}}
{{- end -}}
{{- define "airflow_dags_volume_claim" -}}
{{- .Values.dags.persistence.existingClaim | default (printf "%s-dags" (include "airflow.fullname" .)) -}}
{{- end -}}

{{/* Image, environment, security and resources of a container that runs Airflow's image. "own": values of this container. */}}
{{- define "airflow.containerBody" -}}
{{- $own := .own | default .values -}}
image: {{ .image | default (include "airflow_image" .ctx) }}
imagePullPolicy: {{ .ctx.Values.images.airflow.pullPolicy }}
securityContext:
  {{- include "containerSecurityContext" (dict "ctx" .ctx "own" (($own.securityContexts).container)) | nindent 2 }}
{{- with $own.containerLifecycleHooks | default .ctx.Values.containerLifecycleHooks }}
lifecycle:
  {{- tpl (toYaml .) $.ctx | nindent 2 }}
{{- end }}
env:
  {{- include "airflow.env" . | nindent 2 }}
{{- with include "custom_airflow_environment_from" .ctx }}
envFrom:
  {{- . | nindent 2 }}
{{- end }}
{{- with $own.resources }}
resources:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{/* First init container of every component: waits until the schema is the one that this image expects. */}}
{{- define "airflow.waitForMigrations" -}}
{{- $wait := .values.waitForMigrations | default dict -}}
{{- if ne (toString $wait.enabled) "false" }}
- name: wait-for-airflow-migrations
  {{- include "airflow.containerBody" (merge (dict "own" (dict "securityContexts" $wait.securityContexts "resources" .values.resources) "env" $wait.env "database" true "jwt" false "user" true) (omit . "jwt")) | nindent 2 }}
  args: [airflow, db, check-migrations, "--migration-wait-timeout={{ .ctx.Values.images.migrationsWaitTimeout }}"]
  volumeMounts:
    {{- include "airflow.mounts" . | nindent 4 }}
{{- end }}
{{- end -}}

{{/* command and args of the main container. */}}
{{- define "airflow.command" -}}
{{- with .values.command }}
command:
  {{- tpl (toYaml .) $.ctx | nindent 2 }}
{{- end }}
{{- with .values.args }}
args:
  {{- tpl (toYaml .) $.ctx | nindent 2 }}
{{- end }}
{{- end -}}

{{/* Timing of a probe. Call with the probe's values. */}}
{{- define "airflow.probeTiming" -}}
{{- range $key := list "initialDelaySeconds" "timeoutSeconds" "failureThreshold" "periodSeconds" }}
{{- if not (kindIs "invalid" (get $ $key)) }}
{{ $key }}: {{ get $ $key }}
{{- end }}
{{- end }}
{{- end -}}

{{/*
A probe by heartbeat: one SELECT on the job table, a tenth of the processor time of `airflow jobs check`.
Call with (dict "ctx" $ "probe" <values> "job" "TriggererJob").
*/}}
{{- define "airflow.heartbeatProbe" -}}
exec:
  command:
    {{- if .probe.command }}
    {{- tpl (toYaml .probe.command) .ctx | nindent 4 }}
    {{- else }}
    - python
    - {{ include "airflow.configPath" .ctx }}/heartbeat.py
    - {{ .job }}
    {{- end }}
{{- include "airflow.probeTiming" .probe }}
{{- end -}}
