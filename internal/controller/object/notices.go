package object

import "time"

// Bounds of the events of objects. An event stays in the cluster's database for an hour. A server
// from which an object fetches can cause many events by failing in different ways. The conditions
// show a failure even without an event.
const (
	objectNotices        = 10 // largest burst of events of one object
	objectNoticeEvery    = time.Minute
	namespaceNotices     = 100 // largest burst of events of all objects of a namespace
	namespaceNoticeEvery = 10 * time.Second
)

// notices limits the events of objects. The zero value is ready for use.
type notices struct{ budget }

// take reports whether another event of the object may be made. If it may, take counts the event.
func (n *notices) take(object spender) bool {
	perObject, perNamespace := rate{objectNotices, objectNoticeEvery}, rate{namespaceNotices, namespaceNoticeEvery}
	if ofObject, ofNamespace := n.delays(object, perObject, perNamespace); ofObject > 0 || ofNamespace > 0 {
		return false
	}
	n.spend(object, 1, perObject, perNamespace)
	return true
}
