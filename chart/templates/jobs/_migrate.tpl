{{/* SPDX-License-Identifier: Apache-2.0 */}}

{{/* The spec whose hash names the migration Job. */}}
{{- define "airflow.migrateJobSpec" -}}
{{- $job := .Values.migrateDatabaseJob -}}
{{- $it := dict "ctx" . "component" "run-airflow-migrations" "values" $job "env" $job.env "database" true "jwt" true "user" $job.applyCustomEnv "dags" false -}}
backoffLimit: 10
{{- if not (kindIs "invalid" $job.ttlSecondsAfterFinished) }}
ttlSecondsAfterFinished: {{ $job.ttlSecondsAfterFinished }}
{{- end }}
template:
  metadata:
    {{- include "airflow.jobPodMetadata" $it | nindent 4 }}
  spec:
    restartPolicy: {{ $job.restartPolicy }}
    {{- include "airflow.podHead" (merge (dict "component" "migrate-database-job") (omit $it "component")) | nindent 4 }}
    {{- with $job.extraInitContainers }}
    initContainers:
      {{- tpl (toYaml .) $ | nindent 6 }}
    {{- end }}
    containers:
      - name: run-airflow-migrations
        {{- include "airflow.containerBody" $it | nindent 8 }}
        {{- include "airflow.command" $it | nindent 8 }}
        volumeMounts:
          {{- include "airflow.mounts" $it | nindent 10 }}
      {{- with $job.extraContainers }}
      {{- tpl (toYaml .) $ | nindent 6 }}
      {{- end }}
    volumes:
      {{- include "airflow.volumes" $it | nindent 6 }}
{{- end -}}

{{/* Labels of a Job's pod: without the chart's version, which would give every release of the chart a new Job. */}}
{{- define "airflow.jobPodMetadata" -}}
{{- $labels := merge (dict "app.kubernetes.io/instance" .ctx.Release.Name) (include "airflow.selector" . | fromYaml) -}}
{{- $ours := dict "checksum/airflow-config" (include "airflow.configChecksum" .ctx) -}}
{{- if and .ctx.Values.postgresql.enabled (not .ctx.Values.postgresql.persistence.enabled) -}}
{{- /* A changed pod of a trial database without a volume is an empty database: the Job must run again. */ -}}
{{- $_ := set $ours "checksum/trial-database" (include "airflow.postgresql.pod" .ctx | sha256sum) -}}
{{- end -}}
labels:
  {{- include "airflow.overlay" (list .ctx.Values.labels .values.labels $labels) | nindent 2 }}
annotations:
  {{- tpl (include "airflow.overlay" (list $ours .ctx.Values.airflowPodAnnotations .values.annotations)) .ctx | nindent 2 }}
{{- end -}}
