package spec

import (
	"context"
	"fmt"
	"slices"

	"github.com/lanyard-dev/lanyard/auth"
)

// The field with the reference to an AWS identity, and the parts of the field.
const (
	fieldAWSIdentity     = "spec.identityRef"
	fieldAWSIdentityKind = fieldAWSIdentity + ".kind"
	fieldAWSIdentityName = fieldAWSIdentity + ".name"
)

// awsControllerIdentity is the name of the only AWSClusterControllerIdentity. This object says
// which namespaces may use the controller's own identity at AWS.
const awsControllerIdentity = "default"

// AWSIdentityKinds returns the kinds of objects that are AWS identities. All kinds except the last
// are cluster-scoped: an administrator owns these objects and says which namespaces may use them.
func AWSIdentityKinds() []auth.Kind {
	return []auth.Kind{auth.KindAWSClusterControllerIdentity, auth.KindAWSClusterStaticIdentity, auth.KindAWSClusterRoleIdentity, auth.KindAWSServiceAccountIdentity}
}

// IdentityRef is spec.identityRef: the AWS identity that an object uses.
type IdentityRef struct {
	// Kind is one of [AWSIdentityKinds]. Required.
	Kind string
	// Name is the name of the identity. Required.
	Name string
}

// lent reports whether the identity belongs to an administrator, who lends it to tenants.
func (r *IdentityRef) lent() bool {
	return r != nil && auth.Kind(r.Kind) != auth.KindAWSServiceAccountIdentity
}

// AWSIdentity returns an AWS identity as a subject. The argument namespace is the namespace of the
// object that names the identity. It is used only for an AWSServiceAccountIdentity, because all
// other kinds are cluster-scoped. The error is an [*auth.Error].
func AWSIdentity(kind, namespace, name string) (auth.Subject, error) {
	switch k := auth.Kind(kind); k {
	case auth.KindAWSServiceAccountIdentity:
		return auth.Object(k, namespace, name)
	case auth.KindAWSClusterControllerIdentity, auth.KindAWSClusterStaticIdentity, auth.KindAWSClusterRoleIdentity:
		return auth.ClusterIdentity(k, name)
	default:
		return auth.Subject{}, &auth.Error{
			Stage: auth.StageSubject, Code: auth.CodeSubjectInvalid, Fix: fixKind(),
			Err: fmt.Errorf("%.80q is not the kind of an AWS identity", kind),
		}
	}
}

func fixKind() string { return "name one of the kinds " + listed(AWSIdentityKinds()) }

// checkIdentityRef refuses a reference that the schema does not allow.
func checkIdentityRef(ref *IdentityRef) error {
	switch {
	case ref == nil:
		return nil
	case !slices.Contains(AWSIdentityKinds(), auth.Kind(ref.Kind)):
		return refuse(auth.CodeOptionInvalid, fieldAWSIdentityKind, fmt.Sprintf("Unsupported value: %.80q", ref.Kind), fixKind())
	case !auth.IsSubdomain(ref.Name):
		return refuse(auth.CodeOptionInvalid, fieldAWSIdentityName,
			fmt.Sprintf("name must be a lower-case DNS-1123 subdomain, not %.80q", ref.Name), "name an AWS identity")
	default:
		return nil
	}
}

// awsIdentityOf returns the AWS identity that the object names. It is an error if the object's
// namespace may not use the identity.
func awsIdentityOf(ctx context.Context, fields Fields, rules Rules) (auth.Subject, error) {
	switch {
	case rules.ControllerOnly:
		return auth.Subject{}, refuse(auth.CodeNotGranted, fieldAWSIdentity,
			"the feature gate ObjectLevelWorkloadIdentity is off, so no object can name an AWS identity",
			"have the administrator set --feature-gates=ObjectLevelWorkloadIdentity=true (featureGates of the Helm chart)")
	case rules.AWSIdentities == nil:
		return auth.Subject{}, refuse(auth.CodeNotGranted, fieldAWSIdentity,
			"the controller runs without --aws-identities, so it knows no AWS identity",
			"have the administrator set identity.awsIdentities of the Helm chart, or name a serviceAccountName instead")
	}
	subject, err := AWSIdentity(fields.IdentityRef.Kind, fields.Namespace, fields.IdentityRef.Name)
	if err != nil {
		return auth.Subject{}, err
	}
	return subject, rules.AWSIdentities(ctx, fields.Namespace, subject)
}

// checkLentAtAWS checks whether the controller's own identity at AWS is lent to the namespace. If
// the controller supports AWS identities (Rules.AWSIdentities), the AWSClusterControllerIdentity
// must admit the namespace.
func checkLentAtAWS(ctx context.Context, fields Fields, rules Rules) error {
	if fields.Provider != aws || rules.AWSIdentities == nil {
		return nil
	}
	own, err := auth.ClusterIdentity(auth.KindAWSClusterControllerIdentity, awsControllerIdentity)
	if err != nil {
		return err
	}
	if err := rules.AWSIdentities(ctx, fields.Namespace, own); err != nil {
		return fmt.Errorf("no identity is named, so the controller's own is needed: %w", err)
	}
	return nil
}
