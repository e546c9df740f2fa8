//go:build race

package bucket_test

// raceDetector: tests run some ten times slower.
const raceDetector = true
