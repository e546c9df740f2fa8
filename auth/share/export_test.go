package share

// Remaining counts what p still records about users, queues and waiting callers. Each result is
// zero if no tenant uses a place or waits. The result users is the sum of two counters, so a
// mistake in either counter shows. The same is true of the result queues.
func Remaining(p *Places) (users, queues, waiting int) {
	return len(p.users) + p.used, len(p.queues) + len(p.turns), p.waiting
}
