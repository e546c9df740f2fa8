package identity

import (
	"slices"

	"github.com/lanyard-dev/lanyard/auth"
)

// Use is the use of an identity by the objects of a namespace.
type Use struct {
	// Identity is the identity.
	Identity auth.Subject
	// Namespace is the namespace of the objects; empty for the objects of all namespaces.
	Namespace string
}

// Subscribe implements [auth.AccountReader]: the function changed is called promptly for each
// identity that has at least one credential to drop.
func (i *Identities) Subscribe(changed func(auth.Subject)) {
	i.SubscribeDrops(func(who auth.Subject, _ func(auth.Key) bool) { changed(who) })
}

// SubscribeDrops registers a function that is called promptly for each identity with credentials to
// drop. These credentials are dropped because a value that decides them changed, or because nobody
// may use them any more. The function stale selects the cache keys of these credentials. The token
// cache must be the first subscriber, so that it drops the credentials before other subscribers are
// called.
func (i *Identities) SubscribeDrops(dropped func(who auth.Subject, stale func(auth.Key) bool)) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.dropped = append(i.dropped, dropped)
}

// SubscribeUse registers a function that is called promptly for each use whose result may have
// changed: the identity or its credential changed, or a namespace gained or lost a grant.
func (i *Identities) SubscribeUse(changed func(Use)) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.changed = append(i.changed, changed)
}

// change has the notifications for subscribers after a change of the objects in memory.
type change struct {
	dropped []drop
	uses    []Use
}

// drop selects the credentials of an identity that must be dropped.
type drop struct {
	who   auth.Subject
	stale func(auth.Key) bool
}

func everyKey(auth.Key) bool { return true }

// whole returns the change for all uses of these identities. If withdrawn is true, the change also
// drops all their credentials.
func whole(subjects []auth.Subject, withdrawn bool) change {
	var c change
	for _, subject := range subjects {
		c.uses = append(c.uses, Use{Identity: subject})
		if withdrawn {
			c.dropped = append(c.dropped, drop{subject, everyKey})
		}
	}
	return c
}

// notify calls the subscribers. It runs in the goroutine of an informer, after the objects in
// memory have changed. So the credentials are gone before this informer reports its next change.
func (i *Identities) notify(c change) {
	i.mu.Lock()
	dropped, changed := slices.Clone(i.dropped), slices.Clone(i.changed)
	i.mu.Unlock()
	for _, subscriber := range dropped {
		for _, d := range c.dropped {
			subscriber(d.who, d.stale)
		}
	}
	for _, subscriber := range changed {
		for _, use := range c.uses {
			subscriber(use)
		}
	}
}
