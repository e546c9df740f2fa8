package identity

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/lanyard-dev/lanyard/api/meta"
	"github.com/lanyard-dev/lanyard/auth"
)

// MaxDepth is the largest number of identities in a chain, the first and the root included.
const MaxDepth = 5

// chain is an identity with its sources, as cached in memory. It is immutable.
type chain struct {
	links []*link // the identity first, its root last; empty if the identity does not exist
	// met has the subjects of the links, in the same order. If an identity was not found, its
	// subject comes last.
	met []auth.Subject
	// err says why the chain gives no credential to any namespace; nil if the chain is valid.
	err error

	attributes   map[string]string // attributes of the account of the first link
	fingerprint  string            // hash of what decides the credential; see Identities.complete
	perNamespace bool              // true if perNamespace of any link is true
	keys         keys              // keys of the root, if it is a static identity
}

// follow makes the chain of a subject. Callers hold mu until they have stored the chain. Otherwise
// a link could change in between, and the stored chain would be outdated.
func (i *Identities) follow(ctx context.Context, subject auth.Subject) *chain {
	c := &chain{}
	for next := subject; ; {
		if slices.Contains(c.met, next) {
			c.err = refuse(auth.CodeIdentityInvalid, meta.ReasonSourceCycle, next,
				"give one of the identities in the circle a source outside the circle",
				"the chain of sources is a circle: %s", circle(c.met, next))
			return c
		}
		if len(c.links) == MaxDepth {
			c.err = refuse(auth.CodeIdentityInvalid, meta.ReasonSourceChainTooLong, next,
				"shorten the chain", "the chain of sources has more than %d identities", MaxDepth)
			return c
		}
		c.met = append(c.met, next)
		l := i.links[next]
		if l == nil {
			var from *link
			if len(c.links) > 0 {
				from = c.links[len(c.links)-1]
			}
			c.err = missing(next, from)
			return c
		}
		c.links = append(c.links, l)
		c.perNamespace = c.perNamespace || l.perNamespace
		if l.subject.Kind() != kindRole {
			break
		}
		next = l.source()
	}
	c.err = i.complete(ctx, c)
	return c
}

// circle returns the names of the subjects in a circle, for error texts.
func circle(met []auth.Subject, again auth.Subject) string {
	var names []string
	for _, subject := range met[slices.Index(met, again):] {
		names = append(names, nameOf(subject))
	}
	return strings.Join(append(names, nameOf(again)), " > ")
}

// complete fills in the attributes, the fingerprint and any static keys of a chain whose links are
// all known.
func (i *Identities) complete(ctx context.Context, c *chain) error {
	root := c.links[len(c.links)-1]
	// values are what enters the fingerprint besides the links: static keys, or the UID of a
	// ServiceAccount.
	var values []string
	switch root.subject.Kind() { //nolint:exhaustive // the kinds of AWS identities besides have no values
	case kindStatic:
		found, err := i.keysOf(root)
		if err != nil {
			return err
		}
		c.keys, values = found, found.values()
	case kindServiceAccount:
		account, err := i.accountOf(ctx, root)
		if err != nil {
			return err
		}
		values = append(values, account.UID)
	}
	fingerprint := auth.Fingerprint(nil, values...)
	for _, l := range slices.Backward(c.links) {
		attributes, err := l.request.Attributes()
		if err != nil {
			return refuse(auth.CodeIdentityInvalid, string(auth.CodeIdentityInvalid), l.subject,
				"correct the spec of "+l.String(), "%s: %v", l, err)
		}
		c.attributes = attributes
		fingerprint = auth.Fingerprint(attributes, l.subject.String(), l.uid, fingerprint)
	}
	c.fingerprint = fingerprint
	return nil
}

// account returns the chain's first identity as an auth.Account. If the chain has a session per
// namespace, the account is for this namespace only.
func (c *chain) account(namespace string) (auth.Account, error) {
	first := c.links[0]
	account := auth.Account{Subject: first.subject, UID: first.uid, Attributes: c.attributes, Fingerprint: c.fingerprint}
	if !c.perNamespace || namespace == "" {
		return account, nil
	}
	// The suffix gives each namespace its own fingerprint. Identities.unused finds the namespace
	// after the first "@". This works because the hash contains no "@".
	account.Fingerprint += "@" + namespace
	if !first.perNamespace {
		return account, nil
	}
	request := first.request
	request.Name += "@" + namespace
	var err error
	account.Attributes, err = request.Attributes()
	return account, err
}

