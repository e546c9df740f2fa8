package source

import "github.com/lanyard-dev/lanyard/internal/controller/object"

// Times of readiness and of the collector.
const (
	ReadyWithin  = readyWithin
	CollectEvery = collectEvery
	WalkEvery    = walkEvery
)

// CheckBounds refuses an interval or a timeout that the schema does not allow.
func CheckBounds(v object.View) error { return view{View: v}.checkBounds() }
