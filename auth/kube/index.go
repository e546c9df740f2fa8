package kube

import (
	"maps"
	"sync"

	"github.com/puzpuzpuz/xsync/v4"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	toolscache "k8s.io/client-go/tools/cache"

	"github.com/lanyard-dev/lanyard/auth"
)

// record is what memory holds of an account besides its subject, which is the key.
type record struct {
	uid        string
	attributes map[string]string // shared with the informer's object, never written
	tooLong    string            // the annotation for which the account is refused; empty for none
}

// record makes a record of an account's metadata.
func (a Annotations) record(account *metav1.PartialObjectMetadata) record {
	kept := a.keep(account.Annotations)
	return record{uid: string(account.UID), attributes: kept, tooLong: a.tooLong(kept)}
}

// account is the record as its subject's account.
func (r record) account(subject auth.Subject) (auth.Account, error) {
	if r.tooLong != "" {
		return auth.Account{}, annotationTooLong(subject, r.tooLong)
	}
	return auth.Account{Subject: subject, UID: r.uid, Attributes: r.attributes}, nil
}

// index is the memory of accounts, and the event handler that feeds it.
type index struct {
	annotations Annotations
	records     *xsync.Map[auth.Subject, record]

	mu          sync.RWMutex
	subscribers []func(auth.Subject) // guarded by mu; only ever appended to
}

var _ toolscache.ResourceEventHandler = (*index)(nil)

func newIndex(annotations Annotations) *index {
	return &index{annotations: annotations, records: xsync.NewMap[auth.Subject, record]()}
}

func (x *index) subscribe(changed func(auth.Subject)) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.subscribers = append(x.subscribers, changed)
}

// OnAdd implements the event handler of an informer, which calls its methods one at a time.
func (x *index) OnAdd(object any, initial bool) { x.set(object, initial) }

// OnUpdate implements the event handler of an informer.
func (x *index) OnUpdate(_, object any) { x.set(object, false) }

// OnDelete implements the event handler of an informer.
func (x *index) OnDelete(object any) {
	if missed, ok := object.(toolscache.DeletedFinalStateUnknown); ok {
		// The watch missed the deletion. Whatever state is kept with the key may be old; the key is all we need.
		if namespace, name, err := toolscache.SplitMetaNamespaceKey(missed.Key); err == nil {
			x.remove(namespace, name)
		}
		return
	}
	if object, ok := object.(*metav1.PartialObjectMetadata); ok {
		x.remove(object.Namespace, object.Name)
	}
}

// set stores an account as it is now. Initially says that it was there when the watch began.
func (x *index) set(object any, initially bool) {
	current, ok := object.(*metav1.PartialObjectMetadata)
	if !ok {
		return
	}
	if current.DeletionTimestamp != nil {
		x.remove(current.Namespace, current.Name) // it only waits for finalizers
		return
	}
	subject, err := auth.ServiceAccount(current.Namespace, current.Name)
	if err != nil {
		return // nobody can ask for it either
	}
	next := x.annotations.record(current)
	last, known := x.records.Load(subject)
	if known && last.uid == next.uid && maps.Equal(last.attributes, next.attributes) {
		return
	}
	x.records.Store(subject, next)
	if known || !initially {
		x.tell(subject)
	}
}

func (x *index) remove(namespace, name string) {
	subject, err := auth.ServiceAccount(namespace, name)
	if err != nil {
		return
	}
	x.records.Delete(subject)
	x.tell(subject) // even if it was not known: a live read may have known it
}

// tell runs after the change of records: whoever is told must find the new state. It runs in the informer's goroutine, so that the
// account's tokens are gone before the next change is heard; [Accounts.Subscribe] says what that asks of subscribers.
func (x *index) tell(subject auth.Subject) {
	x.mu.RLock()
	subscribers := x.subscribers
	x.mu.RUnlock()
	for _, changed := range subscribers {
		changed(subject)
	}
}
