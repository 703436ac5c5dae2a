{{ define "shared" }}parent a{{ end }}
{{ define "both" }}from _a{{ end }}
