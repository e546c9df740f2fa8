{{/* First part of every name. */}}
{{- define "lanyard.fullname" -}}
{{- .Values.fullnameOverride | default "lanyard" -}}
{{- end -}}

{{/*
The shards of the controller: first the shard for all objects that name no other
shard, then the shards of .Values.shards. Each has a name for its objects and a
selector. A StatefulSet's name has at most 52 characters, because its pods have the
name and a hash of ten characters in one label.
*/}}
{{- define "lanyard.shards" -}}
{{- $first := printf "%s-controller" (include "lanyard.fullname" .) -}}
{{- $shards := list -}}
{{- if .Values.shards -}}
{{- $shards = append $shards (dict "name" $first "selector" (printf "lanyard.dev/shard notin (%s)" (join "," .Values.shards))) -}}
{{- range .Values.shards -}}
{{- $name := printf "%s-%s" $first . -}}
{{- if gt (len $name) 52 -}}
{{- fail (printf "the name %s has more than 52 characters: shorten fullnameOverride or the shard's name" $name) -}}
{{- end -}}
{{- $shards = append $shards (dict "name" $name "selector" (printf "lanyard.dev/shard=%s" .)) -}}
{{- end -}}
{{- else -}}
{{- $shards = append $shards (dict "name" $first "selector" "") -}}
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

{{/* Labels that select all pods of a component, such as "controller". */}}
{{- define "lanyard.selectorLabels" -}}
app.kubernetes.io/name: lanyard
app.kubernetes.io/component: {{ . }}
{{- end -}}

{{/*
Name of a component's ServiceAccount. Takes a dict with root, component and values, as
lanyard.podTemplate does. There is no default for an account that the chart does not
create: the account "default" would give its permissions to every pod of the namespace.
*/}}
{{- define "lanyard.accountName" -}}
{{- $account := .values.serviceAccount -}}
{{- if not $account.create -}}
{{- if not $account.name -}}
{{- fail "serviceAccount.name is required if serviceAccount.create is false: name an existing ServiceAccount of the release's namespace" -}}
{{- end -}}
{{- if $account.annotations -}}
{{- fail (printf "serviceAccount.annotations need serviceAccount.create: annotate the ServiceAccount %s yourself" $account.name) -}}
{{- end -}}
{{- end -}}
{{- $account.name | default (printf "%s-%s" (include "lanyard.fullname" .root) .component) -}}
{{- end -}}

{{/* ServiceAccount of a component, unless it exists. Takes what lanyard.accountName does. */}}
{{- define "lanyard.account" -}}
{{- if .values.serviceAccount.create -}}
apiVersion: v1
kind: ServiceAccount
metadata:
  name: {{ include "lanyard.accountName" . }}
  namespace: {{ .root.Release.Namespace }}
  labels:
    {{- include "lanyard.labels" .root | nindent 4 }}
  {{- with .values.serviceAccount.annotations }}
  annotations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
automountServiceAccountToken: false
{{- end -}}
{{- end -}}

{{/*
The fields of a binding that bind a role to a component's ServiceAccount. Takes a list:
what lanyard.accountName takes, then the role's kind and name.
*/}}
{{- define "lanyard.binding" -}}
{{- $component := first . -}}
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: {{ index . 1 }}
  name: {{ index . 2 }}
subjects:
  - kind: ServiceAccount
    name: {{ include "lanyard.accountName" $component }}
    namespace: {{ $component.root.Release.Namespace }}
{{- end -}}

