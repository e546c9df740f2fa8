//go:build !concurrent

// These tests start no goroutine, so the race detector would only slow them down.

package chart

// Notes returns what Helm prints after the installation of a release.
func Notes(release Release) (string, error) {
	files, err := renderFiles(release)
	return files["lanyard/templates/NOTES.txt"], err
}
