{{- define "demands.check" -}}
{{- $faults := list -}}
{{- range $host := .Values.hosts -}}
{{- if not (regexMatch "^[a-z0-9.-]+$" $host) -}}
{{- $faults = append $faults (printf "hosts: %q is no name" $host) -}}
{{- end -}}
{{- end -}}
{{- if and .Values.tls.cert .Values.tls.existing -}}
{{- $faults = append $faults "tls: cert and existing exclude each other" -}}
{{- end -}}
{{- if $faults -}}
{{- printf "\n\nVALUES VALIDATION:\n%s" (join "\n" $faults) | fail -}}
{{- end -}}
{{- end -}}
