{{ define "child.self" }}{{ .Chart.Name }}/{{ .Values.own }}/{{ .Values.global.colour }}{{ end }}
