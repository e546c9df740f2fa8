package object

import (
	"encoding/json"
	"math/rand/v2"
	"time"
)

// Bounds of the status writes of objects whose reconciliation nobody has requested. With each
// write, the API server decodes, checks and encodes the whole object again, with everything that
// its tenant wrote into it. The cluster's database stores each copy for minutes. The object's
// server can cause a write with each answer: by new content, or by another failure.
const (
	objectWrites     = 10 // writes of one object at once
	objectWriteEvery = 10 * time.Second
	// Writes of all objects of a namespace at once: the registry of hundreds of objects may fail
	// and recover.
	namespaceWrites     = 500
	namespaceWriteEvery = time.Second
	// writeBytes is the number of bytes in an object that cost as much as one more write.
	writeBytes = 8 << 10
)

// writes limits the status writes of objects. The zero value is ready for use.
type writes struct{ budget }

// delay returns how long the object has to wait until its status may change again. The object is
// not reconciled earlier, because the result could not be written. If many objects use up a budget
// together, a random part of the delay spreads them out.
func (w *writes) delay(object spender) time.Duration {
	ofObject, ofNamespace := w.delays(object, objectWriteRate(), namespaceWriteRate())
	pause := max(ofObject, ofNamespace)
	if pause > 0 {
		pause += rand.N(objectWriteEvery) //nolint:gosec // spreads load; not a secret
	}
	return pause
}

// count counts a write of an object. The parameter written is the API server's answer to the write.
func (w *writes) count(object spender, written Object) {
	w.spend(object, writeCost(written), objectWriteRate(), namespaceWriteRate())
}

// writeCost returns the cost of a write of this object, in writes of a small object.
func writeCost(o Object) int {
	data, err := json.Marshal(o)
	if err != nil {
		return objectWrites // cannot happen: the API server sent the object as JSON
	}
	return 1 + len(data)/writeBytes
}

func objectWriteRate() rate    { return rate{objectWrites, objectWriteEvery} }
func namespaceWriteRate() rate { return rate{namespaceWrites, namespaceWriteEvery} }
