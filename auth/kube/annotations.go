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

// MaxAnnotation bounds the value of an annotation that providers read, in bytes: an account with a
// longer value is refused. No cloud accepts a longer value; the longest is a role ARN. Source: AWS
// STS API reference, AssumeRoleWithWebIdentity, RoleArn.
const MaxAnnotation = 2048

// Annotations are the keys of the ServiceAccount annotations that providers read. Other annotations
// are not kept in memory: Kubernetes allows 256 KiB of annotations for each account, and a tenant
// may have many accounts.
type Annotations []string

// usernameAnnotation names the user for registries that take a token only as a password.
const usernameAnnotation = "lanyard.dev/registry-username"

// Names of what says more of a token than the provider's identity: the account then has a
// fingerprint. Source: packages auth/aws and auth/gcp, which this package does not link.
const (
	assumeRoleAnnotation = "lanyard.dev/assume-role"
	assumeRoleField      = "assumeRole"
)

// fingerprintOf returns the fingerprint of attributes; empty if the provider's identity says all.
func fingerprintOf(attributes map[string]string) string {
	_, annotated := attributes[assumeRoleAnnotation]
	if _, configured := attributes[assumeRoleField]; !annotated && !configured {
		return ""
	}
	return auth.Fingerprint(attributes)
}

// DefaultAnnotations returns the annotations that name identities of AWS, Azure and GCP, and the
// user of tokens that are themselves the credential. A program with another provider appends that
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

// keep returns the annotations that providers read: the map itself if it has no others, nil if none
// is left. A value that is too long is cut to MaxAnnotation plus one byte, which saves memory and
// leaves the value too long.
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

// tooLong returns the first key in kept whose value is too long; empty if there is none.
func (a Annotations) tooLong(kept map[string]string) string {
	for _, key := range a {
		if len(kept[key]) > MaxAnnotation {
			return key
		}
	}
	return ""
}

// source reads ServiceAccounts' metadata.
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

// annotationTooLong is the error for an account with an annotation that is too long. The account is
// refused for every provider: without the annotation, the account could have another identity.
func annotationTooLong(subject auth.Subject, key string) error {
	at := fmt.Sprintf("annotation %s of %s %s/%s", key, subject.Kind(), subject.Namespace(), subject.Name())
	return &auth.Error{
		Stage: auth.StageIdentity, Code: auth.CodeIdentityInvalid,
		Fix: "set " + at + " to the name of one identity, or remove it",
		Err: fmt.Errorf("%s: its value has more than %d bytes", at, MaxAnnotation),
	}
}

// ByObject returns the ByObject of [cache.Options] with which a manager's cache keeps only the part
// of ServiceAccounts' metadata that [Accounts] needs. This part has less than 1 KiB for a usual
// account, and never more than about [MaxAnnotation] for each annotation. ServiceAccounts that the
// program caches by their Go type stay whole.
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
		ResourceVersion:   full.ResourceVersion, // informers compare it to tell a change from a resync
		DeletionTimestamp: full.DeletionTimestamp,
		Annotations:       a.keep(full.Annotations),
	}
	return full, nil
}
