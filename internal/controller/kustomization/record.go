package kustomization

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"sync"

	"k8s.io/apimachinery/pkg/types"

	"github.com/lanyard-dev/lanyard/internal/apply"
)

// records remember what was applied for each Kustomization. They have no manifest and no value.
type records struct {
	secret [32]byte // key of the hashes

	mu    sync.Mutex // guards known
	known map[types.UID]record
}

// record is what was applied for one Kustomization.
type record struct {
	// input is the hash of all that the manifests depend on; zero if they were not applied.
	input hash
	// inventory is status.inventory as it was last read or written.
	inventory []apply.Entry
	versions  *apply.Versions
}

type hash [sha256.Size]byte

func newRecords() *records {
	m := &records{known: map[types.UID]record{}}
	_, _ = rand.Read(m.secret[:]) // never fails
	return m
}

// hash returns the hash of all that the manifests of a plan depend on. It is keyed, so that nobody
// can guess secret values from it.
func (m *records) hash(p plan, values map[string]string) (hash, error) {
	// json writes the keys of maps in order.
	text, err := json.Marshal([]any{p.account.String(), p.reference.Digest, p.revision, p.spec, p.common, p.force, p.ignore, values})
	if err != nil {
		return hash{}, fmt.Errorf("encode the spec: %w", err)
	}
	sum := hmac.New(sha256.New, m.secret[:])
	sum.Write(text)
	return hash(sum.Sum(nil)), nil
}

func (m *records) get(uid types.UID) (record, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	r, ok := m.known[uid]
	return r, ok
}

func (m *records) set(uid types.UID, r record) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.known[uid] = r
}

func (m *records) forget(uid types.UID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.known, uid)
}
