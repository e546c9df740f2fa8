package kustomization

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"sync"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/lanyard-dev/lanyard/api/toolkit/v1alpha1"
	"github.com/lanyard-dev/lanyard/internal/apply"
)

// Records remember what was applied for each Kustomization. They have no manifest and no value.
type Records struct {
	secret [32]byte // key of the hashes

	mu    sync.Mutex // guards known
	known map[client.ObjectKey]record
}

// record is what was applied for one Kustomization.
type record struct {
	uid types.UID
	// input is the hash of all that the manifests depend on; zero if they were not applied.
	input hash
	// inventory is what status.inventory has, or should have.
	inventory []apply.Entry
	// unsure says that the last write of the inventory may have failed.
	unsure   bool
	versions *apply.Versions
	watch    watch
	attempt  attempt
	// decrypted is what status.decryption should have.
	decrypted *v1alpha1.DecryptionStatus
}

type hash [sha256.Size]byte

// NewRecords returns empty records.
func NewRecords() *Records {
	r := &Records{known: map[client.ObjectKey]record{}}
	_, _ = rand.Read(r.secret[:]) // never fails
	return r
}

// Forget implements [object.Forgetter].
func (r *Records) Forget(_, namespace, name string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.known, client.ObjectKey{Namespace: namespace, Name: name})
}

// hash returns the hash of all that the applied manifests and their history depend on. The hash has a
// key, so that nobody can guess secret values from the hash.
func (r *Records) hash(p plan, cluster string, values map[string]string) (hash, error) {
	// json writes the keys of maps in order.
	text, err := json.Marshal([]any{cluster, p.account.String(), p.reference.Digest, p.revision, p.originRevision, p.spec, p.common, p.force, p.ignore, p.wait, p.listed, p.checks, p.decryption, values})
	if err != nil {
		return hash{}, fmt.Errorf("encode the spec: %w", err)
	}
	sum := hmac.New(sha256.New, r.secret[:])
	sum.Write(text)
	return hash(sum.Sum(nil)), nil
}

// get returns the record of an object. A record of an earlier object of the same name does not
// count.
func (r *Records) get(o *v1alpha1.Kustomization) (record, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	known, ok := r.known[client.ObjectKeyFromObject(o)]
	if !ok || known.uid != o.UID {
		return record{}, false
	}
	return known, true
}

func (r *Records) set(o *v1alpha1.Kustomization, known record) {
	known.uid = o.UID
	r.mu.Lock()
	defer r.mu.Unlock()
	r.known[client.ObjectKeyFromObject(o)] = known
}
