package object

import "time"

// Bounds of the events of objects. A server from which an object fetches can cause many events by
// failing in different ways. The cluster's database stores each event for an hour. The conditions
// show a failure even without an event.
const (
	objectNotices        = 10 // largest burst of events of one object
	objectNoticeEvery    = time.Minute
	namespaceNotices     = 100 // largest burst of events of all objects of a namespace
	namespaceNoticeEvery = 10 * time.Second
)

// notices limits how many events are made for each object and in each namespace. The zero value is
// ready for use.
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
