package identity

import (
	"cmp"
	"reflect"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lanyard-dev/lanyard/api/identity/v1alpha1"
	"github.com/lanyard-dev/lanyard/auth"
	"github.com/lanyard-dev/lanyard/auth/aws"
	"github.com/lanyard-dev/lanyard/auth/grant"
	"github.com/lanyard-dev/lanyard/auth/spec"
)

// The kinds of subjects that this package supports.
const (
	kindController     auth.Kind = v1alpha1.AWSClusterControllerIdentityKind
	kindStatic         auth.Kind = v1alpha1.AWSClusterStaticIdentityKind
	kindRole           auth.Kind = v1alpha1.AWSClusterRoleIdentityKind
	kindServiceAccount auth.Kind = v1alpha1.AWSServiceAccountIdentityKind
)

// link is one identity of a chain, as cached in memory. It is immutable.
type link struct {
	subject    auth.Subject
	uid        string
	grant      *grant.Namespaces // only for cluster-scoped identities; nil admits nobody
	sourceOnly bool
	// perNamespace is true if each namespace has its own sessions.
	perNamespace bool
	// sources lists the identities to which a role's spec.sourceIdentityRef could refer. There are
	// several if the reference has an unknown kind. The list is empty for the root of a chain.
	sources   []auth.Subject
	secret    string // name of the Secret with the keys of a static identity
	namespace string // namespace in spec.secretRef; empty means Options.SecretNamespace
	request   aws.SessionRequest
}

// linkOf converts an identity to a link. It returns false for an object of another type. It also
// returns false for an AWSClusterControllerIdentity without the default name. The schema refuses
// such an object, but the object may be older than this rule.
func linkOf(object any) (*link, bool) {
	switch o := object.(type) {
	case *v1alpha1.AWSClusterControllerIdentity:
		l := lent(o, o.Spec.AWSClusterIdentitySpec, aws.SessionRequest{Source: "the environment of the program"})
		return l, o.Name == v1alpha1.DefaultControllerIdentity
	case *v1alpha1.AWSClusterStaticIdentity:
		l := lent(o, o.Spec.AWSClusterIdentitySpec, aws.SessionRequest{Source: "Secret " + o.Spec.SecretRef.Name})
		l.secret, l.namespace = o.Spec.SecretRef.Name, o.Spec.SecretRef.Namespace
		return l, true
	case *v1alpha1.AWSClusterRoleIdentity:
		request := roleRequest(o.Spec.AWSRoleSpec)
		ref := v1alpha1.AWSClusterIdentityReference{Kind: string(kindController), Name: v1alpha1.DefaultControllerIdentity}
		if o.Spec.SourceIdentityRef != nil {
			ref = *o.Spec.SourceIdentityRef
		}
		request.Source = ref.Kind + " " + ref.Name
		request.Name = cmp.Or(request.Name, defaultSessionName(o.Name))
		request.ExternalID, request.SourceIdentity = o.Spec.ExternalID, o.Spec.SourceIdentity
		request.Tags, request.TransitiveTags = o.Spec.Tags, o.Spec.TransitiveTags
		l := lent(o, o.Spec.AWSClusterIdentitySpec, request)
		l.perNamespace = o.Spec.SessionPer == v1alpha1.SessionPerNamespace
		l.sources = Referenced(ref.Kind, "", ref.Name)
		return l, true
	case *v1alpha1.AWSServiceAccountIdentity:
		request := roleRequest(o.Spec.AWSRoleSpec)
		request.Audiences, request.ProofLifetime = o.Spec.Audiences, time.Duration(o.Spec.ExpirationSeconds)*time.Second
		subject, err := auth.Object(kindServiceAccount, o.Namespace, o.Name)
		return &link{subject: subject, uid: string(o.UID), request: request}, err == nil
	default:
		return nil, false
	}
}

