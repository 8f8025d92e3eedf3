{{/* SPDX-License-Identifier: Apache-2.0 */}}

{{/* Whether the patch was tested with this Airflow; the provider's version is known only inside the image. */}}
{{- define "steadfast.testedPair" -}}
{{- $tested := list "2.11.2" "3.0.6" "3.1.8" "3.2.2" "3.3.2" -}}
{{- if has .Values.airflowVersion $tested -}}
Airflow {{ .Values.airflowVersion }} is tested, with providers up to 10.25.0
{{- else -}}
Airflow {{ .Values.airflowVersion }} is NOT among those tested ({{ join ", " $tested }}); where its seams do not match, everything stays native
{{- end -}}
{{- end -}}
