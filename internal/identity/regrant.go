package identity

import (
	"slices"
	"strings"

	"github.com/lanyard-dev/lanyard/auth"
)

// labelsChanged notifies the subscribers after the labels of a namespace have changed. For each
// identity, it looks for a grant in the identity's chain that has changed its decision. Such a
// grant admitted the namespace before and refuses it now, or the reverse. If there is one, the
// subscribers get the namespace's [Use] of the identity. This is so even if other grants refuse the
// namespace before and after: the error may now name another identity.
//
// If the namespace may no longer use the identity, labelsChanged also drops the credentials that
// [Identities.unused] selects.
func (i *Identities) labelsChanged(namespace string, last, next map[string]string) {
	var c change
	i.mu.Lock()
	for subject, l := range i.links {
		if l.subject.Kind() == kindServiceAccount {
			continue // such an identity serves only its own namespace, whatever the labels
		}
		path := i.path(subject)
		if slices.ContainsFunc(path, func(s auth.Subject) bool {
			l := i.links[s]
			return l != nil && l.admits(namespace, last) != l.admits(namespace, next)
		}) {
			c.uses = append(c.uses, Use{subject, namespace})
			c.sources = append(c.sources, path[1:]...)
		}
		if i.lends(path, namespace, last) && !i.lends(path, namespace, next) {
			c.dropped = append(c.dropped, i.unused(path, []string{namespace})...)
		}
	}
	i.mu.Unlock()
	i.notify(c)
}

// regranted returns the notifications for an identity whose grant or sourceOnly has changed. The
// arguments last and next are the identity before and after the change. The dependents are the
// identity itself, and all identities that have it in their chain. The notifications are:
//   - for each namespace that gained or lost the grant: one [Use] per dependent, with this
//     namespace
//   - if sourceOnly has changed: a Use of the identity for all namespaces
//   - a drop of the credentials that nobody may use any more
//
// Callers hold mu.
func (i *Identities) regranted(last, next *link, dependents []auth.Subject) change {
	var told, lost []string // namespaces
	i.namespaces.Range(func(namespace string, labels map[string]string) bool {
		before, now := last.admits(namespace, labels), next.admits(namespace, labels)
		if before != now {
			told = append(told, namespace)
		}
		if before && !now {
			lost = append(lost, namespace)
		}
		return true
	})
	var c change
	if last.sourceOnly != next.sourceOnly {
		c.uses = append(c.uses, Use{Identity: next.subject})
	}
	for _, subject := range dependents {
		path := i.path(subject)
		for _, namespace := range told {
			c.uses = append(c.uses, Use{subject, namespace})
		}
		others := slices.DeleteFunc(slices.Clone(path), func(s auth.Subject) bool { return s == next.subject })
		withdrawn := slices.DeleteFunc(slices.Clone(lost), func(namespace string) bool {
			return !i.lends(others, namespace, i.labels(namespace))
		})
		c.dropped = append(c.dropped, i.unused(path, withdrawn)...)
	}
	return c
}

// lends reports whether every identity in path admits the namespace. It skips unknown identities.
// Callers hold mu.
func (i *Identities) lends(path []auth.Subject, namespace string, labels map[string]string) bool {
	for _, subject := range path {
		if l := i.links[subject]; l != nil && !l.admits(namespace, labels) {
			return false
		}
	}
	return true
}

// unused returns which credentials of an identity must be dropped. The argument path has this
// identity first, and then its sources. The argument lost has the namespaces that have just lost
// the right to use the identity. If lost is empty, nothing is dropped. If no namespace may use the
// identity any more, all its credentials are dropped. Otherwise, only the credentials of sessions
// for a namespace in lost are dropped. Callers hold mu.
func (i *Identities) unused(path []auth.Subject, lost []string) []drop {
	if len(lost) == 0 {
		return nil
	}
	used := false
	i.namespaces.Range(func(namespace string, labels map[string]string) bool {
		used = i.lends(path, namespace, labels)
		return !used
	})
	if !used {
		return []drop{{path[0], everyKey}}
	}
	for _, subject := range path {
		if l := i.links[subject]; l != nil && l.perNamespace {
			return []drop{{path[0], func(key auth.Key) bool {
				_, namespace, own := strings.Cut(key.IdentityFingerprint, "@")
				return own && slices.Contains(lost, namespace)
			}}}
		}
	}
	return nil
}