{{/*
Pod template of a component. Its pods have one container, which runs lanyard-<program>
and answers probes at the port health. Takes a dict:

  root       context of the chart; its values have the image and the security contexts
  component  such as "controller"
  program    the program without its prefix; absent: the same as component
  instance   name of the StatefulSet or Deployment
  values     values of the component: serviceAccount, resources, extraArgs, extraEnv,
             volumes, volumeMounts, podAnnotations, podLabels, nodeSelector, tolerations,
             affinity and topologySpreadConstraints
  args       arguments of the program; those of extraArgs follow
  env        variables of the program; those of extraEnv follow; absent: none
  ports      number of each of the container's ports by name
  volumes    volumes of the pod, before those of the values
  mounts     volume mounts of the container, before those of the values
  serves     true for a component that answers requests of a Service; absent: false
*/}}
{{- define "lanyard.podTemplate" -}}
{{- $shared := .root.Values -}}
metadata:
  labels:
    {{- $labels := include "lanyard.labels" .root | fromYaml }}
    {{- $labels = merge $labels (include "lanyard.selectorLabels" .component | fromYaml) (dict "app.kubernetes.io/instance" .instance) }}
    {{- if hasKey .values.serviceAccount.annotations "azure.workload.identity/client-id" }}
    {{- /* Azure's webhook gives the identity of the ServiceAccount only to pods with this label. */}}
    {{- $labels = set $labels "azure.workload.identity/use" "true" }}
    {{- end }}
    {{- merge $labels .values.podLabels | toYaml | nindent 4 }}
  {{- with .values.podAnnotations }}
  annotations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
spec:
  serviceAccountName: {{ include "lanyard.accountName" . }}
  automountServiceAccountToken: true
  enableServiceLinks: false
  terminationGracePeriodSeconds: 60
  {{- with $shared.imagePullSecrets }}
  imagePullSecrets:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with $shared.priorityClassName }}
  priorityClassName: {{ . }}
  {{- end }}
  {{- with $shared.podSecurityContext }}
  securityContext:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with $shared.dnsConfig }}
  dnsConfig:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with $shared.hostAliases }}
  hostAliases:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  containers:
    - name: {{ .component }}
      image: {{ include "lanyard.image" .root | quote }}
      imagePullPolicy: {{ $shared.image.pullPolicy }}
      # The command does not depend on the image's entrypoint.
      command: [/lanyard-{{ get . "program" | default .component }}]
      args:
        {{- concat .args .values.extraArgs | toYaml | nindent 8 }}
      {{- $env := list }}
      {{- if dig "limits" "memory" "" .values.resources }}
      {{- /* Makes the garbage collector work harder before the limit is reached. */}}
      {{- $env = append $env (dict "name" "GOMEMLIMIT" "valueFrom" (dict "resourceFieldRef" (dict "resource" "limits.memory"))) }}
      {{- end }}
      {{- with concat $env (get . "env" | default list) .values.extraEnv }}
      env:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      ports:
        {{- range $name, $port := .ports }}
        - name: {{ $name }}
          containerPort: {{ $port }}
          protocol: TCP
        {{- end }}
      {{- include "lanyard.probes" . | nindent 6 }}
      {{- if get . "serves" }}
      # Requests come until every node and API server knows that the pod ends.
      lifecycle:
        preStop:
          sleep:
            seconds: 10
      {{- end }}
      {{- with $shared.securityContext }}
      securityContext:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      {{- with .values.resources }}
      resources:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      {{- with concat .mounts .values.volumeMounts }}
      volumeMounts:
        {{- toYaml . | nindent 8 }}
      {{- end }}
  {{- with concat .volumes .values.volumes }}
  volumes:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- range $field := list "nodeSelector" "tolerations" "affinity" "topologySpreadConstraints" }}
  {{- with get $.values $field }}
  {{ $field }}:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- end }}
{{- end -}}

{{/*
Deployment of a component, with its ServiceAccount and its PodDisruptionBudget. Takes what
lanyard.podTemplate does, without instance; the values also have replicas.
*/}}
{{- define "lanyard.deployment" -}}
{{- $name := printf "%s-%s" (include "lanyard.fullname" .root) .component -}}
{{- with include "lanyard.account" . }}
{{- . }}
---
{{ end -}}
apiVersion: apps/v1
kind: Deployment
metadata:
  name: {{ $name }}
  namespace: {{ .root.Release.Namespace }}
  labels:
    {{- include "lanyard.labels" .root | nindent 4 }}
spec:
  replicas: {{ .values.replicas | int64 }}
  selector:
    matchLabels:
      {{- include "lanyard.selectorLabels" .component | nindent 6 }}
  template:
    {{- include "lanyard.podTemplate" (set . "instance" $name) | nindent 4 }}
