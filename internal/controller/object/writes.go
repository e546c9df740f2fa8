package object

import (
	"encoding/json"
	"math/rand/v2"
	"time"
)

// Bounds of the status writes of an object, while no user changes it or asks for its
// reconciliation. With each write, the API server decodes, checks and encodes the whole object
// again, with everything that its tenant wrote into it. The cluster's database stores each copy for
// minutes. A server from which an object fetches can cause a write with each answer: by new
// content, or by another failure.
const (
	objectWrites     = 10 // largest burst of writes of one object
	objectWriteEvery = 10 * time.Second
	// Largest burst of writes of all objects of a namespace. Hundreds of objects may use one
	// registry that fails and recovers.
	namespaceWrites     = 500
	namespaceWriteEvery = time.Second
	// writeBytes is the size in bytes at which a write of an object counts as two writes. Twice
	// this size counts as three writes, and so on.
	writeBytes = 8 << 10
)

// writes limits the status writes of objects. The zero value is ready for use.
type writes struct{ budget }

// delay returns how long the object has to wait until its status may change again. The object is
// not reconciled earlier, because the result could not be written. A random part of the delay
// spreads out objects that use up a budget together.
func (w *writes) delay(object spender) time.Duration {
	ofObject, ofNamespace := w.delays(object, objectWriteRate(), namespaceWriteRate())
	pause := max(ofObject, ofNamespace)
	if pause > 0 {
		pause += rand.N(objectWriteEvery) //nolint:gosec // spreads load; not a secret
	}
	return pause
}

// count counts a write of an object. The cost depends on the object's size after the write.
func (w *writes) count(object spender, written Object) {
	w.spend(object, writeCost(written), objectWriteRate(), namespaceWriteRate())
}

// writeCost returns the number of writes that a write of this object counts as.
func writeCost(o Object) int {
	data, err := json.Marshal(o)
	if err != nil {
		return objectWrites // cannot happen: the API server sent the object as JSON
	}
	return 1 + len(data)/writeBytes
}

func objectWriteRate() rate    { return rate{objectWrites, objectWriteEvery} }
func namespaceWriteRate() rate { return rate{namespaceWrites, namespaceWriteEvery} }