// admits returns an error if the namespace may not use the chain. It checks the grants in the order
// of the chain, and the error is about the first identity that refuses. chained says that the chain
// is used as the source of another identity. In that case, the caller must have checked the grant
// of this other identity.
func (i *Identities) admits(c *chain, namespace string, chained bool) error {
	for depth, l := range c.links {
		if chained {
			depth++
		}
		if l.subject.Kind() == kindServiceAccount {
			if l.subject.Namespace() != namespace {
				return notGranted(l, depth, namespace, "an identity of another namespace")
			}
			continue
		}
		if l.sourceOnly && depth == 0 {
			return refuse(auth.CodeNotGranted, meta.ReasonSourceOnly, l.subject,
				"name an identity that has this one as its source", "%s is a source of other identities only (spec.sourceOnly)", l)
		}
		labels := i.labels(namespace)
		if labels == nil {
			return notGranted(l, depth, namespace, "there is no such namespace")
		}
		if decision := l.grant.Decide(namespace, labels); !decision.Allowed {
			return notGranted(l, depth, namespace, decision.Link)
		}
	}
	return c.err
}

// keys are static keys of AWS.
type keys struct {
	accessKeyID, secretAccessKey, sessionToken auth.Secret

	refused error // why the keys cannot be used; the text contains no keys
}

// values returns the keys as text.
func (k keys) values() []string {
	return []string{k.accessKeyID.Reveal(), k.secretAccessKey.Reveal(), k.sessionToken.Reveal()}
}

// equal reports whether k and other are the same keys, or are refused for the same reason.
func (k keys) equal(other keys) bool {
	if k.refused != nil || other.refused != nil {
		return k.refused != nil && other.refused != nil && k.refused.Error() == other.refused.Error()
	}
	return slices.Equal(k.values(), other.values())
}

// keysOf returns the keys of a static identity. Callers hold mu.
func (i *Identities) keysOf(l *link) (keys, error) {
	switch {
	case i.secretNamespace == "":
		return keys{}, refuse(auth.CodeIdentityInvalid, meta.ReasonStaticIdentityNotForSources, l.subject,
			"use an identity whose chain ends in an AWSClusterControllerIdentity; for objects that fetch, the administrator can also set identity.sourcesReadStaticKeys of the Helm chart", "this program does not read static keys")
	case l.namespace != "" && l.namespace != i.secretNamespace:
		return keys{}, refuse(auth.CodeIdentityInvalid, meta.ReasonSecretNamespaceRefused, l.subject,
			"move the Secret to namespace "+i.secretNamespace+", and leave out spec.secretRef.namespace",
			"%s names a Secret of another namespace than %s, which is never read", l, i.secretNamespace)
	}
	found, ok := i.secrets[l.secret]
	where := fmt.Sprintf("Secret %s/%s", i.secretNamespace, l.secret)
	switch {
	case !ok:
		return keys{}, refuse(auth.CodeIdentityInvalid, meta.ReasonSecretRefused, l.subject,
			"create it, with that type", "there is no %s of type %s", where, secretType)
	case found.refused != nil:
		return keys{}, refuse(auth.CodeIdentityInvalid, meta.ReasonSecretRefused, l.subject,
			"correct the Secret", "%s: %v", where, found.refused)
	}
	return found, nil
}

// accountOf returns the ServiceAccount with the namespace and name of an AWSServiceAccountIdentity.
func (i *Identities) accountOf(ctx context.Context, l *link) (auth.Account, error) {
	subject, err := auth.ServiceAccount(l.subject.Namespace(), l.subject.Name())
	if err != nil {
		return auth.Account{}, err
	}
	account, err := i.accounts.Lookup(ctx, subject)
	if err != nil {
		return auth.Account{}, refuse(auth.CodeSubjectNotFound, string(auth.CodeSubjectNotFound), l.subject,
			"create the ServiceAccount: Lanyard never does",
			"%s stands for ServiceAccount %s/%s, which does not exist", l, subject.Namespace(), subject.Name())
	}
	return account, nil
}
