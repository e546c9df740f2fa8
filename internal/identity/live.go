package identity

import (
	"context"
	"fmt"

	"github.com/puzpuzpuz/xsync/v4"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/lanyard-dev/lanyard/api/identity/v1alpha1"
	"github.com/lanyard-dev/lanyard/auth"
)

// Live returns Identities that can check grants only for one AWS identity and one namespace. Live
// reads the identity's chain and the namespace's labels once, through the given reader. It watches
// nothing, reads no static keys and gets no credentials. The parameter accounts looks up the
// ServiceAccount of an AWSServiceAccountIdentity.
func Live(ctx context.Context, reader client.Reader, accounts auth.Accounts, namespace string, subject auth.Subject) (*Identities, error) {
	i := &Identities{
		accounts: accounts, chains: xsync.NewMap[auth.Subject, *chain](), namespaces: xsync.NewMap[string, map[string]string](),
		links: map[auth.Subject]*link{}, secrets: map[string]keys{},
	}
	selects := false
	for next := subject; !next.IsZero() && i.links[next] == nil && len(i.links) <= MaxDepth; {
		l, err := readLink(ctx, reader, next)
		if err != nil || l == nil {
			if err != nil {
				return nil, fmt.Errorf("read %s: %w", nameOf(next), err)
			}
			break // the identity does not exist: the chain will have an error that says so
		}
		i.links[next] = l
		selects = selects || l.grant != nil && l.grant.Selector != nil
		next = l.source()
	}
	if i.links[subject] != nil && subject.Kind() == kindServiceAccount {
		account, err := auth.ServiceAccount(subject.Namespace(), subject.Name())
		if err == nil {
			_, err = accounts.Lookup(ctx, account)
		}
		if err != nil && auth.CodeOf(err) != auth.CodeSubjectNotFound { // if the account is missing, the chain will have the error
			return nil, err
		}
	}
	known := &metav1.PartialObjectMetadata{}
	known.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Namespace"))
	err := reader.Get(ctx, client.ObjectKey{Name: namespace}, known)
	switch {
	case err == nil, apierrors.IsForbidden(err) && !selects:
		// Only grants with a selector depend on the labels. Without selectors, Live does not need
		// the permission to read the labels.
		known.Name = namespace
		i.setNamespace(known)
	case !apierrors.IsNotFound(err):
		return nil, fmt.Errorf("read the labels of namespace %s: %w", namespace, err)
	}
	return i, nil
}

// readLink reads an identity; nil if there is no such identity.
func readLink(ctx context.Context, reader client.Reader, subject auth.Subject) (*link, error) {
	var object client.Object
	switch subject.Kind() {
	case kindController:
		object = &v1alpha1.AWSClusterControllerIdentity{}
	case kindStatic:
		object = &v1alpha1.AWSClusterStaticIdentity{}
	case kindRole:
		object = &v1alpha1.AWSClusterRoleIdentity{}
	default:
		object = &v1alpha1.AWSServiceAccountIdentity{}
	}
	err := reader.Get(ctx, client.ObjectKey{Namespace: subject.Namespace(), Name: subject.Name()}, object)
	if apierrors.IsNotFound(err) || apimeta.IsNoMatchError(err) {
		return nil, nil // no such identity
	}
	if l, ok := linkOf(object); ok && err == nil {
		return l, nil
	}
	return nil, err
}

// Grant says whether one identity of a chain admits a namespace.
type Grant struct {
	// Identity is the identity's name. Source is the source of its session. Both are for people.
	Identity, Source string
	// RoleARN is the role that is assumed; empty for none.
	RoleARN string
	// Admits is true if the identity admits the namespace.
	Admits bool
	// Why is a clause for people that says which part of the grant decided.
	Why string
}

// Grants says for each identity of the subject's chain whether it admits the namespace. The result
// is in the order of the chain, without identities that do not exist.
func (i *Identities) Grants(ctx context.Context, namespace string, subject auth.Subject) []Grant {
	var grants []Grant
	for _, l := range i.chain(ctx, subject).links {
		g := Grant{Identity: l.String(), Source: l.request.Source, RoleARN: l.request.RoleARN}
		if l.subject.Kind() == kindServiceAccount {
			g.Source = "ServiceAccount " + l.subject.Namespace() + "/" + l.subject.Name()
			g.Admits, g.Why = l.subject.Namespace() == namespace, "an identity of namespace "+l.subject.Namespace()
		} else {
			decision := l.grant.Decide(namespace, i.labels(namespace))
			g.Admits, g.Why = decision.Allowed, decision.Link
		}
		grants = append(grants, g)
	}
	return grants
}
