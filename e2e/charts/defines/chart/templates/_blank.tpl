{{ define "blank" }}

{{ end }}
