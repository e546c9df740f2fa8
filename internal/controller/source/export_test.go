package source

// Times of readiness and of the collector.
const (
	ReadyWithin  = readyWithin
	CollectEvery = collectEvery
	WalkEvery    = walkEvery
)

// CheckBounds refuses an interval or a timeout that the schema does not allow.
func (v View) CheckBounds() error { return v.checkBounds() }
