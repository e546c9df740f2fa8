package share

// Remaining returns how many tenants use places, how many have a queue, and how many callers wait.
func Remaining(p *Places) (users, queues, waiting int) {
	return len(p.users) + p.used, len(p.queues) + len(p.turns), p.waiting
}
