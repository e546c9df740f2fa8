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
{{- $repository := required "image.repository is required, and no image is published: build one with the Containerfile of Lanyard's repository and name where you pushed it" .Values.image.repository -}}
{{- if .Values.image.digest -}}
{{ $repository }}@{{ .Values.image.digest }}
{{- else -}}
{{ $repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end -}}
{{- end -}}

{{/* Whether the grant of the controller's own identity needs namespace labels. */}}
{{- define "lanyard.readsNamespaces" -}}
{{- with .Values.identity.controllerNamespaces -}}
{{- if and (hasKey . "selector") .selector -}}true{{- end -}}
{{- end -}}
{{- end -}}

{{/* The bytes of a quantity, which values.schema.json bounds to these units. */}}
{{- define "lanyard.bytes" -}}
{{- $units := dict "" 1 "k" 1000 "M" 1000000 "G" 1000000000 "T" 1000000000000 "Ki" 1024 "Mi" 1048576 "Gi" 1073741824 "Ti" 1099511627776 -}}
{{- mul (regexFind "^[0-9]+" .) (get $units (regexFind "[A-Za-z]*$" .)) -}}
{{- end -}}

{{/*
Refuses a store that would fill its volume: a full disk stops all tenants, a
full store none. And a share that is more than the store: one tenant would fill
it for all.
*/}}
{{- define "lanyard.checkSizes" -}}
{{- $store := .Values.artifacts.storeMaxSize -}}
{{- $volume := .Values.artifacts.volume.size -}}
{{- if ge (include "lanyard.bytes" $store | int64) (include "lanyard.bytes" $volume | int64) -}}
{{- fail (printf "artifacts.storeMaxSize (%s) must be less than artifacts.volume.size (%s)" $store $volume) -}}
{{- end -}}
{{- $namespace := .Values.artifacts.namespaceMaxSize -}}
{{- if gt (include "lanyard.bytes" $namespace | int64) (include "lanyard.bytes" $store | int64) -}}
{{- fail (printf "artifacts.namespaceMaxSize (%s) must not be more than artifacts.storeMaxSize (%s): it would bound nobody" $namespace $store) -}}
{{- end -}}
{{- end -}}
