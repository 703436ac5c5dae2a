{{- define "kit.configmap" -}}
apiVersion: v1
kind: ConfigMap
metadata:
  name: {{ .Values.kit.prefix }}-{{ .Chart.Name }}
data:
  port: {{ .Values.kit.port | quote }}
  template: {{ .Template.Name }}
{{- end }}
