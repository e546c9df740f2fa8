package kustomization

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/fluxcd/pkg/ssa/jsondiff"

	"github.com/lanyard-dev/lanyard/api/toolkit/v1alpha1"
	"github.com/lanyard-dev/lanyard/auth"
	"github.com/lanyard-dev/lanyard/internal/artifact/content"
	"github.com/lanyard-dev/lanyard/internal/controller/object"
	"github.com/lanyard-dev/lanyard/internal/desired"
	"github.com/lanyard-dev/lanyard/internal/health"
	"github.com/lanyard-dev/lanyard/internal/kustomize"
)

// plan is a spec after it was checked.
type plan struct {
	account        auth.Subject
	reference      content.Reference
	revision       string
	originRevision string
	spec           kustomize.Spec
	common         v1alpha1.CommonMetadata
	force          bool
	ignore         []jsondiff.IgnoreRule
	wait           bool           // all applied objects must be healthy
	listed         []target       // objects that must be healthy, if wait is false
	checks         []health.Check // rules that say which objects are healthy
	decryption     decryptionInput
}

// originRevision is the annotation of an OCI manifest with the revision of its source code. Source:
// OCI Image Format Specification, "Pre-Defined Annotation Keys".
const originRevision = "org.opencontainers.image.revision"

// maxName is the longest value of a label.
const maxName = 63

// Decide implements object.Kind.
func (k *kind) Decide(ctx context.Context, o *v1alpha1.Kustomization) (plan, error) {
	if err := checkBounds(o); err != nil {
		return plan{}, err
	}
	account, err := k.account(o)
	if err != nil {
		return plan{}, err
	}
	artifact, owners, err := k.Sources.artifact(ctx, o)
	if err != nil {
		return plan{}, err
	}
	p := plan{
		account: account, revision: artifact.Revision, originRevision: artifact.Metadata[originRevision], spec: desired.Build(o.Spec, k.Strict), force: o.Spec.Force,
		reference: content.Reference{
			URL: artifact.URL, Digest: artifact.Digest, Size: &artifact.Size, Owners: owners,
		},
	}
	p.wait = o.Spec.Wait
	if !p.wait {
		if p.listed, err = listed(o); err != nil {
			return plan{}, err
		}
	}
	if p.checks, err = checksOf(o.Spec); err != nil {
		return plan{}, err
	}
	if p.decryption, err = k.Decryption.decide(ctx, o); err != nil {
		return plan{}, err
	}
	if o.Spec.CommonMetadata != nil {
		p.common = *o.Spec.CommonMetadata
	}
	p.ignore, err = desired.Ignored(o.Spec.Ignore)
	if refused, ok := errors.AsType[*desired.FieldError](err); ok {
		return plan{}, object.Invalid(refused.Field, refused.Fix, "%w", refused.Err)
	}
	return p, err
}

// account returns the ServiceAccount that applies, and that reads the variables of spec.postBuild. The
// manifests for another cluster need no account if they have no such variables.
func (k *kind) account(o *v1alpha1.Kustomization) (auth.Subject, error) {
	name := cmp.Or(o.Spec.ServiceAccountName, k.DefaultServiceAccount)
	if name == "" && o.Spec.KubeConfig != nil && !readsVariables(o.Spec) {
		return auth.Subject{}, nil
	}
	if name == "" {
		return auth.Subject{}, object.Invalid("spec.serviceAccountName", "name the ServiceAccount of this namespace that may apply the manifests",
			"it is not set, and the administrator has set no default")
	}
	return accountOf(o, name)
}

// accountOf returns a ServiceAccount in the Kustomization's namespace.
func accountOf(o *v1alpha1.Kustomization, name string) (auth.Subject, error) {
	account, err := auth.ServiceAccount(o.Namespace, name)
	if err != nil {
		return auth.Subject{}, object.Invalid("spec.serviceAccountName", "write the name of a ServiceAccount of this namespace", "%w", err)
	}
	return account, nil
}

// readsVariables reports whether variables come from ConfigMaps or Secrets.
func readsVariables(s v1alpha1.KustomizationSpec) bool {
	return s.PostBuild != nil && len(s.PostBuild.SubstituteFrom) > 0
}

// checkBounds checks rules of the schema again, because an object may be older than a rule.
func checkBounds(o *v1alpha1.Kustomization) error {
	const shortest, longest = time.Second, 8760 * time.Hour
	timeout, retry := timeoutOf(o), o.Spec.RetryInterval
	switch {
	case len(o.Name) > maxName:
		return object.Invalid("metadata.name", "create the object with a shorter name", "it has more than %d characters, and each applied object gets the name as a label", maxName)
	case o.Spec.Interval.Duration < shortest || o.Spec.Interval.Duration > longest:
		return object.Invalid("spec.interval", "write a duration from 1s to 8760h, such as 10m", "%s is out of bounds", o.Spec.Interval.Duration)
	case retry != nil && (retry.Duration < shortest || retry.Duration > longest):
		return object.Invalid("spec.retryInterval", "write a duration from 1s to 8760h, such as 1m", "%s is out of bounds", retry.Duration)
	case timeout < shortest || timeout > object.MaxTimeout:
		return object.Invalid("spec.timeout", "write a duration from 1s to 30m, such as 5m", "%s is out of bounds", timeout)
	default:
		return nil
	}
}
