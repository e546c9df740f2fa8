//go:build !race

package objectstore_test

const raceDetector = false
