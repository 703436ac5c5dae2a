{{ define "both" }}from _z{{ end }}
{{ define "blank" }}not blank{{ end }}
