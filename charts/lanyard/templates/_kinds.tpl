{{- /* Rules about kinds, made by make generate from the table of internal/kinds. The argument is the verbs. */}}
{{- /* kinds whose objects fetch */}}
{{- define "lanyard.kinds.fetching" -}}
- apiGroups: [toolkit.lanyard.dev]
  resources: [buckets, imagerepositories, ocirepositories]
  verbs: [{{ . }}]
{{- end }}
{{- /* their statuses */}}
{{- define "lanyard.kinds.fetching.status" -}}
- apiGroups: [toolkit.lanyard.dev]
  resources: [buckets/status, imagerepositories/status, ocirepositories/status]
  verbs: [{{ . }}]
{{- end }}
{{- /* kinds whose objects keep artifacts */}}
{{- define "lanyard.kinds.keeping" -}}
- apiGroups: [toolkit.lanyard.dev]
  resources: [buckets, ocirepositories]
  verbs: [{{ . }}]
{{- end }}
{{- /* kinds whose objects fetch and keep no artifact */}}
{{- define "lanyard.kinds.scanning" -}}
- apiGroups: [toolkit.lanyard.dev]
  resources: [imagerepositories]
  verbs: [{{ . }}]
{{- end }}
{{- /* kinds whose objects can have SVIDs */}}
{{- define "lanyard.kinds.proving" -}}
- apiGroups: [toolkit.lanyard.dev]
  resources: [imagerepositories, ocirepositories]
  verbs: [{{ . }}]
{{- end }}
{{- /* the requests for their SVIDs */}}
{{- define "lanyard.kinds.proving.svid" -}}
- apiGroups: [token.lanyard.dev]
  resources: [imagerepositories/svid, ocirepositories/svid]
  verbs: [{{ . }}]
{{- end }}
{{- /* kinds whose objects tokens can name, or that can have SVIDs */}}
{{- define "lanyard.kinds.contexts" -}}
- apiGroups: [toolkit.lanyard.dev]
  resources: [buckets, imagerepositories, ocirepositories]
  verbs: [{{ . }}]
- apiGroups: [identity.lanyard.dev]
  resources: [workloadidentitybindings]
  verbs: [{{ . }}]
{{- end }}
{{- /* kinds of AWS identities */}}
{{- define "lanyard.kinds.awsIdentities" -}}
- apiGroups: [identity.lanyard.dev]
  resources: [awsclustercontrolleridentities, awsclusterroleidentities, awsclusterstaticidentities, awsserviceaccountidentities]
  verbs: [{{ . }}]
{{- end }}
{{- /* their statuses */}}
{{- define "lanyard.kinds.awsIdentities.status" -}}
- apiGroups: [identity.lanyard.dev]
  resources: [awsclustercontrolleridentities/status, awsclusterroleidentities/status, awsclusterstaticidentities/status, awsserviceaccountidentities/status]
  verbs: [{{ . }}]
{{- end }}
{{- /* kinds of AWS identities without a namespace */}}
{{- define "lanyard.kinds.awsIdentities.cluster" -}}
- apiGroups: [identity.lanyard.dev]
  resources: [awsclustercontrolleridentities, awsclusterroleidentities, awsclusterstaticidentities]
  verbs: [{{ . }}]
{{- end }}
{{- /* kinds of AWS identities in namespaces */}}
{{- define "lanyard.kinds.awsIdentities.tenant" -}}
- apiGroups: [identity.lanyard.dev]
  resources: [awsserviceaccountidentities]
  verbs: [{{ . }}]
{{- end }}
{{- /* kinds whose objects apply manifests */}}
{{- define "lanyard.kinds.applying" -}}
- apiGroups: [toolkit.lanyard.dev]
  resources: [kustomizations]
  verbs: [{{ . }}]
{{- end }}
{{- /* their statuses */}}
{{- define "lanyard.kinds.applying.status" -}}
- apiGroups: [toolkit.lanyard.dev]
  resources: [kustomizations/status]
  verbs: [{{ . }}]
{{- end }}
{{- /* kinds whose objects act at AWS's APIs */}}
{{- define "lanyard.kinds.atAWS" -}}
- apiGroups: [infrastructure.lanyard.dev]
  resources: [awsclusters]
  verbs: [{{ . }}]
{{- end }}
{{- /* their statuses */}}
{{- define "lanyard.kinds.atAWS.status" -}}
- apiGroups: [infrastructure.lanyard.dev]
  resources: [awsclusters/status]
  verbs: [{{ . }}]
{{- end }}
