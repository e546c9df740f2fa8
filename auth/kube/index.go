package kube

import (
	"context"
	"fmt"
	"maps"
	"sync"

	"github.com/puzpuzpuz/xsync/v4"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/lanyard-dev/lanyard/auth"
)

// record is an account in an index. The key in the index is the account's subject.
type record struct {
	uid        string
	attributes map[string]string // shared with the informer's object, never written
	// fingerprint is the fingerprint of the attributes; see fingerprintOf.
	fingerprint string
	generation  int64 // of the object's spec; 0 if no token depends on the spec
	refused     error // why the account is refused, or nil
}

// account returns the account of the subject, or the reason why the account is refused.
func (r record) account(subject auth.Subject) (auth.Account, error) {
	if r.refused != nil {
		return auth.Account{}, r.refused
	}
	return auth.Account{Subject: subject, UID: r.uid, Attributes: r.attributes, Fingerprint: r.fingerprint}, nil
}

func (r record) equal(other record) bool {
	return r.uid == other.uid && r.generation == other.generation && maps.Equal(r.attributes, other.attributes)
}

// source describes how an index reads the objects of one kind.
type source struct {
	// subject returns the subject of the object with this namespace and name.
	subject func(namespace, name string) (auth.Subject, error)
	// record makes a record of an object. It returns false if the object has an unexpected
	// Go type.
	record func(subject auth.Subject, object any) (record, bool)
}

// index stores the accounts of one kind in memory. It is the event handler of their informer.
//
// It notifies its subscribers after it has changed the records, so that subscribers find the new
// state. It calls them in the informer's goroutine, so that the account's tokens are dropped before
// the next change arrives. Subscribers must therefore return at once; see [Accounts.Subscribe].
type index struct {
	subscribers[auth.Subject]

	source  source
	records *xsync.Map[auth.Subject, record]
}

var _ toolscache.ResourceEventHandler = (*index)(nil)

func newIndex(s source) *index {
	return &index{source: s, records: xsync.NewMap[auth.Subject, record]()}
}

// watch registers the handler for all objects that have the kind of the given object. Errors
// contain the given plural name of the kind, such as "ServiceAccounts".
func watch(
	ctx context.Context, informers Informers, objects string, object client.Object, handler toolscache.ResourceEventHandler,
) (watching toolscache.ResourceEventHandlerRegistration, err error) {
	informer, err := informers.GetInformer(ctx, object, cache.BlockUntilSynced(false))
	if err == nil {
		watching, err = informer.AddEventHandler(handler)
	}
	if err != nil {
		return nil, fmt.Errorf("watch %s: %w", objects, err)
	}
	return watching, nil
}

// lookup returns subject's account from memory.
func (x *index) lookup(subject auth.Subject) (auth.Account, error) {
	known, ok := x.records.Load(subject)
	if !ok {
		return auth.Account{}, notFound(auth.StageSubject, subject, "does not exist, or is too new to be known")
	}
	return known.account(subject)
}

// read gets the subject's object live, and returns its account. An object that is being deleted
// counts as deleted.
func (x *index) read(
	ctx context.Context, reader client.Reader, by caller, subject auth.Subject, object client.Object,
) (auth.Account, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	err := reader.Get(ctx, client.ObjectKey{Namespace: subject.Namespace(), Name: subject.Name()}, object)
	if err != nil {
		return auth.Account{}, by.failure(ctx, err, auth.StageSubject, subject)
	}
	if object.GetDeletionTimestamp() != nil {
		return auth.Account{}, notFound(auth.StageSubject, subject, "is being deleted")
	}
	current, _ := x.source.record(subject, object)
	return current.account(subject)
}

// OnAdd implements the event handler of an informer. The informer calls the handler's methods one
// at a time.
func (x *index) OnAdd(object any, initial bool) { x.set(object, initial) }

// OnUpdate implements the event handler of an informer.
func (x *index) OnUpdate(_, object any) { x.set(object, false) }

// OnDelete implements the event handler of an informer. If the watch missed the deletion, the
// object may be old or absent, but its name is known.
func (x *index) OnDelete(object any) {
	if name, err := toolscache.DeletionHandlingObjectToName(object); err == nil {
		x.remove(name.Namespace, name.Name)
	}
}

// set stores the account of an object, and notifies the subscribers of a change. They are not
// notified of an account that already existed when the watch began.
func (x *index) set(object any, initially bool) {
	current, ok := object.(metav1.Object)
	if !ok {
		return
	}
	if current.GetDeletionTimestamp() != nil {
		x.remove(current.GetNamespace(), current.GetName()) // only finalizers keep the object
		return
	}
	subject, err := x.source.subject(current.GetNamespace(), current.GetName())
	if err != nil {
		return // no subject can have this name, so no caller asks for it
	}
	next, ok := x.source.record(subject, object)
	if !ok {
		return
	}
	last, known := x.records.Load(subject)
	if known && last.equal(next) {
		return
	}
	x.records.Store(subject, next)
	if known || !initially {
		x.notify(subject)
	}
}

func (x *index) remove(namespace, name string) {
	subject, err := x.source.subject(namespace, name)
	if err != nil {
		return
	}
	x.records.Delete(subject)
	// Notify even if the index does not have the account: a live read may have found it, and its
	// token may be cached.
	x.notify(subject)
}

// notifyAll calls the subscribers for every account in the index.
func (x *index) notifyAll() {
	x.records.Range(func(subject auth.Subject, _ record) bool {
		x.notify(subject)
		return true
	})
}

// subscribers are functions to call for each change. The argument says what changed.
type subscribers[T any] struct {
	mu   sync.RWMutex
	list []func(T) // guarded by mu; only ever appended to
}

func (s *subscribers[T]) subscribe(changed func(T)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.list = append(s.list, changed)
}

// notify calls the subscribers, in the order of their subscription.
func (s *subscribers[T]) notify(change T) {
	s.mu.RLock()
	list := s.list
	s.mu.RUnlock()
	for _, changed := range list {
		changed(change)
	}
}
