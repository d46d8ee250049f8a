{{/* Names, labels and the sidecar's configuration, which several templates need. */}}

{{- define "headrace.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" -}}
{{- end -}}

{{/* The name of all objects. 46 characters leave room for a suffix of ours and for the one of Kubernetes. */}}
{{- define "headrace.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 46 | trimSuffix "-" -}}
{{- else if contains (include "headrace.name" .) .Release.Name -}}
{{- .Release.Name | trunc 46 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name (include "headrace.name" .) | trunc 46 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "headrace.selectorLabels" -}}
app.kubernetes.io/name: {{ include "headrace.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "headrace.labels" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" }}
{{ include "headrace.selectorLabels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
app.kubernetes.io/part-of: headrace
{{- with .Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- define "headrace.serviceAccountName" -}}
{{- if .Values.serviceAccount.create -}}
{{- default (include "headrace.fullname" .) .Values.serviceAccount.name -}}
{{- else -}}
{{- default "default" .Values.serviceAccount.name -}}
{{- end -}}
{{- end -}}

{{- define "headrace.image" -}}
{{- if .Values.image.digest -}}
{{- printf "%s@%s" .Values.image.repository .Values.image.digest -}}
{{- else -}}
{{- printf "%s:%s" .Values.image.repository (default .Chart.AppVersion .Values.image.tag) -}}
{{- end -}}
{{- end -}}

{{- define "headrace.configMap" -}}
{{- default (printf "%s-config" (include "headrace.fullname" .)) .Values.existingConfigMap -}}
{{- end -}}

{{/* headrace.yaml: what the user gives, and the places inside the container, which are the chart's. */}}
{{- define "headrace.config" -}}
{{- $config := deepCopy .Values.config -}}
{{- range $key := list "state" "views" "http" -}}
{{- if hasKey $config $key -}}
{{- fail (printf "config.%s is set by the chart: take it out (see persistence, views and http of the values)" $key) -}}
{{- end -}}
{{- end -}}
{{- $_ := set $config "state" "/var/lib/headrace/state" -}}
{{- $_ := set $config "views" "/etc/headrace/views" -}}
{{- $_ := set $config "http" (printf "0.0.0.0:%d" (int .Values.http.port)) -}}
{{- $seconds := dig "shutdown" "seconds" 0 $config -}}
{{- if and (not (kindIs "string" $seconds)) (ge (float64 $seconds) (float64 .Values.terminationGracePeriodSeconds)) -}}
{{- fail (printf "config.shutdown.seconds (%v) must be less than terminationGracePeriodSeconds (%v), after which the pod is killed" $seconds .Values.terminationGracePeriodSeconds) -}}
{{- end -}}
{{- if not (hasKey $config "shutdown") -}}
{{- $_ := set $config "shutdown" (dict "seconds" (sub (int .Values.terminationGracePeriodSeconds) 10)) -}}
{{- end -}}
{{- toYaml $config -}}
{{- end -}}

{{/* The data of the ConfigMap of views: texts as they are, maps as YAML. */}}
{{- define "headrace.views" -}}
{{- $data := dict -}}
{{- range $name, $file := .Values.views.files -}}
{{- $_ := set $data $name (kindIs "string" $file | ternary $file (toYaml $file)) -}}
{{- end -}}
{{- toYaml $data -}}
{{- end -}}

{{/* What the sidecar and the test pod of `doctor` have in common. */}}
{{- define "headrace.environment" -}}
{{- with .Values.extraEnv }}
env:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- if or .Values.existingSecret .Values.extraEnvFrom }}
envFrom:
  {{- with .Values.existingSecret }}
  - secretRef:
      name: {{ . }}
  {{- end }}
  {{- with .Values.extraEnvFrom }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end }}
{{- end -}}

{{- define "headrace.mounts" -}}
- name: config
  mountPath: /etc/headrace/config
  readOnly: true
- name: views
  mountPath: /etc/headrace/views
  readOnly: true
{{- if .Values.existingSecretFiles }}
- name: secrets
  mountPath: /etc/headrace/secrets
  readOnly: true
{{- end }}
- name: tmp
  mountPath: /tmp
{{- with .Values.extraVolumeMounts }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- define "headrace.volumes" -}}
- name: config
  configMap:
    name: {{ include "headrace.configMap" . }}
- name: views
  projected:
    sources:
      - configMap:
          name: {{ include "headrace.fullname" . }}-views
      {{- range .Values.views.existingConfigMaps }}
      - configMap:
          name: {{ . }}
      {{- end }}
{{- with .Values.existingSecretFiles }}
- name: secrets
  secret:
    secretName: {{ . }}
    defaultMode: 0440
{{- end }}
- name: tmp
  emptyDir:
    sizeLimit: {{ .Values.tmp.sizeLimit }}
{{- with .Values.extraVolumes }}
{{ toYaml . }}
{{- end }}
{{- end -}}
