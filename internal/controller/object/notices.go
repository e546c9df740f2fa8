package object

import "time"

// Bounds of the events of objects. An event stays in the cluster's database for an hour, and an
// object's server can cause another event by another failure. The conditions show a failure even
// without an event.
const (
	objectNotices        = 10 // events of one object at once
	objectNoticeEvery    = time.Minute
	namespaceNotices     = 100 // events of all objects of a namespace at once
	namespaceNoticeEvery = 10 * time.Second
)

// notices limits the events of objects. The zero value is ready for use.
type notices struct{ budget }

// take reports whether another event of the object may be made, and counts it.
func (n *notices) take(object spender) bool {
	perObject, perNamespace := rate{objectNotices, objectNoticeEvery}, rate{namespaceNotices, namespaceNoticeEvery}
	if ofObject, ofNamespace := n.delays(object, perObject, perNamespace); ofObject > 0 || ofNamespace > 0 {
		return false
	}
	n.spend(object, 1, perObject, perNamespace)
	return true
}
