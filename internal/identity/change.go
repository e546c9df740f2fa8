package identity

import (
	"slices"

	"github.com/lanyard-dev/lanyard/auth"
)

// Use pairs an identity with a namespace whose objects use the identity.
type Use struct {
	// Identity is the AWS identity that the objects use.
	Identity auth.Subject
	// Namespace is the namespace of the objects; empty for the objects of all namespaces.
	Namespace string
}

// Subscribe implements [auth.AccountReader]. It registers a function that is called promptly for
// each identity whose cached credentials became invalid.
func (i *Identities) Subscribe(changed func(auth.Subject)) {
	i.SubscribeDrops(func(who auth.Subject, _ func(auth.Key) bool) { changed(who) })
}

// SubscribeDrops registers a function that is called promptly for each identity whose cached
// credentials became invalid. Credentials become invalid when an object that the identity needs
// changes. They also become invalid when nobody may use them any more. The function stale selects
// the cache keys of the invalid credentials. The token cache must be the first subscriber. Then it
// drops the credentials before other subscribers are called.
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

// SubscribeUsers registers a function that is called promptly for each identity that may now have
// more or fewer users. These are the sources of an identity that was created, changed or deleted,
// or whose grant now decides otherwise on a namespace. The objects that use an identity also use
// its sources.
func (i *Identities) SubscribeUsers(changed func(source auth.Subject)) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.recounted = append(i.recounted, changed)
}

// change holds the notifications to send to subscribers after objects in memory have changed.
type change struct {
	dropped []drop
	uses    []Use
	sources []auth.Subject // their number of users may have changed
}

// drop selects which credentials of an identity must be dropped.
type drop struct {
	who   auth.Subject
	stale func(auth.Key) bool
}

func everyKey(auth.Key) bool { return true }

// whole returns the notifications for a change that affects all uses of these identities. If
// withdrawn is true, all credentials of the identities are dropped.
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

// notify calls the subscribers after the objects in memory have changed. The token cache is the
// first subscriber: it drops the credentials that became invalid. notify runs in the goroutine of
// an informer. So the informer reports its next change only after the cache has dropped these
// credentials.
func (i *Identities) notify(c change) {
	i.mu.Lock()
	dropped, changed, recounted := slices.Clone(i.dropped), slices.Clone(i.changed), slices.Clone(i.recounted)
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
	for _, subscriber := range recounted {
		for _, source := range c.sources {
			subscriber(source)
		}
	}
}
