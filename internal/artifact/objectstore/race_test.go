//go:build race

package objectstore_test

// raceDetector: tests run some ten times slower.
const raceDetector = true
