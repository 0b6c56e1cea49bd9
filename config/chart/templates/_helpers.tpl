{{- define "kruise-probe.labels" -}}
app.kubernetes.io/name: kruise-probe
app.kubernetes.io/component: {{ . }}
{{- end }}

{{- define "kruise-probe.versioned-labels" -}}
{{ include "kruise-probe.labels" .component }}
app.kubernetes.io/part-of: kruise-probe
app.kubernetes.io/version: {{ .root.Chart.AppVersion }}
{{- end }}

{{- define "kruise-probe.release-labels" -}}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end }}

{{- define "kruise-probe.image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end }}

{{- define "kruise-probe.gates" -}}
{{- $gates := list }}
{{- range $name, $on := .Values.featureGates }}
{{- $gates = append $gates (printf "%s=%t" $name $on) }}
{{- end }}
{{- with $gates }}
- --feature-gates={{ join "," . }}
{{- end }}
{{- end }}

{{- define "kruise-probe.locked-down" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end }}

{{- define "kruise-probe.token" -}}
name: token
projected:
  sources:
    # Not 3607 seconds, which the API server would extend to a year.
    - serviceAccountToken: {path: token, expirationSeconds: 3600}
    - configMap:
        name: kube-root-ca.crt
        items: [{key: ca.crt, path: ca.crt}]
    - downwardAPI:
        items: [{path: namespace, fieldRef: {fieldPath: metadata.namespace}}]
{{- end }}

{{- define "kruise-probe.token-mount" -}}
name: token
mountPath: /var/run/secrets/kubernetes.io/serviceaccount
readOnly: true
{{- end }}