// Referenced returns the AWS identities that a reference could refer to:
//   - for a known kind, one identity
//   - for an unknown kind, one identity of each kind
//   - for an invalid name, nothing
//
// The namespace is that of the object with the reference. It is empty if the object is
// cluster-scoped.
func Referenced(kind, namespace, name string) []auth.Subject {
	kinds := spec.AWSIdentityKinds()
	if slices.Contains(kinds, auth.Kind(kind)) {
		kinds = []auth.Kind{auth.Kind(kind)}
	}
	var found []auth.Subject
	for _, k := range kinds {
		if subject, err := spec.AWSIdentity(string(k), namespace, name); err == nil {
			found = append(found, subject)
		}
	}
	return found
}

// source returns the identity that assumes the role. It is zero for the root of a chain, and for a
// source of an unknown kind.
func (l *link) source() auth.Subject {
	if len(l.sources) != 1 {
		return auth.Subject{}
	}
	return l.sources[0]
}

// lent returns the link of a cluster-scoped identity. The link's grant says which namespaces may
// use the identity.
func lent(o metav1.Object, spec v1alpha1.AWSClusterIdentitySpec, request aws.SessionRequest) *link {
	l := &link{uid: string(o.GetUID()), grant: grantOf(spec.AllowedNamespaces), sourceOnly: spec.SourceOnly, request: request}
	switch o.(type) {
	case *v1alpha1.AWSClusterControllerIdentity:
		l.subject, _ = auth.ClusterIdentity(kindController, o.GetName())
	case *v1alpha1.AWSClusterStaticIdentity:
		l.subject, _ = auth.ClusterIdentity(kindStatic, o.GetName())
	default:
		l.subject, _ = auth.ClusterIdentity(kindRole, o.GetName())
	}
	return l
}

func roleRequest(spec v1alpha1.AWSRoleSpec) aws.SessionRequest {
	return aws.SessionRequest{
		RoleARN: spec.RoleARN, Name: spec.SessionName, Duration: time.Duration(spec.DurationSeconds) * time.Second,
		Policy: spec.InlinePolicy, PolicyARNs: spec.PolicyARNs,
	}
}

// defaultSessionName returns the session name for an identity whose spec has no session name. It is
// the identity's name. A name of one character gets a suffix, because AWS requires at least two
// characters.
func defaultSessionName(name string) string {
	if len(name) < 2 {
		return name + "@" + string(kindRole)
	}
	return name
}

// grantOf converts spec.allowedNamespaces to a [grant.Namespaces], whose Decide method admits or
// refuses namespaces.
func grantOf(allowed *v1alpha1.AllowedNamespaces) *grant.Namespaces {
	if allowed == nil {
		return nil
	}
	made := &grant.Namespaces{All: allowed.All, List: allowed.List}
	if allowed.Selector != nil {
		made.Selector = &grant.Selector{MatchLabels: allowed.Selector.MatchLabels}
		for _, r := range allowed.Selector.MatchExpressions {
			made.Selector.MatchExpressions = append(made.Selector.MatchExpressions, grant.Requirement{
				Key: r.Key, Operator: grant.Operator(r.Operator), Values: r.Values,
			})
		}
	}
	return made
}

// equal reports whether l and other have the same values in all fields.
func (l *link) equal(other *link) bool { return reflect.DeepEqual(l, other) }

// sameCredential reports whether l and other are equal, except for the fields that say who may use
// the identity.
func (l *link) sameCredential(other *link) bool {
	a, b := *l, *other
	a.grant, a.sourceOnly, b.grant, b.sourceOnly = nil, false, nil, false
	return a.equal(&b)
}

// admits reports whether the namespace may use the identity. It ignores sourceOnly. A namespace
// that does not exist has nil labels, and no grant admits it.
func (l *link) admits(namespace string, labels map[string]string) bool {
	if l.subject.Kind() == kindServiceAccount {
		return l.subject.Namespace() == namespace
	}
	return labels != nil && l.grant.Decide(namespace, labels).Allowed
}

// String returns the identity's kind and name, for people.
func (l *link) String() string { return nameOf(l.subject) }

// nameOf returns an identity's kind and name, for people.
func nameOf(subject auth.Subject) string {
	if subject.Namespace() == "" {
		return string(subject.Kind()) + " " + subject.Name()
	}
	return string(subject.Kind()) + " " + subject.Namespace() + "/" + subject.Name()
}
