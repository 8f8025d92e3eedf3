{{/*
SPDX-License-Identifier: Apache-2.0
The patch as a ConfigMap: one key per file, the path's "/" written as ".." (a ConfigMap key may hold no slash), restored by
the volume's items. The object's name carries the hash of its content: an old scheduler goes on finding the old object
during a rollout, and no process mixes two versions.
*/}}

{{- define "steadfast.codePath" -}}/opt/steadfast{{- end -}}

{{/* "true" where code reaches the pods by ConfigMap. */}}
{{- define "steadfast.byConfigMap" -}}
{{- if and .Values.steadfast.enabled (eq .Values.steadfast.install.method "configMap") -}}true{{- end -}}
{{- end -}}

{{/* Files without which a process would not start, or would start without the patch: their absence fails the render. */}}
{{- define "steadfast.requiredFiles" -}}
- airflow_steadfast/__init__.py
- airflow_steadfast/activation.py
- airflow_steadfast/capabilities.py
- airflow_steadfast/settings.py
- airflow_steadfast/launch_guard/__init__.py
- airflow_steadfast/launch_guard/executor.py
- airflow_steadfast/durable_pod/__init__.py
- airflow_steadfast/kube/__init__.py
- airflow_steadfast/signals/__init__.py
- steadfast_sidecar/__init__.py
- steadfast_sidecar/__main__.py
{{- end -}}

{{- define "steadfast.version" -}}
{{- $source := .Files.Get "files/airflow_steadfast/__init__.py" -}}
{{- $line := regexFind "__version__ *= *\"[^\"]+\"" $source -}}
{{- regexFind "[0-9][^\"]*" $line | required "files/airflow_steadfast/__init__.py: no __version__ found" -}}
{{- end -}}

{{/* All files: a JSON map from path to content. */}}
{{- define "steadfast.codeFiles" -}}
{{- $files := dict -}}
{{- range $package := list "airflow_steadfast" "steadfast_sidecar" -}}
{{- range $path, $_ := $.Files.Glob (printf "files/%s/**.py" $package) -}}
{{- $_ := set $files (trimPrefix "files/" $path) ($.Files.Get $path) -}}
{{- end -}}
{{- end -}}
{{- range include "steadfast.requiredFiles" . | fromYamlArray -}}
{{- if not (hasKey $files .) -}}
{{- fail (printf "chart/files/%s is missing. chart/files holds symbolic links to the Python packages of the repository; a copy that dropped them (a zip, Flux's git artefact) cannot be installed: use the packaged chart, or set steadfast.install.method=image." .) -}}
{{- end -}}
{{- end -}}
{{- $dist := printf "airflow_steadfast-%s.dist-info" (include "steadfast.version" .) -}}
{{- $_ := set $files (printf "%s/METADATA" $dist) (printf "Metadata-Version: 2.1\nName: airflow-steadfast\nVersion: %s\n" (include "steadfast.version" .)) -}}
{{- $_ := set $files (printf "%s/entry_points.txt" $dist) "[airflow.policy]\nsteadfast = airflow_steadfast.activation\n" -}}
{{- toJson $files -}}
{{- end -}}

{{- define "steadfast.codeKey" -}}{{ replace "/" ".." . }}{{- end -}}

{{- define "steadfast.codeName" -}}
{{- printf "%s-steadfast-code-%s" (include "airflow.fullname" .) (include "steadfast.codeFiles" . | sha256sum | trunc 12) -}}
{{- end -}}

{{/* The volume, in every Airflow pod and in the pod template. */}}
{{- define "steadfast.codeVolume" -}}
{{- if include "steadfast.byConfigMap" . }}
- name: steadfast-code
  configMap:
    name: {{ include "steadfast.codeName" . }}
    items:
      {{- range $path, $_ := include "steadfast.codeFiles" . | fromJson }}
      - key: {{ include "steadfast.codeKey" $path }}
        path: {{ $path }}
      {{- end }}
{{- end }}
{{- end -}}

{{- define "steadfast.codeMount" -}}
{{- if include "steadfast.byConfigMap" . }}
- name: steadfast-code
  mountPath: {{ include "steadfast.codePath" . }}
  readOnly: true
{{- end }}
{{- end -}}
