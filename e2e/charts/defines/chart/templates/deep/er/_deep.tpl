{{ define "both" }}from deep{{ end }}
{{ define "deep" }}deep{{ end }}
