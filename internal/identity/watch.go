package identity

import (
	"maps"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	toolscache "k8s.io/client-go/tools/cache"

	"github.com/lanyard-dev/lanyard/auth"
	"github.com/lanyard-dev/lanyard/internal/memory"
)

// watch is the event handler of an informer. The informer calls one method at a time.
type watch struct{ set, remove func(object any) }

// OnAdd implements the event handler of an informer.
func (w watch) OnAdd(object any, _ bool) { w.set(object) }

// OnUpdate implements the event handler of an informer.
func (w watch) OnUpdate(_, object any) { w.set(object) }

// OnDelete implements the event handler of an informer. If the watch missed the deletion, OnDelete
// uses the last known state of the object.
func (w watch) OnDelete(object any) {
	if missed, ok := object.(toolscache.DeletedFinalStateUnknown); ok {
		object = missed.Obj
	}
	w.remove(object)
}

// setIdentity stores the current state of an identity. It ignores changes of the status. A deleted
// identity can still be used until its finalizers are gone. An identity that is too large for the
// cache is removed, so nobody can use the identity.
func (i *Identities) setIdentity(object any) {
	if refused(object) {
		i.removeIdentity(object)
		return
	}
	next, ok := linkOf(object)
	if !ok || next.subject.IsZero() {
		return
	}
	i.mu.Lock()
	last := i.links[next.subject]
	if last != nil && last.equal(next) {
		i.mu.Unlock()
		return
	}
	sources := i.sources(next.subject)
	i.links[next.subject] = next
	sources = append(sources, i.sources(next.subject)...)
	stale := i.forget(next.subject)
	c := whole(stale, last != nil)
	if last != nil && last.sameCredential(next) {
		c = i.regranted(last, next, stale)
	}
	c.sources = sources
	i.mu.Unlock()
	i.notify(c)
}

func (i *Identities) removeIdentity(object any) {
	gone, ok := linkOf(object)
	if !ok {
		return
	}
	i.mu.Lock()
	sources := i.sources(gone.subject)
	delete(i.links, gone.subject)
	c := whole(i.forget(gone.subject), true)
	c.sources = sources
	i.mu.Unlock()
	i.notify(c)
}

func (i *Identities) setSecret(object any) {
	secret, ok := object.(*corev1.Secret)
	if !ok || secret.Namespace != i.secretNamespace {
		return
	}
	read := readKeys(secret)
	i.mu.Lock()
	last, known := i.secrets[secret.Name]
	if known && last.equal(read) {
		i.mu.Unlock()
		return
	}
	i.secrets[secret.Name] = read
	i.secretChanged(secret.Name, known)
}

func (i *Identities) removeSecret(object any) {
	secret, ok := object.(*corev1.Secret)
	if !ok || secret.Namespace != i.secretNamespace {
		return
	}
	i.mu.Lock()
	delete(i.secrets, secret.Name)
	i.secretChanged(secret.Name, true)
}

// secretChanged drops the chains and credentials that depend on a Secret. Callers hold mu, and
// secretChanged unlocks it.
func (i *Identities) secretChanged(name string, withdrawn bool) {
	var stale []auth.Subject
	for subject, l := range i.links {
		if l.secret != name || l.subject.Kind() != kindStatic {
			continue
		}
		stale = append(stale, i.forget(subject)...)
	}
	i.mu.Unlock()
	i.notify(whole(stale, withdrawn))
}

// accountChanged drops the chains and credentials that depend on a ServiceAccount.
func (i *Identities) accountChanged(account auth.Subject) {
	if account.Kind() != auth.KindServiceAccount {
		return
	}
	subject, err := auth.Object(kindServiceAccount, account.Namespace(), account.Name())
	if err != nil {
		return
	}
	i.mu.Lock()
	known := i.links[subject] != nil
	stale := i.forget(subject)
	i.mu.Unlock()
	if known {
		i.notify(whole(stale, true))
	}
}

// setNamespace stores the labels of a namespace. A namespace whose labels or finalizers are too
// large counts as absent: no grant admits the namespace.
func (i *Identities) setNamespace(object any) {
	if refused(object) {
		i.removeNamespace(object)
		return
	}
	namespace, ok := object.(*metav1.PartialObjectMetadata)
	if !ok {
		return
	}
	next := namespace.Labels
	if next == nil {
		next = map[string]string{} // nil would mean that the namespace does not exist
	}
	last := i.labels(namespace.Name)
	if last != nil && maps.Equal(last, next) {
		return
	}
	i.namespaces.Store(namespace.Name, next)
	i.labelsChanged(namespace.Name, last, next)
}

// refused reports whether the cache has only a stub of the object, because the object is too large.
func refused(object any) bool {
	o, ok := object.(metav1.Object)
	return ok && memory.Refused(o) != nil
}

func (i *Identities) removeNamespace(object any) {
	namespace, ok := object.(*metav1.PartialObjectMetadata)
	if !ok {
		return
	}
	last, _ := i.namespaces.LoadAndDelete(namespace.Name)
	i.labelsChanged(namespace.Name, last, nil)
}
