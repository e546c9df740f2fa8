package kube

import (
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/puzpuzpuz/xsync/v4"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/lanyard-dev/lanyard/auth"
)

// Annotations are the keys of the ServiceAccount annotations that providers read. A key that ends in "/*" stands for all
// keys with that prefix.
type Annotations []string

// DefaultAnnotations are the annotations by which accounts are mapped to identities of AWS, Azure and GCP.
func DefaultAnnotations() Annotations {
	return Annotations{
		"eks.amazonaws.com/role-arn",
		"azure.workload.identity/*",
		"iam.gke.io/gcp-service-account",
		"gcp.lanyard.dev/*",
	}
}

func (a Annotations) has(key string) bool {
	return slices.ContainsFunc(a, func(known string) bool {
		if prefix, ok := strings.CutSuffix(known, "*"); ok && strings.HasSuffix(prefix, "/") {
			return strings.HasPrefix(key, prefix)
		}
		return key == known
	})
}

// keep is annotations without what no provider reads: annotations itself when that is all of it, nil when nothing is left.
func (a Annotations) keep(annotations map[string]string) map[string]string {
	kept := 0
	for key := range annotations {
		if a.has(key) {
			kept++
		}
	}
	switch kept {
	case 0:
		return nil
	case len(annotations):
		return annotations
	}
	result := make(map[string]string, kept)
	for key, value := range annotations {
		if a.has(key) {
			result[key] = value
		}
	}
	return result
}

// ByObject is for [cache.Options]: it makes a manager's cache keep of the metadata of ServiceAccounts only what [Accounts]
// need, less than 1 KiB per account. ServiceAccounts that the program caches whole, by their Go type, stay whole.
func ByObject(annotations Annotations) map[client.Object]cache.ByObject {
	return map[client.Object]cache.ByObject{
		&corev1.ServiceAccount{}: {Transform: annotations.transform},
	}
}

func (a Annotations) transform(object any) (any, error) {
	full, ok := object.(*metav1.PartialObjectMetadata)
	if !ok {
		return object, nil
	}
	full.ObjectMeta = metav1.ObjectMeta{
		Name:              full.Name,
		Namespace:         full.Namespace,
		UID:               full.UID,
		ResourceVersion:   full.ResourceVersion, // by which informers tell a change from a resync
		DeletionTimestamp: full.DeletionTimestamp,
		Annotations:       a.keep(full.Annotations),
	}
	return full, nil
}

// record is what memory holds of an account besides its subject, which is the key.
type record struct {
	uid        string
	attributes map[string]string // shared with the informer's object, never written
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

// set learns of an account as it is now; initially, as it was when the watch began.
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
	next := record{uid: string(current.UID), attributes: x.annotations.keep(current.Annotations)}
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

// tell runs after the change of records: who is told must find the new state.
func (x *index) tell(subject auth.Subject) {
	x.mu.RLock()
	subscribers := x.subscribers
	x.mu.RUnlock()
	for _, changed := range subscribers {
		changed(subject)
	}
}