---
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata:
  name: {{ $name }}
  namespace: {{ .root.Release.Namespace }}
  labels:
    {{- include "lanyard.labels" .root | nindent 4 }}
spec:
  maxUnavailable: 1
  selector:
    matchLabels:
      {{- include "lanyard.selectorLabels" .component | nindent 6 }}
{{- end -}}

{{/* "true" if the release has lanyard-identity-controller. */}}
{{- define "lanyard.keepsIdentities" -}}
{{- if or .Values.issuer.url .Values.identity.awsIdentities .Values.hub.kubeconfigSecret -}}true{{- end -}}
{{- end -}}

{{/*
Refuses values with which lanyard-controller could take static keys of AWS, or the identity of
lanyard-identity-controller. See "Static keys of AWS" in docs/security.md.
*/}}
{{- define "lanyard.checkAWSIdentities" -}}
{{- $namespaces := .Values.rbac.tenantNamespaces -}}
{{- if kindIs "slice" $namespaces -}}
{{- range list .Release.Namespace "kube-system" -}}
{{- if has . $namespaces -}}
{{- fail (printf "rbac.tenantNamespaces must not have %s if identity.awsIdentities is set: with rights there, lanyard-controller could act as lanyard-identity-controller" .) -}}
{{- end -}}
{{- end -}}
{{- else if not .Values.identity.acceptControllerReadsAllSecrets -}}
{{- fail "identity.awsIdentities is set, and lanyard-controller could read the static keys of AWS identities, because rbac.tenantNamespaces is null: set rbac.tenantNamespaces to the tenants' namespaces, or to [] and bind the tenant roles where tenants come, or accept this with identity.acceptControllerReadsAllSecrets=true" -}}
{{- end -}}
{{- end -}}

{{/* The namespace of Secrets with static keys. */}}
{{- define "lanyard.secretNamespace" -}}
{{- $name := .Values.identity.secretNamespace | default (printf "%s-identities" (include "lanyard.fullname" .)) -}}
{{- $tenants := .Values.rbac.tenantNamespaces -}}
{{- if or (eq $name .Release.Namespace) (eq $name "kube-system") -}}
{{- fail (printf "identity.secretNamespace must not be %s: name a namespace of its own, because whoever keeps identities may read its Secrets" $name) -}}
{{- end -}}
{{- if and (kindIs "slice" $tenants) (has $name ($tenants | default list)) -}}
{{- fail (printf "rbac.tenantNamespaces must not have %s, the namespace of static keys: lanyard-controller could read them" $name) -}}
{{- end -}}
{{- $name -}}
{{- end -}}

{{/* Names of all components of the release, as a JSON array. */}}
{{- define "lanyard.components" -}}
{{- $names := list "controller" -}}
{{- if include "lanyard.tokenServer" . -}}
{{- $names = append $names "token-server" -}}
{{- end -}}
{{- if or .Values.issuer.url .Values.spiffe.issuer -}}
{{- $names = append $names "discovery" -}}
{{- end -}}
{{- if include "lanyard.keepsIdentities" . -}}
{{- $names = append $names "identity-controller" -}}
{{- end -}}
{{- if .Values.apply.enabled -}}
{{- $names = append $names "apply-controller" -}}
{{- end -}}
{{- if .Values.discovery.mirrorClusterIssuer.url -}}
{{- $names = append $names "discovery-mirror" -}}
{{- end -}}
{{- toJson $names -}}
{{- end -}}

{{/*
What tokens of the issuer are like, for the programs that make tokens and that say which
tokens an identity gets. Takes the root context.
*/}}
{{- define "lanyard.issuerArgs" -}}
{{- with .Values.issuer.url }}
- --issuer={{ . }}
{{- end }}
{{- with .Values.issuer.apiAudiences }}
- {{ printf "--api-audiences=%s" (join "," .) | quote }}
{{- end }}
- --token-min-duration={{ .Values.issuer.tokens.minDuration }}
- --token-default-duration={{ .Values.issuer.tokens.defaultDuration }}
- --token-max-duration={{ .Values.issuer.tokens.maxDuration }}
{{- end -}}

