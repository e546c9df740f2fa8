package gcp

import (
	"slices"
)

// Permissions that the local cloud asks for.
const (
	permAccessToken        = "iam.serviceAccounts.getAccessToken" //nolint:gosec // the name of a permission
	permIDToken            = "iam.serviceAccounts.getOpenIdToken" //nolint:gosec // the name of a permission
	permDelegate           = "iam.serviceAccounts.implicitDelegation"
	permDownload           = "artifactregistry.repositories.downloadArtifacts"
	permUpload             = "artifactregistry.repositories.uploadArtifacts"
	permDelete             = "artifactregistry.repositories.deleteArtifacts"
	permProjectGet         = "resourcemanager.projects.get"
	permServiceEnable      = "serviceusage.services.enable"
	permPoolCreate         = "iam.workloadIdentityPools.create"
	permProviderCreate     = "iam.workloadIdentityPoolProviders.create"
	permAccountCreate      = "iam.serviceAccounts.create"
	permAccountGetPolicy   = "iam.serviceAccounts.getIamPolicy"
	permAccountSetPolicy   = "iam.serviceAccounts.setIamPolicy"
	permRepoGetPolicy      = "artifactregistry.repositories.getIamPolicy"
	permRepoSetPolicy      = "artifactregistry.repositories.setIamPolicy"
	permBucketGet          = "storage.buckets.get"
	permBucketList         = "storage.buckets.list"
	permObjectGet          = "storage.objects.get"
	permObjectList         = "storage.objects.list"
	permObjectCreate       = "storage.objects.create"
	permObjectDelete       = "storage.objects.delete"
	permObjectUpdate       = "storage.objects.update"
	rolePrefixLegacyBucket = "roles/storage.legacy"
)

// permissionsOf returns what a predefined role permits, as far as the local cloud asks for it, and
// whether it knows the role. A role that it does not know is refused in a configuration, so that no
// binding is without effect. Basic roles (owner, editor, viewer) are not known on purpose. Sources:
// IAM, "IAM roles and permissions index"; Artifact Registry, "Roles and permissions"; Cloud
// Storage, "IAM roles for Cloud Storage".
func permissionsOf(role string) ([]string, bool) {
	switch role {
	case "roles/iam.workloadIdentityUser":
		return []string{permAccessToken, permIDToken}, true
	case "roles/iam.serviceAccountTokenCreator":
		return []string{permAccessToken, permIDToken, permDelegate}, true
	case "roles/iam.serviceAccountOpenIdTokenCreator":
		return []string{permIDToken}, true
	case "roles/browser":
		return []string{permProjectGet}, true
	case "roles/serviceusage.serviceUsageAdmin":
		return []string{permProjectGet, permServiceEnable}, true
	case "roles/iam.workloadIdentityPoolAdmin":
		return []string{permProjectGet, permPoolCreate, permProviderCreate}, true
	case "roles/iam.serviceAccountAdmin":
		return []string{permProjectGet, permAccountCreate, permAccountGetPolicy, permAccountSetPolicy}, true
	case "roles/artifactregistry.reader":
		return []string{permDownload}, true
	case "roles/artifactregistry.writer":
		return []string{permDownload, permUpload}, true
	case "roles/artifactregistry.repoAdmin":
		return []string{permDownload, permUpload, permDelete}, true
	case "roles/artifactregistry.admin":
		return []string{permDownload, permUpload, permDelete, permRepoGetPolicy, permRepoSetPolicy}, true
	case "roles/storage.objectViewer":
		return []string{permObjectGet, permObjectList}, true
	case "roles/storage.objectCreator":
		return []string{permObjectCreate}, true
	case "roles/storage.objectUser", "roles/storage.objectAdmin":
		return []string{permObjectGet, permObjectList, permObjectCreate, permObjectDelete, permObjectUpdate}, true
	case "roles/storage.bucketViewer":
		return []string{permBucketGet, permBucketList}, true
	case "roles/storage.admin":
		return []string{permBucketGet, permBucketList, permObjectGet, permObjectList, permObjectCreate, permObjectDelete, permObjectUpdate}, true
	case "roles/storage.legacyObjectReader":
		return []string{permObjectGet}, true
	case "roles/storage.legacyBucketReader":
		return []string{permBucketGet, permObjectList}, true
	case "roles/storage.legacyBucketWriter", "roles/storage.legacyBucketOwner":
		return []string{permBucketGet, permObjectList, permObjectCreate, permObjectDelete}, true
	}
	return nil, false
}

// policy is what the bindings of one resource allow. It is immutable. Its zero value allows
// nothing.
type policy []Binding

// allows reports whether one of the members may do something.
func (p policy) allows(permission string, members []string) bool {
	for _, b := range p {
		permissions, _ := permissionsOf(b.Role)
		if slices.Contains(permissions, permission) && slices.ContainsFunc(b.Members, func(m string) bool { return slices.Contains(members, m) }) {
			return true
		}
	}
	return false
}

// without is the policy after a member was deleted. IAM keeps such a member under a name that no
// new one has; a new one must not inherit. Source: IAM, "Deleted principals in policy bindings".
func (p policy) without(member string) policy {
	out := make(policy, 0, len(p))
	for _, b := range p {
		b.Members = slices.DeleteFunc(slices.Clone(b.Members), func(m string) bool { return m == member })
		out = append(out, b)
	}
	return out
}
