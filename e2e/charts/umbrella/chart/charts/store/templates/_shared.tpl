{{- define "shared.image" -}}
the parent's definition wins, so nobody sees this
{{- end -}}
