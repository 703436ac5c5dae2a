{{- define "services.container" -}}
{{- $service := .service -}}
- name: {{ .name }}
  image: {{ printf "%s:%s" $service.image.repository $service.image.tag | quote }}
  {{- with $service.env }}
  env:
    {{- range $key := keys . | sortAlpha }}
    - name: {{ $key }}
      value: {{ tpl (get $service.env $key) $.root | quote }}
    {{- end }}
  {{- end }}
  {{- if $service.ports }}
  ports:
    {{- range $service.ports }}
    - { name: {{ .name }}, containerPort: {{ .port }}, protocol: {{ .protocol | default "TCP" }} }
    {{- end }}
  {{- end }}
  {{- range $kind, $probe := $service.probes }}
  {{- if $probe }}
  {{ $kind }}Probe:
    httpGet: { path: {{ $probe.path }}, port: {{ (first ($service.ports | default (list (dict "name" "http")))).name }} }
    {{- with $probe.delay }}
    initialDelaySeconds: {{ . }}
    {{- end }}
  {{- end }}
  {{- end }}
  {{- if $service.volumes }}
  volumeMounts:
    {{- range $volume, $_ := $service.volumes }}
    - { name: {{ $volume }}, mountPath: /{{ $volume }} }
    {{- end }}
  {{- end }}
{{- end -}}
{{- define "services.pod" -}}
spec:
  containers:
    {{- include "services.container" . | nindent 4 }}
  {{- with .service.volumes }}
  volumes:
    {{- range $volume, $source := . }}
    - name: {{ $volume }}
      {{- tpl (toYaml $source) $.root | nindent 6 }}
    {{- end }}
  {{- end }}
{{- end -}}
