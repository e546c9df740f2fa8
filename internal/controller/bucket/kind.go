package bucket

import (
	"context"
	"errors"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/lanyard-dev/lanyard/api/meta"
	"github.com/lanyard-dev/lanyard/api/toolkit/v1alpha1"
	"github.com/lanyard-dev/lanyard/auth/spec"
	"github.com/lanyard-dev/lanyard/internal/artifact/bucket"
	"github.com/lanyard-dev/lanyard/internal/controller/source"
)

// Reconciler fetches the artifacts of Buckets.
type Reconciler = source.Reconciler[*v1alpha1.Bucket, plan]

// New makes a reconciler. services are those of the providers, by name. maxSize bounds an artifact when unpacked, in bytes; zero
// stands for the default of package archive.
func New(shared *source.Shared, access *source.Access, services map[string]Service, maxSize int64) *Reconciler {
	return source.New(shared, v1alpha1.BucketKind, kind{
		access: access, artifacts: shared.Artifacts, services: services, limits: bucket.Limits{MaxBytes: maxSize},
	})
}

// kind implements source.Kind.
type kind struct {
	access    *source.Access
	artifacts *source.Artifacts
	services  map[string]Service
	limits    bucket.Limits
}

var _ source.Kind[*v1alpha1.Bucket, plan] = kind{}

// Empty implements source.Kind.
func (kind) Empty() (*v1alpha1.Bucket, client.ObjectList) {
	return &v1alpha1.Bucket{}, &v1alpha1.BucketList{}
}

// View implements source.Kind.
func (kind) View(o *v1alpha1.Bucket) source.View {
	v := source.View{
		Fields: spec.Fields{
			Namespace: o.Namespace, Provider: o.Spec.Provider, ServiceAccountName: o.Spec.ServiceAccountName,
			SecretRef: source.NameOf(o.Spec.SecretRef), CertSecretRef: source.NameOf(o.Spec.CertSecretRef), ProxySecretRef: source.NameOf(o.Spec.ProxySecretRef),
			Insecure: o.Spec.Insecure,
		},
		Suspend: o.Spec.Suspend, Interval: o.Spec.Interval, Timeout: o.Spec.Timeout,
		Status: &o.Status.Status, Stores: true, Artifact: o.Status.Artifact, Publish: o.Spec.ExternalArtifact,
	}
	if sts := o.Spec.STS; sts != nil {
		v.Fields.STS = &spec.TokenService{Provider: sts.Provider, Endpoint: sts.Endpoint}
	}
	if v.Artifact != nil {
		v.Found = "stored artifact for revision " + v.Artifact.Revision
	}
	return v
}

// Explain implements source.Kind.
func (kind) Explain(err error) (source.Failure, bool) {
	if errors.Is(err, context.DeadlineExceeded) {
		return source.TimedOut(meta.ReasonBucketUnreachable, err), true
	}
	if failed, ok := errors.AsType[*bucket.Error](err); ok {
		return source.Failure{Reason: reasonOf(failed.Code), RetryAfter: failed.RetryAfter, AtInterval: failed.Code == bucket.CodeTooLarge}, true
	}
	return source.Failure{}, false
}

// reasonOf is never that of a stalled object: nobody tells us when a bucket is mended.
func reasonOf(code bucket.Code) string {
	switch code {
	case bucket.CodeUnreachable, bucket.CodeThrottled, bucket.CodeServer:
		return meta.ReasonBucketUnreachable
	case bucket.CodeChanged:
		return meta.ReasonBucketChanged
	case bucket.CodeTooLarge:
		return meta.ReasonArchiveRefused
	default: // 401, 403, 404, and what serves no buckets
		return meta.ReasonBucketRefused
	}
}
