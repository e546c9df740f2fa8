package identity

import (
	"slices"
	"strings"

	"github.com/lanyard-dev/lanyard/auth"
)

// labelsChanged notifies the subscribers after a change of a namespace's labels. The notified uses
// are those of each identity in whose chain a grant now decides differently about the namespace.
// Another grant may still refuse. Even then the text of the refusal can change, because it names
// the first grant that refuses.
func (i *Identities) labelsChanged(namespace string, last, next map[string]string) {
	var c change
	i.mu.Lock()
	for subject, l := range i.links {
		if l.subject.Kind() == kindServiceAccount {
			continue // the identity's namespace decides, not the labels
		}
		path := i.path(subject)
		if slices.ContainsFunc(path, func(s auth.Subject) bool {
			l := i.links[s]
			return l != nil && l.admits(namespace, last) != l.admits(namespace, next)
		}) {
			c.uses = append(c.uses, Use{subject, namespace})
		}
		if i.lends(path, namespace, last) && !i.lends(path, namespace, next) {
			c.dropped = append(c.dropped, i.unused(path, []string{namespace})...)
		}
	}
	i.mu.Unlock()
	i.notify(c)
}

// regranted returns the change for all chains with a link whose grant changed from last to next.
// The uses of the change are those of the namespaces that gain or lose the link. If sourceOnly
// changed, all uses of the link itself are added. The change drops the credentials that nobody may
// use any more. Callers hold mu.
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

// lends reports whether every known identity of a path admits the namespace. Callers hold mu.
func (i *Identities) lends(path []auth.Subject, namespace string, labels map[string]string) bool {
	for _, subject := range path {
		if l := i.links[subject]; l != nil && !l.admits(namespace, labels) {
			return false
		}
	}
	return true
}

// unused returns those credentials of a path's first identity that nobody may use any more. The
// namespaces in lost have just lost the identity. If no namespace may use the path, unused returns
// all credentials. Otherwise unused returns the sessions of the namespaces in lost, if an identity
// of the path has a session for each namespace. Shared sessions stay. Callers hold mu.
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
