{{- define "tree" -}}
{{- range $name, $below := . }}
{{ $name }}:
{{- include "tree" $below | nindent 2 }}
{{- end }}
{{- end -}}
{{- define "direct" -}}{{ include "direct" . }}{{- end -}}
{{- define "ping" -}}{{ include "pong" . }}{{- end -}}
{{- define "pong" -}}{{ include "ping" . }}{{- end -}}
{{- define "down" -}}{{ if gt (int .) 0 }}{{ include "down" (sub (int .) 1) }}{{ else }}bottom{{ end }}{{- end -}}
