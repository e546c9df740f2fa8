package identity

import (
	"slices"
	"strings"

	"github.com/lanyard-dev/lanyard/auth"
)

// labelsChanged notifies the subscribers after a change of a namespace's labels. It reports the
// namespace's use of an identity if any grant in the identity's chain now decides differently. This
// includes a use that stays refused, because the refusal may now name another identity.
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

// regranted returns the notifications for a link whose grant or sourceOnly has changed. The
// dependents are all identities that have this link in their chain. If a namespace gained or lost
// the grant, its use of each dependent is reported. If sourceOnly changed, all uses of the link
// itself are reported too. Credentials that nobody may use any more are dropped. Callers hold mu.
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

// unused returns which credentials of a path's first identity must be dropped after some namespaces
// have lost the right to use the path: all of them if no namespace may use the path any more,
// otherwise only the sessions that were made for one of these namespaces. Callers hold mu.
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
