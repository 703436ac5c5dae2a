{{ define "node.name" }}{{ .Chart.Name }}-{{ .Values.colour }}{{ end }}
