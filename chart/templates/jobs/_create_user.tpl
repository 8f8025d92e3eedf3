{{/* SPDX-License-Identifier: Apache-2.0 */}}

{{/* "true" where a user is to be made: a password is given, and the auth manager is the one that has users. */}}
{{- define "airflow.createUser" -}}
{{- $user := .Values.createUserJob.defaultUser -}}
{{- $manager := tpl (dig "core" "auth_manager" "" .Values.config) . -}}
{{- if and .Values.createUserJob.enabled (or $user.password $user.passwordSecretName) (hasSuffix "FabAuthManager" $manager) (not .Values.steadfast.addonsOnly) -}}true{{- end -}}
{{- end -}}

{{- define "airflow.createUserJobSpec" -}}
{{- $job := .Values.createUserJob -}}
{{- $user := $job.defaultUser -}}
{{- $secret := $user.passwordSecretName | default (printf "%s-create-user" (include "airflow.fullname" .)) -}}
{{- $last := list (include "airflow.secretEnv" (dict "name" "STEADFAST_USER_PASSWORD" "secret" $secret "key" ($user.passwordSecretKey | default "password")) | fromJson) -}}
{{- $it := dict "ctx" . "component" "create-user-job" "values" $job "env" $job.env "database" true "jwt" true "user" $job.applyCustomEnv "last" $last "dags" false -}}
backoffLimit: 10
{{- if not (kindIs "invalid" $job.ttlSecondsAfterFinished) }}
ttlSecondsAfterFinished: {{ $job.ttlSecondsAfterFinished }}
{{- end }}
template:
  metadata:
    {{- include "airflow.jobPodMetadata" $it | nindent 4 }}
  spec:
    restartPolicy: {{ $job.restartPolicy }}
    {{- include "airflow.podHead" $it | nindent 4 }}
    initContainers:
      {{- include "airflow.waitForMigrations" $it | nindent 6 }}
    containers:
      - name: create-user
        {{- include "airflow.containerBody" $it | nindent 8 }}
        {{- with $job.command }}
        command:
          {{- tpl (toYaml .) $ | nindent 10 }}
        {{- end }}
        args:
          {{- if $job.args }}
          {{- tpl (toYaml $job.args) $ | nindent 10 }}
          {{- else }}
          - bash
          - -c
          - exec airflow users create --role "$1" --username "$2" --email "$3" --firstname "$4" --lastname "$5" --password "$STEADFAST_USER_PASSWORD"
          - create-user
          - {{ $user.role | quote }}
          - {{ $user.username | quote }}
          - {{ $user.email | quote }}
          - {{ $user.firstName | quote }}
          - {{ $user.lastName | quote }}
          {{- end }}
        volumeMounts:
          {{- include "airflow.mounts" $it | nindent 10 }}
    volumes:
      {{- include "airflow.volumes" $it | nindent 6 }}
{{- end -}}
