package object

import (
	"encoding/json"
	"math/rand/v2"
	"time"
)

// Bounds of the status writes of an object. They do not apply when a user changes the object or
// asks for its reconciliation.
//
// An object's status changes when a fetch gets new content or fails in a new way. So the server
// from which the object fetches can cause a write with each answer. For each write, the API server
// decodes, checks and encodes the whole object, with everything that its tenant wrote into it. The
// cluster's database stores each copy for minutes.
const (
	objectWrites     = 10 // largest burst of writes of one object
	objectWriteEvery = 10 * time.Second
	// namespaceWrites is the largest burst of writes of all objects of a namespace together. It is
	// large because hundreds of objects may use one registry. If the registry fails or recovers,
	// all their statuses change at about the same time.
	namespaceWrites     = 500
	namespaceWriteEvery = time.Second
	// writeBytes makes writes of large objects count more. A write counts as 1 + size/writeBytes
	// writes, rounded down. Here size is the object's size in bytes.
	writeBytes = 8 << 10
)

// writes is a limit on the number of status writes of each object and in each namespace. The zero
// value is ready for use.
type writes struct{ budget }

// delay returns how long the object has to wait until its status may change again. Until then the
// object is not reconciled, because the result could not be written. A random part of the delay
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
