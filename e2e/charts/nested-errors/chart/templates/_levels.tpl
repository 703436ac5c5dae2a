{{- define "level.one" -}}
one: {{ include "level.two" (dict "root" . "n" 2) }}
{{- end -}}

{{- define "level.two" -}}
  {{- range $i, $item := .root.Values.items -}}
    {{ include "level.three" (dict "item" $item "root" $.root) }}
  {{- end -}}
{{- end -}}

{{- define "level.three" -}}
{{- $way := .root.Values.way -}}
{{- if eq $way "fail" }}{{ fail (printf "item %s is not allowed" .item.name) }}{{ end -}}
{{- if eq $way "required" }}{{ required "an item needs a spec" .item.spec }}{{ end -}}
{{- if eq $way "function" }}{{ .item.name | toDate "2006" | date }}{{ end -}}
{{ .item.spec.size }}
{{- end -}}
{{- define "level.template" -}}
{{ template "level.one" . }}
{{- end -}}
