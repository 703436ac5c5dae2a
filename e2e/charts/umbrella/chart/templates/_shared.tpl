{{- define "shared.image" -}}
{{ .Values.global.registry }}/{{ .Chart.Name }}:{{ .Values.tag | default .Chart.AppVersion | default "latest" }}
{{- end -}}
{{- define "shared.host" -}}
{{ .Chart.Name }}.{{ .Release.Namespace }}.{{ .Values.global.domain }}
{{- end -}}
