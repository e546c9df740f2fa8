package source

// Constants for package source_test.
const (
	ReadyWithin  = readyWithin
	CollectEvery = collectEvery
	WalkEvery    = walkEvery
)
