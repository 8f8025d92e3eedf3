{{/*
SPDX-License-Identifier: Apache-2.0
Checks that values.schema.json cannot make, or that must hold where the schema is skipped. Each failure names the key and
what to do.
*/}}

{{/* Keys under `steadfast:`, each with the keys below it ("*": any). */}}
{{- define "steadfast.knownKeys" -}}
enabled: []
addonsOnly: []
install: [method]
launchGuard: [mode, maxHoldSeconds, checkTimeoutSeconds, createRetrySeconds, inject]
durablePod: [enabled]
sidecar: [enabled, native, port, pollIntervalSeconds, resources, env, image, securityContext, databaseSecretName, databaseSecretKey, tlsSecretName, clientCaSecretName, bearerTokenSecretName, bearerTokenSecretKey]
metrics: [scrapeAnnotations, podMonitor, prometheusRule]
dashboards: [enabled, label, labelValue, annotations]
workers: [metadataAccess]
secrets: [allowNewKeysBesideData, databaseWaitSeconds, resources, serviceAccount, nodeSelector, affinity, tolerations, priorityClassName, securityContexts]
settings: ["*"]
{{- end -}}

{{/* Official switches that this chart does not implement and must not ignore in silence: path -> what to do instead. */}}
{{- define "airflow.refusedSwitches" -}}
networkPolicies.enabled: no NetworkPolicy would be made and access would stay open; apply your own policies beside the chart
kerberos.enabled: tasks would run without a ticket
elasticsearch.enabled: logs would not be shipped; configure [elasticsearch] under `config`
opensearch.enabled: logs would not be shipped; configure [opensearch] under `config`
multiNamespaceMode: task pods are launched in the release's namespace only
dags.gitSync.enabled: Dags would be missing; use dags.persistence, `volumes` with `volumeMounts`, a Dag bundle (dagProcessor.dagBundleConfigList) or an image that holds them
pgbouncer.enabled: the connections would not be pooled; name your own pooler in data.metadataConnection.host
cleanup.enabled: finished pods would not be cleaned up; Airflow's own config.kubernetes_executor.delete_worker_pods does it
databaseCleanup.enabled: the database would not be cleaned; run `airflow db clean` in a CronJob of your own
{{- end -}}

{{/* Official switches that are accepted and do nothing; NOTES lists those that are on. */}}
{{- define "airflow.ignoredSwitches" -}}
[statsd.enabled, redis.enabled, flower.enabled, otelCollector.metricsEnabled, otelCollector.tracesEnabled,
 ingress.enabled, ingress.apiServer.enabled, ingress.web.enabled, apiServer.httpRoute.enabled, apiServer.hpa.enabled,
 scheduler.podDisruptionBudget.enabled, apiServer.podDisruptionBudget.enabled, dagProcessor.podDisruptionBudget.enabled,
 triggerer.podDisruptionBudget.enabled, triggerer.keda.enabled, allowJobLaunching, rbac.createSCCRoleBinding]
{{- end -}}

{{/* The value at a dotted path: "true" where it is set and on. Call with (list <values> "a.b"). */}}
{{- define "airflow.isOn" -}}
{{- $at := first . -}}
{{- range splitList "." (last .) -}}
{{- if kindIs "map" $at -}}{{- $at = get $at . -}}{{- else -}}{{- $at = false -}}{{- end -}}
{{- end -}}
{{- if and $at (ne (toString $at) "false") -}}true{{- end -}}
{{- end -}}

{{- define "airflow.validate" -}}
{{- $known := include "steadfast.knownKeys" . | fromYaml -}}
{{- range $key, $value := .Values.steadfast -}}
{{- if not (hasKey $known $key) -}}
{{- fail (printf "steadfast.%s: unknown key. Keys of `steadfast`: %s." $key (keys $known | sortAlpha | join ", ")) -}}
{{- end -}}
{{- $below := get $known $key -}}
{{- if and $below (kindIs "map" $value) (not (has "*" $below)) -}}
{{- range $inner, $_ := $value -}}
{{- if not (has $inner $below) -}}
{{- fail (printf "steadfast.%s.%s: unknown key. Keys of `steadfast.%s`: %s." $key $inner $key ($below | sortAlpha | join ", ")) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- if not .Values.steadfast.addonsOnly -}}
{{- $_ := include "airflow.executor" . -}}
{{- range $path, $why := include "airflow.refusedSwitches" . | fromYaml -}}
{{- if include "airflow.isOn" (list $.Values $path) -}}
{{- fail (printf "%s: not implemented by this chart, and ignoring it would hurt: %s." $path $why) -}}
{{- end -}}
{{- end -}}
{{- if not (or .Values.postgresql.enabled .Values.data.metadataSecretName .Values.data.metadataConnection.host) -}}
{{- fail "data.metadataConnection.host: no database. Name one there, or give data.metadataSecretName, or set postgresql.enabled=true for a trial." -}}
{{- end -}}
{{- if semverCompare "<3.0.0-0" .Values.airflowVersion -}}
{{- fail (printf "airflowVersion: %q is not supported by this version of the chart; use 3.x." .Values.airflowVersion) -}}
{{- end -}}
{{- end -}}
{{- if not (has .Values.steadfast.install.method (list "configMap" "image")) -}}
{{- fail (printf "steadfast.install.method: %q is unknown; use configMap or image." .Values.steadfast.install.method) -}}
{{- end -}}
{{- if not (has (include "steadfast.guardMode" .) (list "auto" "enforce" "observe" "off")) -}}
{{- fail (printf "steadfast.launchGuard.mode: %q is unknown; use auto, enforce, observe or off." (include "steadfast.guardMode" .)) -}}
{{- end -}}
{{- if not (has (include "steadfast.offWord" .Values.steadfast.launchGuard.inject) (list "auto" "off")) -}}
{{- fail (printf "steadfast.launchGuard.inject: %q is unknown; use auto or off." (include "steadfast.offWord" .Values.steadfast.launchGuard.inject)) -}}
{{- end -}}
{{- if .Values.steadfast.enabled -}}
{{- if and .Values.steadfast.sidecar.clientCaSecretName (not .Values.steadfast.sidecar.tlsSecretName) -}}
{{- fail "steadfast.sidecar.clientCaSecretName: client certificates exist only over TLS; set steadfast.sidecar.tlsSecretName too." -}}
{{- end -}}
{{- if and .Values.steadfast.metrics.podMonitor.enabled (not .Values.steadfast.sidecar.enabled) (not .Values.steadfast.addonsOnly) -}}
{{- fail "steadfast.metrics.podMonitor.enabled: there is nothing to scrape without steadfast.sidecar.enabled=true." -}}
{{- end -}}
{{- if hasKey .Values.steadfast.settings "handoff_dir" -}}
{{- fail "steadfast.settings.handoff_dir: the chart mounts that folder itself, for the scheduler and the sidecar; leave it out." -}}
{{- end -}}
{{- $hold := .Values.steadfast.settings.guard_max_hold | default .Values.steadfast.launchGuard.maxHoldSeconds -}}
{{- $queued := dig "scheduler" "task_queued_timeout" 600 .Values.config -}}
{{- if and (regexMatch "^[0-9.]+$" (toString $queued)) (ge (float64 $hold) (float64 $queued)) -}}
{{- fail (printf "steadfast.launchGuard.maxHoldSeconds: %v must be below config.scheduler.task_queued_timeout (%v): a held launch would be requeued before it is let through." $hold $queued) -}}
{{- end -}}
{{- end -}}
{{- end -}}