{{/* Arguments that all programs but the controller share. Takes the root context. */}}
{{- define "lanyard.sharedArgs" -}}
- --metrics-address=:8080
- --health-address=:8081
- --log-level={{ .Values.log.level }}
- --log-format={{ .Values.log.format }}
{{- end -}}

{{/* Probes of a container. A program may take five minutes to start: the controller counts the content of its store. */}}
{{- define "lanyard.probes" -}}
startupProbe:
  httpGet:
    path: /healthz
    port: health
  periodSeconds: 5
  timeoutSeconds: 5
  failureThreshold: 60
livenessProbe:
  httpGet:
    path: /healthz
    port: health
  periodSeconds: 10
  timeoutSeconds: 5
readinessProbe:
  httpGet:
    path: /readyz
    port: health
  periodSeconds: 5
  timeoutSeconds: 5
{{- end -}}

{{- define "lanyard.image" -}}
{{- $repository := required "image.repository is required, because no image is published: build an image with the Containerfile of Lanyard's repository, push it, and set image.repository to its name" .Values.image.repository -}}
{{- if .Values.image.digest -}}
{{ $repository }}@{{ .Values.image.digest }}
{{- else -}}
{{ $repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end -}}
{{- end -}}

{{/* "true" if the token server is installed: for the issuer, for SPIFFE, or for both. */}}
{{- define "lanyard.tokenServer" -}}
{{- if or .Values.issuer.url (.Values.spiffe).trustDomain -}}true{{- end -}}
{{- end -}}

{{/* "true" if a grant of a controller's own identity needs namespace labels. Takes the grant, which may be null. */}}
{{- define "lanyard.selectsNamespaces" -}}
{{- with . -}}
{{- if and (hasKey . "selector") .selector -}}true{{- end -}}
{{- end -}}
{{- end -}}

{{/* The bytes of a quantity. values.schema.json allows only these units. */}}
{{- define "lanyard.bytes" -}}
{{- $units := dict "" 1 "k" 1000 "M" 1000000 "G" 1000000000 "T" 1000000000000 "Ki" 1024 "Mi" 1048576 "Gi" 1073741824 "Ti" 1099511627776 -}}
{{- mul (regexFind "^[0-9]+" .) (get $units (regexFind "[A-Za-z]*$" .)) -}}
{{- end -}}

