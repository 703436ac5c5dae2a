{{- define "database.fullname" -}}
{{- printf "%s-%s" .Release.Name .Chart.Name | trunc 52 | trimSuffix "-" -}}
{{- end -}}

{{- define "database.labels" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "database.secretName" -}}
{{- coalesce .Values.auth.existingSecret (include "database.fullname" .) -}}
{{- end -}}

{{/* The password: what is there stays, else what is given. */}}
{{- define "database.password" -}}
{{- $there := lookup "v1" "Secret" .Release.Namespace (include "database.secretName" .) -}}
{{- if and $there (hasKey $there.data "password") -}}
{{- index $there.data "password" | b64dec -}}
{{- else -}}
{{- required "auth.password is needed unless auth.existingSecret names a Secret" .Values.auth.password -}}
{{- end -}}
{{- end -}}

{{- define "database.checkPassword" -}}
{{- $password := include "database.password" . -}}
{{- if lt (len $password) 8 -}}
{{- printf "auth.password has %d characters; it needs 8" (len $password) | fail -}}
{{- end -}}
{{- if regexMatch "^[0-9]+$" $password -}}
{{- fail "auth.password is a number" -}}
{{- end -}}
{{- end -}}
