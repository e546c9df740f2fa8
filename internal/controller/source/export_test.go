package source

// Times of readiness and of the collector.
const (
	ReadyWithin  = readyWithin
	CollectEvery = collectEvery
	WalkEvery    = walkEvery
)
