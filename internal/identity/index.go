package identity

import (
	"context"
	"slices"

	"github.com/lanyard-dev/lanyard/auth"
)

// chain returns the chain of an identity: the identity itself, its source, and so on to the root.
// If the chain is cached without an error, chain takes no lock and does not allocate.
func (i *Identities) chain(ctx context.Context, subject auth.Subject) *chain {
	if known, ok := i.chains.Load(subject); ok && known.err == nil {
		return known
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	c := i.follow(ctx, subject)
	if len(c.links) > 0 { // do not cache unknown names: a tenant could fill the memory with them
		i.chains.Store(subject, c)
	}
	return c
}

// labels returns the labels of a namespace; nil if they are not known.
func (i *Identities) labels(namespace string) map[string]string {
	labels, _ := i.namespaces.Load(namespace)
	return labels
}

// path returns the subjects that an identity needs: itself, its source, and so on. The last one may
// be an identity that does not exist. If a source has an unknown kind, the path ends with all
// identities that could be this source. Callers hold mu.
func (i *Identities) path(subject auth.Subject) []auth.Subject {
	met := []auth.Subject{subject}
	for l := i.links[subject]; l != nil && l.subject.Kind() == kindRole && len(met) <= MaxDepth; l = i.links[l.source()] {
		if slices.Contains(met, l.source()) {
			break
		}
		met = append(met, l.sources...)
	}
	return met
}

// sources returns the identities that an identity needs, without the identity itself. Callers hold
// mu.
func (i *Identities) sources(subject auth.Subject) []auth.Subject { return i.path(subject)[1:] }

// dependents returns the identities that have the subject in their chain, and the subject itself.
// Callers hold mu.
func (i *Identities) dependents(subject auth.Subject) []auth.Subject {
	found := []auth.Subject{subject}
	if subject.Kind() == kindServiceAccount {
		return found // an AWSServiceAccountIdentity is never the source of another identity
	}
	for other, l := range i.links {
		if other != subject && l.subject.Kind() == kindRole && slices.Contains(i.path(other), subject) {
			found = append(found, other)
		}
	}
	return found
}

// forget removes the cached chains that need a subject. It returns the identities to which these
// chains belong, and the subject itself. Callers hold mu.
func (i *Identities) forget(subject auth.Subject) []auth.Subject {
	gone := i.dependents(subject)
	for _, s := range gone {
		i.chains.Delete(s)
	}
	return gone
}