{{/*
Refuses a store that could fill its volume: a full disk stops all tenants, but a
full store stops none. Also refuses a namespace's share that is larger than the
store: one tenant could then fill the store for all.
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

{{/*
Refuses values with which the signing keys would not be safe, or which contradict each
other. See "Rights" in docs/security.md.
*/}}
{{- define "lanyard.checkIssuer" -}}
{{- if and .Values.hub.kubeconfigSecret .Values.issuer.url -}}
{{- fail "hub.kubeconfigSecret and issuer.url exclude each other: the WorkloadIdentities of a cluster are at its hub, or in the cluster itself" -}}
{{- end -}}
{{- if ne (empty .Values.hub.kubeconfigSecret) (empty .Values.hub.namespaces) -}}
{{- fail "hub.kubeconfigSecret and hub.namespaces need each other: without a namespace at the hub, no namespace of this cluster has identities" -}}
{{- end -}}
{{- if and .Values.issuer.spokeUserPrefix (not .Values.issuer.url) -}}
{{- fail "issuer.spokeUserPrefix needs issuer.url: only a cluster with an issuer can be a hub" -}}
{{- end -}}
{{- if and .Values.hub.kubeconfigSecret (not .Values.identity.bindings) -}}
{{- fail "hub.kubeconfigSecret needs identity.bindings: only bindings have identities of a hub" -}}
{{- end -}}
{{- if and .Values.identity.bindings (not .Values.issuer.url) (not .Values.hub.kubeconfigSecret) -}}
{{- fail "identity.bindings needs issuer.url or hub.kubeconfigSecret: bindings have tokens of the issuer, or of the hub's" -}}
{{- end -}}
{{- if and (not .Values.spiffe.trustDomain) (or .Values.spiffe.issuer .Values.spiffe.secretName .Values.spiffe.kmsKey .Values.spiffe.probeURL) -}}
{{- fail "spiffe.issuer, spiffe.secretName, spiffe.kmsKey and spiffe.probeURL need spiffe.trustDomain" -}}
{{- end -}}
{{- if ne (empty .Values.spiffe.broker.endpoint) (empty .Values.spiffe.broker.id) -}}
{{- fail "spiffe.broker.endpoint and spiffe.broker.id need each other: whoever answers at the endpoint must prove that it is the broker" -}}
{{- end -}}
{{- if and .Values.spiffe.trustDomain .Values.spiffe.broker.id (eq .Values.spiffe.trustDomain (urlParse .Values.spiffe.broker.id).host) -}}
{{- fail (printf "spiffe.trustDomain and spiffe.broker.id both name the trust domain %s: two issuers in one trust domain can give one SPIFFE ID to two objects; remove spiffe.trustDomain if SPIRE issues the SVIDs, or else spiffe.broker.endpoint and spiffe.broker.id" .Values.spiffe.trustDomain) -}}
{{- end -}}
{{- if and .Values.spiffe.kmsKey (not .Values.spiffe.secretName) -}}
{{- fail "spiffe.kmsKey needs spiffe.secretName, the Secret with the CA's certificate" -}}
{{- end -}}
{{- if or (include "lanyard.tokenServer" .) .Values.hub.kubeconfigSecret -}}
{{- $cause := ternary "issuer.url" "spiffe.trustDomain" (ne .Values.issuer.url "") -}}
{{- $kept := "the signing keys" -}}
{{- if .Values.hub.kubeconfigSecret -}}
{{- $cause = "hub.kubeconfigSecret" -}}
{{- $kept = "the credential for the hub" -}}
{{- end -}}
{{- $namespaces := .Values.rbac.tenantNamespaces -}}
{{- if kindIs "slice" $namespaces -}}
{{- range list .Release.Namespace "kube-system" -}}
{{- if has . $namespaces -}}
{{- fail (printf "rbac.tenantNamespaces must not have %s if %s is set: with rights there, lanyard-controller could take %s" . $cause $kept) -}}
{{- end -}}
{{- end -}}
{{- else if not .Values.issuer.acceptControllerReadsAllSecrets -}}
{{- fail (printf "%s is set, and lanyard-controller could read %s, because rbac.tenantNamespaces is null: set rbac.tenantNamespaces to the tenants' namespaces, or to [] and bind the tenant role where tenants come, or accept this with issuer.acceptControllerReadsAllSecrets=true" $cause $kept) -}}
{{- end -}}
{{- if and .Values.issuer.keys.confirmManually (or .Values.issuer.keys.probeURL .Values.spiffe.probeURL) -}}
{{- fail "issuer.keys.confirmManually and a probeURL (issuer.keys.probeURL, spiffe.probeURL) exclude each other: remove one of them" -}}
{{- end -}}
{{- if and .Values.issuer.keys.awsRegion (ne .Values.issuer.keys.store "aws-kms") -}}
{{- fail "issuer.keys.awsRegion is for keys in AWS KMS: set issuer.keys.store to aws-kms, or remove the region" -}}
{{- end -}}
{{- if and .Values.issuer.url (eq .Values.issuer.url .Values.discovery.mirrorClusterIssuer.url) -}}
{{- fail "issuer.url and discovery.mirrorClusterIssuer.url must differ: the documents of two issuers cannot have one URL" -}}
{{- end -}}
{{- if and .Values.spiffe.issuer (has .Values.spiffe.issuer (list .Values.issuer.url .Values.discovery.mirrorClusterIssuer.url)) -}}
{{- fail "spiffe.issuer must differ from issuer.url and from discovery.mirrorClusterIssuer.url: a token of one issuer must not be taken for a token of another" -}}
{{- end -}}
{{- if and .Values.spiffe.probeURL (not .Values.spiffe.issuer) -}}
{{- fail "spiffe.probeURL needs spiffe.issuer, whose documents are read there" -}}
{{- end -}}
{{- end -}}
{{- end -}}
