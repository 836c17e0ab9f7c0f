{{- define "windlass.name" -}}
{{- if contains "windlass" .Release.Name -}}
{{ .Release.Name | trunc 63 | trimSuffix "-" }}
{{- else -}}
{{ printf "%s-windlass-controller" .Release.Name | trunc 63 | trimSuffix "-" }}
{{- end -}}
{{- end -}}

{{- define "windlass.selector" -}}
app.kubernetes.io/name: windlass-controller
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "windlass.labels" -}}
{{ include "windlass.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
{{- end -}}
