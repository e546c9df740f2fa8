//go:build !concurrent

// This file is part of the tests that dev/unit-tests runs without the race detector.

package chart

// Notes returns what Helm prints after the installation of a release.
func Notes(release Release) (string, error) {
	files, err := renderFiles(release)
	return files["lanyard/templates/NOTES.txt"], err
}
