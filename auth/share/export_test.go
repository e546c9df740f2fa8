package share

// Remaining counts what p still keeps about its users, its queues and its waiting callers. Each
// result is zero if no tenant uses a place or waits. The results users and queues are sums of two
// counters each, so a leftover in either counter makes the sum positive.
func Remaining(p *Places) (users, queues, waiting int) {
	return len(p.users) + p.used, len(p.queues) + len(p.turns), p.waiting
}
