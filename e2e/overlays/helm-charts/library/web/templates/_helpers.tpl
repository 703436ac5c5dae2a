{{- define "web.name" -}}
{{ .Release.Name | trunc 20 }}-{{ .Chart.Name }}
{{- end }}
