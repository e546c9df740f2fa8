package object

import (
	"encoding/json"
	"math/rand/v2"
	"time"
)

// Bounds of the status writes of objects that nobody has asked to be reconciled. With each write,
// the API server decodes, checks and encodes the whole object again, with all that its tenant wrote
// into it. The cluster's database keeps each copy for minutes. The server that an object names can
// cause a write with each answer: new content, or another failure.
const (
	objectWrites        = 10 // of one object at once
	objectWriteEvery    = 10 * time.Second
	namespaceWrites     = 500 // of all objects of a namespace at once: a registry of hundreds may fail and recover
	namespaceWriteEvery = time.Second
	// writeBytes are the bytes of an object that cost as much as a write itself.
	writeBytes = 8 << 10
)

// writes limits the status writes of objects. The zero value is ready for use.
type writes struct{ budget }

// delay returns how long the object has to wait until its status may change again. It is
// reconciled then: what was found earlier could not be published. Objects that have spent their
// budget, or that of their namespace, together come back spread out.
func (w *writes) delay(object spender) time.Duration {
	ofObject, ofNamespace := w.delays(object, objectWriteRate(), namespaceWriteRate())
	pause := max(ofObject, ofNamespace)
	if pause > 0 {
		pause += rand.N(objectWriteEvery) //nolint:gosec // spreads load; not a secret
	}
	return pause
}

// count counts a write of an object, which is what the API server answered to the write.
func (w *writes) count(object spender, written Object) {
	w.spend(object, writeCost(written), objectWriteRate(), namespaceWriteRate())
}

// writeCost is how many writes of a small object a write of this object counts for.
func writeCost(o Object) int {
	data, err := json.Marshal(o)
	if err != nil {
		return objectWrites // cannot happen: the API server sent the object as JSON
	}
	return 1 + len(data)/writeBytes
}

func objectWriteRate() rate    { return rate{objectWrites, objectWriteEvery} }
func namespaceWriteRate() rate { return rate{namespaceWrites, namespaceWriteEvery} }
