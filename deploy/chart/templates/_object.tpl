{{/* An object of `files`, with the namespace and the labels of the release. */}}
{{- define "windlass.object" -}}
{{- $object := .object }}
{{- $metadata := $object.metadata }}
{{- if $metadata.namespace }}
{{- $_ := set $metadata "namespace" .root.Release.Namespace }}
{{- end }}
{{- if index ($metadata.labels | default dict) "windlass.dev/installation" }}
{{- $_ := set $metadata.labels "windlass.dev/installation" .root.Release.Namespace }}
{{- end }}
{{- range $object.subjects }}
{{- $_ := set . "namespace" $.root.Release.Namespace }}
{{- end }}
{{- $labels := include "windlass.labels" .root | fromYaml }}
{{- /* Of CRDs those of Flux only are a part of it, which their files say. */}}
{{- if eq $object.kind "CustomResourceDefinition" }}
{{- $_ := unset $labels "app.kubernetes.io/part-of" }}
{{- end }}
{{- $_ := set $metadata "labels" (merge $labels ($metadata.labels | default dict)) }}
---
{{ toYaml $object }}
{{- end }}

{{- define "windlass.labels" -}}
{{ include "windlass.podLabels" . }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
app.kubernetes.io/version: {{ .Chart.AppVersion }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version | replace "+" "_" }}
{{- end }}

{{- define "windlass.podLabels" -}}
app.kubernetes.io/name: windlass
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/part-of: flux
{{- end }}

{{/* Makes the binding of a ClusterRole one of the release's namespace. The roles stay: they give nothing by themselves. */}}
{{- define "windlass.namespaced" -}}
{{- if eq .object.kind "ClusterRoleBinding" }}
{{- $_ := set .object "kind" "RoleBinding" }}
{{- $_ := set .object.metadata "namespace" .root.Release.Namespace }}
{{- end }}
{{- end }}
