{{- define "help" -}}
{{- with .Values }}
{{- end -}}
{{- end
