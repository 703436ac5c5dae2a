{{ define "x" }}1{{ end }}
{{ define "x" }}2{{ end }}
