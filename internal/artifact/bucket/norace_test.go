//go:build !race

package bucket_test

const raceDetector = false
