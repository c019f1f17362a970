{{- define "plegd.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" }}
{{- end }}

{{- define "plegd.fullname" -}}
{{- if .Values.fullnameOverride }}
{{- .Values.fullnameOverride | trunc 63 | trimSuffix "-" }}
{{- else if contains (include "plegd.name" .) .Release.Name }}
{{- .Release.Name | trunc 63 | trimSuffix "-" }}
{{- else }}
{{- printf "%s-%s" .Release.Name (include "plegd.name" .) | trunc 63 | trimSuffix "-" }}
{{- end }}
{{- end }}

{{- define "plegd.selectorLabels" -}}
app.kubernetes.io/name: {{ include "plegd.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "plegd.labels" -}}
{{ include "plegd.selectorLabels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" }}
{{- with .Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- define "plegd.annotations" -}}
{{- with .Values.annotations }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{- define "plegd.serviceAccountName" -}}
{{- if .Values.serviceAccount.create }}
{{- default (include "plegd.fullname" .) .Values.serviceAccount.name }}
{{- else }}
{{- default "default" .Values.serviceAccount.name }}
{{- end }}
{{- end }}

{{- define "plegd.image" -}}
{{- if .Values.image.digest }}
{{- printf "%s@%s" .Values.image.repository .Values.image.digest }}
{{- else }}
{{- printf "%s:%s" .Values.image.repository (default .Chart.AppVersion .Values.image.tag) }}
{{- end }}
{{- end }}

{{/* The runtime's socket on the node; empty: plegd looks for it. */}}
{{- define "plegd.endpoint" -}}
{{- $sockets := dict
  "containerd" "/run/containerd/containerd.sock"
  "crio" "/run/crio/crio.sock"
  "cri-dockerd" "/run/cri-dockerd.sock"
  "k3s" "/run/k3s/containerd/containerd.sock"
  "rke2" "/run/k3s/containerd/containerd.sock"
  "k0s" "/run/k0s/containerd.sock"
  "microk8s" "/var/snap/microk8s/common/run/containerd.sock" }}
{{- if .Values.runtime.endpoint }}
{{- if ne .Values.runtime.name "auto" }}
{{- fail (printf "runtime.name is %q and runtime.endpoint is %q: set one of them, and leave name at auto beside an endpoint" .Values.runtime.name .Values.runtime.endpoint) }}
{{- end }}
{{- .Values.runtime.endpoint }}
{{- else if ne .Values.runtime.name "auto" }}
{{- get $sockets .Values.runtime.name }}
{{- end }}
{{- end }}

{{/* The directory that is mounted, and never the socket: a runtime that restarts makes a new one. */}}
{{- define "plegd.runtimeDir" -}}
{{- $endpoint := include "plegd.endpoint" . }}
{{- if $endpoint }}{{ dir $endpoint }}{{ else }}/run{{ end }}
{{- end }}

{{/* Where the control socket is in the container. Below a read-only /run only a directory can be
mounted that the node has: /run/plegd is made there before the container starts. */}}
{{- define "plegd.controlDir" -}}
{{- if eq .Values.controlDir "/run/plegd" }}/run/plegd{{ else }}/control{{ end }}
{{- end }}

{{- define "plegd.webSecret" -}}
{{- default (printf "%s-web" (include "plegd.fullname" .)) .Values.web.auth.existingSecret }}
{{- end }}

{{/* As byClass in deploy/mixin/alerts.libsonnet: what an alert selects, by files/reasons.json. */}}
{{- define "plegd.reasonSelector" -}}
{{- $class := .alert | trimPrefix "PLEGReason" | lower }}
{{- $soon := join "|" .soon }}
{{- $matchers := dict
  "critical" `severity="critical"`
  "warning" (printf `severity="warning", reason=~%q` $soon)
  "lasting" (printf `severity="warning", reason!~%q` $soon) }}
{{- $here := list }}
{{- range $reason, $moved := .reasons }}{{ if eq $moved $class }}{{ $here = append $here $reason }}{{ end }}{{ end }}
{{- printf "instance:pleg_primary_reason:active{%s, reason!~%q}" (get $matchers $class) (keys .reasons | sortAlpha | join "|") }}
{{- if $here }}{{ printf " or instance:pleg_primary_reason:active{reason=~%q}" (join "|" $here) }}{{ end }}
{{- end }}
