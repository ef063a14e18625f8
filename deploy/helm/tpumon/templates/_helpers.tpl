{{/* The name of the release's objects; room for "-headless". */}}
{{- define "tpumon.fullname" -}}
{{- $name := contains "tpumon" .Release.Name | ternary .Release.Name (printf "%s-tpumon" .Release.Name) -}}
{{- $name | trunc 54 | trimSuffix "-" -}}
{{- end }}

{{/* Those of one process: dict "root" $ "name" NAME. */}}
{{- define "tpumon.selector" -}}
app.kubernetes.io/name: {{ .name }}
app.kubernetes.io/instance: {{ .root.Release.Name }}
{{- end }}

{{- define "tpumon.labels" -}}
{{ include "tpumon.selector" . }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
helm.sh/chart: {{ .root.Chart.Name }}-{{ .root.Chart.Version }}
{{- with .root.Values.labels }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- define "tpumon.podLabels" -}}
{{ include "tpumon.selector" . }}
tpumon-scrape: "true"
{{- with .root.Values.labels }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- define "tpumon.image" -}}
{{- with .Values.image -}}
{{ required "image.repository: build deploy/Containerfile and push it; no image is published" .repository }}
{{- if .digest }}@{{ .digest }}{{ else }}:{{ .tag | default $.Chart.AppVersion }}{{ end }}
{{- end }}
{{- end }}

{{/* Of a pod: dict "root" $ "its" VALUES. */}}
{{- define "tpumon.scheduling" -}}
automountServiceAccountToken: false
enableServiceLinks: false  # a Service called tpumon would set TPUMON_PORT, which is an option
terminationGracePeriodSeconds: 10
{{- with .root.Values.imagePullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .its.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- with .its.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .its.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{/* The options that values give, behind a process' own. */}}
{{- define "tpumon.args" -}}
{{- if .webConfig }}
- --web-config
- /etc/tpumon-web/web.yml
{{- end }}
{{- range .args }}
- {{ . | quote }}
{{- end }}
{{- end }}

{{/* Of a container. /-/healthy and /-/ready would ask for TLS and a password like every page. */}}
{{- define "tpumon.container" -}}
{{- with .env }}
env:
  {{- toYaml . | nindent 2 }}
{{- end }}
livenessProbe:
  {{- if .webConfig }}
  tcpSocket: {port: tpumon}
  {{- else }}
  httpGet: {path: /-/healthy, port: tpumon}
  {{- end }}
  periodSeconds: 30
  timeoutSeconds: 5
readinessProbe:
  {{- if .webConfig }}
  tcpSocket: {port: tpumon}
  {{- else }}
  httpGet: {path: /-/ready, port: tpumon}
  {{- end }}
resources:
  {{- toYaml .resources | nindent 2 }}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities: {drop: [ALL]}
{{- end }}

{{/* Whether to make an object of Prometheus' operator: dict "root" $ "wanted" VALUE "kind" KIND. */}}
{{- define "tpumon.operator" -}}
{{- $known := .root.Capabilities.APIVersions.Has (printf "monitoring.coreos.com/v1/%s" .kind) -}}
{{- if and .root.Values.monitoring.enabled (eq (toString .wanted) "auto" | ternary $known .wanted) }}true{{ end -}}
{{- end }}
