{{- /* Lists of kinds, made by make generate from the table of internal/kinds. */}}
{{- /* kinds whose objects fetch */}}
{{- define "lanyard.kinds.fetching" }}buckets, imagerepositories, ocirepositories{{ end }}
{{- /* their statuses */}}
{{- define "lanyard.kinds.fetching.status" }}buckets/status, imagerepositories/status, ocirepositories/status{{ end }}
{{- /* kinds whose objects keep artifacts */}}
{{- define "lanyard.kinds.keeping" }}buckets, ocirepositories{{ end }}
{{- /* kinds whose objects fetch and keep no artifact */}}
{{- define "lanyard.kinds.scanning" }}imagerepositories{{ end }}
{{- /* kinds whose objects can have SVIDs */}}
{{- define "lanyard.kinds.proving" }}imagerepositories, ocirepositories{{ end }}
{{- /* the requests for their SVIDs */}}
{{- define "lanyard.kinds.proving.svid" }}imagerepositories/svid, ocirepositories/svid{{ end }}
{{- /* kinds of AWS identities */}}
{{- define "lanyard.kinds.awsIdentities" }}awsclustercontrolleridentities, awsclusterroleidentities, awsclusterstaticidentities, awsserviceaccountidentities{{ end }}
{{- /* their statuses */}}
{{- define "lanyard.kinds.awsIdentities.status" }}awsclustercontrolleridentities/status, awsclusterroleidentities/status, awsclusterstaticidentities/status, awsserviceaccountidentities/status{{ end }}
{{- /* kinds of AWS identities without a namespace */}}
{{- define "lanyard.kinds.awsIdentities.cluster" }}awsclustercontrolleridentities, awsclusterroleidentities, awsclusterstaticidentities{{ end }}
