{{ define "shared" }}child{{ end }}
{{ define "child.only" }}child's, called for {{ .Chart.Name }}{{ end }}
{{ define "child.breaks" -}}
{{ .Values.nope.deeper }}
{{- end }}
