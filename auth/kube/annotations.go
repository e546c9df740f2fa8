package kube

import (
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/lanyard-dev/lanyard/auth"
)

// MaxAnnotation is the maximum length, in bytes, of an annotation value that providers read. An
// account with a longer value is refused. The longest value that a cloud accepts is a role ARN of
// this length. Source: AWS STS API reference, AssumeRoleWithWebIdentity, RoleArn.
const MaxAnnotation = 2048

// Annotations are the keys of the ServiceAccount annotations that providers read. Other annotations
// are not stored in memory: Kubernetes allows 256 KiB of annotations for each account, and a tenant
// may have many accounts.
type Annotations []string

// usernameAnnotation has the user name for registries that accept a token only as a password.
const usernameAnnotation = "lanyard.dev/registry-username"

// Attributes with these names can change an account's token, although the account's cloud identity
// stays the same. So the [auth.Key] of the token also needs a fingerprint of the attributes; see
// fingerprintOf. The names are copied from package auth/aws, which this package does not import.
const (
	assumeRoleAnnotation = "lanyard.dev/assume-role"
	assumeRoleField      = "assumeRole"
)

// fingerprintOf returns the fingerprint of an account's attributes. It is empty if the account's
// identity alone determines the token.
func fingerprintOf(attributes map[string]string) string {
	_, annotated := attributes[assumeRoleAnnotation]
	if _, configured := attributes[assumeRoleField]; !annotated && !configured {
		return ""
	}
	return auth.Fingerprint(attributes)
}

// DefaultAnnotations returns the keys of the annotations for AWS, Azure and GCP, and of the
// annotation with a user name for registries. A program with another provider appends that
// provider's keys, for both [ByObject] and [Options].
func DefaultAnnotations() Annotations {
	return Annotations{
		"eks.amazonaws.com/role-arn",
		assumeRoleAnnotation,
		"azure.workload.identity/client-id",
		"azure.workload.identity/tenant-id",
		"iam.gke.io/gcp-service-account",
		"lanyard.dev/impersonate",
		"gcp.lanyard.dev/workload-identity-provider",
		"gcp.auth.fluxcd.io/workload-identity-provider",
		usernameAnnotation,
	}
}

// keep returns the annotations that providers read. It returns the map itself if providers read all
// annotations, and nil if they read none. To save memory, it cuts a value of more than
// MaxAnnotation+1 bytes to this length. The cut value is still too long, so the account is refused.
func (a Annotations) keep(annotations map[string]string) map[string]string {
	kept, cut := 0, false
	for key, value := range annotations {
		if slices.Contains(a, key) {
			kept++
			cut = cut || len(value) > MaxAnnotation+1
		}
	}
	switch {
	case kept == 0:
		return nil
	case kept == len(annotations) && !cut:
		return annotations
	}
	result := make(map[string]string, kept)
	for key, value := range annotations {
		if !slices.Contains(a, key) {
			continue
		}
		if len(value) > MaxAnnotation+1 {
			value = strings.Clone(value[:MaxAnnotation+1]) // without a copy, memory would keep the whole value
		}
		result[key] = value
	}
	return result
}

// tooLong returns the first key in kept whose value is too long, or an empty string.
func (a Annotations) tooLong(kept map[string]string) string {
	for _, key := range a {
		if len(kept[key]) > MaxAnnotation {
			return key
		}
	}
	return ""
}

// source returns the source that reads ServiceAccounts' metadata.
func (a Annotations) source() source {
	return source{subject: auth.ServiceAccount, record: func(subject auth.Subject, object any) (record, bool) {
		account, ok := object.(*metav1.PartialObjectMetadata)
		if !ok {
			return record{}, false
		}
		kept := a.keep(account.Annotations)
		made := record{uid: string(account.UID), attributes: kept, fingerprint: fingerprintOf(kept)}
		if key := a.tooLong(kept); key != "" {
			made.refused = annotationTooLong(subject, key)
		}
		return made, true
	}}
}

// annotationTooLong returns the error for an account with an annotation that is too long. Every
// provider refuses the account. If a provider ignored the annotation instead, the account could get
// another identity.
func annotationTooLong(subject auth.Subject, key string) error {
	at := fmt.Sprintf("annotation %s of %s %s/%s", key, subject.Kind(), subject.Namespace(), subject.Name())
	return &auth.Error{
		Stage: auth.StageIdentity, Code: auth.CodeIdentityInvalid,
		Fix: "set " + at + " to the name of one identity, or remove it",
		Err: fmt.Errorf("%s: its value has more than %d bytes", at, MaxAnnotation),
	}
}

// ByObject returns a value for the field ByObject of [cache.Options], for a manager's cache. The
// cache then stores only the metadata of ServiceAccounts that [Accounts] needs. An account usually
// takes less than 1 KiB. Annotation values are cut after [MaxAnnotation] + 1 bytes. ServiceAccounts
// that the program caches by their Go type stay whole.
func ByObject(annotations Annotations) map[client.Object]cache.ByObject {
	return map[client.Object]cache.ByObject{
		metadata(): {Transform: annotations.transform},
	}
}

func (a Annotations) transform(object any) (any, error) {
	full, ok := object.(*metav1.PartialObjectMetadata)
	if !ok {
		return object, nil
	}
	full.ObjectMeta = metav1.ObjectMeta{
		Name:              full.Name,
		Namespace:         full.Namespace,
		UID:               full.UID,
		ResourceVersion:   full.ResourceVersion, // needed by informers to detect a resync
		DeletionTimestamp: full.DeletionTimestamp,
		Annotations:       a.keep(full.Annotations),
	}
	return full, nil
}
