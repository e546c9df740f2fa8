{{/*
The shards, in order: the one that takes every object which names no other, and
those of .Values.shards. Each has a name for its objects and a selector.
*/}}
{{- define "lanyard.shards" -}}
{{- $shards := list -}}
{{- if .Values.shards -}}
{{- $shards = append $shards (dict "name" "lanyard-controller" "selector" (printf "lanyard.dev/shard notin (%s)" (join "," .Values.shards))) -}}
{{- range .Values.shards -}}
{{- $shards = append $shards (dict "name" (printf "lanyard-controller-%s" .) "selector" (printf "lanyard.dev/shard=%s" .)) -}}
{{- end -}}
{{- else -}}
{{- $shards = append $shards (dict "name" "lanyard-controller" "selector" "") -}}
{{- end -}}
{{- dict "items" $shards | toJson -}}
{{- end -}}

{{/* Labels of every object. */}}
{{- define "lanyard.labels" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
app.kubernetes.io/name: lanyard
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end -}}

{{/* Labels that select the controller's pods, of all shards. */}}
{{- define "lanyard.selectorLabels" -}}
app.kubernetes.io/name: lanyard
app.kubernetes.io/component: controller
{{- end -}}

{{- define "lanyard.image" -}}
{{- if .Values.image.digest -}}
{{ .Values.image.repository }}@{{ .Values.image.digest }}
{{- else -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end -}}
{{- end -}}

{{/* Whether the grant of the controller's own identity needs namespace labels. */}}
{{- define "lanyard.readsNamespaces" -}}
{{- with .Values.identity.controllerNamespaces -}}
{{- if and (hasKey . "selector") .selector -}}true{{- end -}}
{{- end -}}
{{- end -}}
