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
	permServiceUse         = "serviceusage.services.use"
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
	permRingCreate         = "cloudkms.keyRings.create"
	permRingGet            = "cloudkms.keyRings.get"
	permRingGetPolicy      = "cloudkms.keyRings.getIamPolicy"
	permRingSetPolicy      = "cloudkms.keyRings.setIamPolicy"
	permKeyCreate          = "cloudkms.cryptoKeys.create"
	permKeyGet             = "cloudkms.cryptoKeys.get"
	permKeyUpdate          = "cloudkms.cryptoKeys.update"
	permKeyGetPolicy       = "cloudkms.cryptoKeys.getIamPolicy"
	permKeySetPolicy       = "cloudkms.cryptoKeys.setIamPolicy"
	permVersionCreate      = "cloudkms.cryptoKeyVersions.create"
	permVersionGet         = "cloudkms.cryptoKeyVersions.get"
	permVersionUpdate      = "cloudkms.cryptoKeyVersions.update"
	permVersionDestroy     = "cloudkms.cryptoKeyVersions.destroy"
	permEncrypt            = "cloudkms.cryptoKeyVersions.useToEncrypt"
	permDecrypt            = "cloudkms.cryptoKeyVersions.useToDecrypt"
	rolePrefixLegacyBucket = "roles/storage.legacy"
)

// rolePermissions maps each predefined role to those of its permissions that the local cloud
// checks. A binding with an unknown role is refused, because it would have no effect. Basic roles
// (owner, editor, viewer) are unknown on purpose. Sources: IAM, "IAM roles and permissions index";
// Artifact Registry, "Roles and permissions"; Cloud Storage, "IAM roles for Cloud Storage"; Cloud
// KMS, "Permissions and roles". An administrator of keys may not encrypt or decrypt.
func rolePermissions() map[string][]string {
	editObjects := []string{permObjectGet, permObjectList, permObjectCreate, permObjectDelete, permObjectUpdate}
	writeLegacy := []string{permBucketGet, permObjectList, permObjectCreate, permObjectDelete}
	adminKeys := []string{
		permProjectGet, permRingCreate, permRingGet, permRingGetPolicy, permRingSetPolicy,
		permKeyCreate, permKeyGet, permKeyUpdate, permKeyGetPolicy, permKeySetPolicy,
		permVersionCreate, permVersionGet, permVersionUpdate, permVersionDestroy,
	}
	return map[string][]string{
		"roles/iam.workloadIdentityUser":             {permAccessToken, permIDToken},
		"roles/iam.serviceAccountTokenCreator":       {permAccessToken, permIDToken, permDelegate},
		"roles/iam.serviceAccountOpenIdTokenCreator": {permIDToken},
		"roles/browser":                        {permProjectGet},
		"roles/serviceusage.serviceUsageAdmin": {permProjectGet, permServiceEnable, permServiceUse},
		"roles/iam.workloadIdentityPoolAdmin":  {permProjectGet, permPoolCreate, permProviderCreate},
		"roles/iam.serviceAccountAdmin":        {permProjectGet, permAccountCreate, permAccountGetPolicy, permAccountSetPolicy},
		"roles/artifactregistry.reader":        {permDownload},
		"roles/artifactregistry.writer":        {permDownload, permUpload},
		"roles/artifactregistry.repoAdmin":     {permDownload, permUpload, permDelete},
		"roles/artifactregistry.admin":         {permDownload, permUpload, permDelete, permRepoGetPolicy, permRepoSetPolicy},
		"roles/storage.objectViewer":           {permObjectGet, permObjectList},
		"roles/storage.objectCreator":          {permObjectCreate},
		"roles/storage.objectUser":             editObjects,
		"roles/storage.objectAdmin":            editObjects,
		"roles/storage.bucketViewer":           {permBucketGet, permBucketList},
		"roles/storage.admin":                  append([]string{permBucketGet, permBucketList}, editObjects...),
		"roles/storage.legacyObjectReader":     {permObjectGet},
		"roles/storage.legacyBucketReader":     {permBucketGet, permObjectList},
		"roles/storage.legacyBucketWriter":     writeLegacy,
		"roles/storage.legacyBucketOwner":      writeLegacy,

		"roles/serviceusage.serviceUsageConsumer":    {permServiceUse},
		"roles/cloudkms.admin":                       adminKeys,
		"roles/cloudkms.cryptoKeyEncrypter":          {permProjectGet, permEncrypt},
		"roles/cloudkms.cryptoKeyDecrypter":          {permProjectGet, permDecrypt},
		"roles/cloudkms.cryptoKeyEncrypterDecrypter": {permProjectGet, permEncrypt, permDecrypt},
	}
}

// policy is the list of bindings of one resource. It is immutable. The zero value allows nothing.
type policy []Binding

// allows reports whether a binding gives a permission to one of the members.
func (p policy) allows(permission string, members []string) bool {
	roles := rolePermissions()
	return slices.ContainsFunc(p, func(b Binding) bool {
		return slices.Contains(roles[b.Role], permission) &&
			slices.ContainsFunc(b.Members, func(m string) bool { return slices.Contains(members, m) })
	})
}

// without returns a copy of the policy from which a deleted member is removed. The real IAM renames
// the member instead. Either way, a new member of the same name does not inherit the deleted
// member's roles. Source: IAM, "Deleted principals in policy bindings".
func (p policy) without(member string) policy {
	out := make(policy, 0, len(p))
	for _, b := range p {
		b.Members = slices.DeleteFunc(slices.Clone(b.Members), func(m string) bool { return m == member })
		out = append(out, b)
	}
	return out
}
