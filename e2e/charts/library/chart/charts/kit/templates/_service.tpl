{{- define "kit.base" }}
apiVersion: v1
kind: Service
metadata:
  name: {{ .Release.Name }}
  labels:
    app: {{ .Chart.Name }}
spec:
  type: ClusterIP
  ports: []
{{- end }}
{{- define "kit.service" -}}
{{- $top := first . -}}
{{- $own := fromYaml (include (index . 1) $top) | default dict -}}
{{- $base := fromYaml (include "kit.base" $top) | default dict -}}
{{- toYaml (merge $own $base) -}}
{{- end }}
