package gcp

import (
	"slices"
)

// Permissions that the local cloud checks.
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

// permissionsOf returns the permissions of a predefined role that the local cloud checks, and
// whether the role is known. A configuration with an unknown role is refused, so that every binding
// has an effect. Basic roles (owner, editor, viewer) are unknown on purpose. Sources: IAM, "IAM
// roles and permissions index"; Artifact Registry, "Roles and permissions"; Cloud Storage, "IAM
// roles for Cloud Storage".
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
		return []string{
			permBucketGet, permBucketList, permObjectGet, permObjectList, permObjectCreate, permObjectDelete, permObjectUpdate,
		}, true
	case "roles/storage.legacyObjectReader":
		return []string{permObjectGet}, true
	case "roles/storage.legacyBucketReader":
		return []string{permBucketGet, permObjectList}, true
	case "roles/storage.legacyBucketWriter", "roles/storage.legacyBucketOwner":
		return []string{permBucketGet, permObjectList, permObjectCreate, permObjectDelete}, true
	}
	return nil, false
}

// policy is the list of bindings of one resource. It is immutable. The zero value allows nothing.
type policy []Binding

// allows reports whether a binding gives a permission to one of the members.
func (p policy) allows(permission string, members []string) bool {
	for _, b := range p {
		permissions, _ := permissionsOf(b.Role)
		if slices.Contains(permissions, permission) &&
			slices.ContainsFunc(b.Members, func(m string) bool { return slices.Contains(members, m) }) {
			return true
		}
	}
	return false
}

// without returns the policy after a member was deleted. IAM renames a deleted member, so that a
// new member of the same name does not inherit its roles. Source: IAM, "Deleted principals in
// policy bindings".
func (p policy) without(member string) policy {
	out := make(policy, 0, len(p))
	for _, b := range p {
		b.Members = slices.DeleteFunc(slices.Clone(b.Members), func(m string) bool { return m == member })
		out = append(out, b)
	}
	return out
}
