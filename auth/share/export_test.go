package share

// Remaining returns what p counts: used places, queues and waiting callers. A test expects three
// zeros after all callers have left. For the used places, p has a map and a counter, and users is
// the sum of both. For the queues, p has a map and a list, and queues is the sum of both. So a test
// notices if only one of the two is wrong.
func Remaining(p *Places) (users, queues, waiting int) {
	return len(p.users) + p.used, len(p.queues) + len(p.turns), p.waiting
}
