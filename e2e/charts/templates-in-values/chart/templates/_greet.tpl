{{ define "greet" }}hello {{ .Release.Name }}{{ end }}
