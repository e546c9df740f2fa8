//go:build race

package objectstore_test

// raceDetector says that the race detector is on: tests run about ten times slower.
const raceDetector = true
