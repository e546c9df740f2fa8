package kube

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/lanyard-dev/lanyard/auth"
)

// MaxAnnotation bounds the value of an annotation that providers read, in bytes: an account with a longer one is refused. It is the
// longest value that any of the clouds takes, a role ARN. Source: AWS STS API reference, AssumeRoleWithWebIdentity, RoleArn.
const MaxAnnotation = 2048

// Annotations are the keys of the ServiceAccount annotations that providers read. No others are kept in memory: Kubernetes lets an
// account have 256 KiB of annotations, and whoever may annotate accounts may have many.
type Annotations []string

// DefaultAnnotations are the annotations that map accounts to identities of AWS, Azure and GCP. A program with a provider of its own
// appends that provider's keys, for [ByObject] and [Options] alike.
func DefaultAnnotations() Annotations {
	return Annotations{
		"eks.amazonaws.com/role-arn",
		"azure.workload.identity/client-id",
		"azure.workload.identity/tenant-id",
		"iam.gke.io/gcp-service-account",
		"gcp.lanyard.dev/workload-identity-provider",
	}
}

// keep is annotations without what no provider reads: annotations itself when that is all of it, nil when nothing is left. A value
// that is too long is cut to MaxAnnotation and one byte: no more is kept of it, and it is still too long.
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
			value = strings.Clone(value[:MaxAnnotation+1]) // a part would keep the whole
		}
		result[key] = value
	}
	return result
}

// tooLong is the first key in kept whose value is too long; empty if there is none.
func (a Annotations) tooLong(kept map[string]string) string {
	for _, key := range a {
		if len(kept[key]) > MaxAnnotation {
			return key
		}
	}
	return ""
}

// annotationTooLong refuses an account because of one annotation, whichever provider asks. To ignore the annotation instead could give
// the account another identity.
func annotationTooLong(subject auth.Subject, key string) error {
	at := fmt.Sprintf("annotation %s of ServiceAccount %s/%s", key, subject.Namespace(), subject.Name())
	return &auth.Error{
		Stage: auth.StageIdentity, Code: auth.CodeIdentityInvalid,
		Fix: "set " + at + " to the name of one identity, or remove it",
		Err: fmt.Errorf("%s: its value has more than %d bytes", at, MaxAnnotation),
	}
}

// ByObject is for [cache.Options]: it makes a manager's cache keep only the part of ServiceAccounts' metadata that [Accounts] needs.
// That is less than 1 KiB for a usual account, and never more than about [MaxAnnotation] for each of the annotations.
// ServiceAccounts that the program caches whole, by their Go type, stay whole.
func ByObject(annotations Annotations) map[client.Object]cache.ByObject {
	return map[client.Object]cache.ByObject{
		&corev1.ServiceAccount{}: {Transform: annotations.transform},
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
		ResourceVersion:   full.ResourceVersion, // by which informers tell a change from a resync
		DeletionTimestamp: full.DeletionTimestamp,
		Annotations:       a.keep(full.Annotations),
	}
	return full, nil
}
