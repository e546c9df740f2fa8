//go:build !unix

package sandbox

// pause does nothing: on this system, no child serves.
func (*child) pause() {}

// resume does nothing: on this system, no child serves.
func (*child) resume() {}

// keepInheritedFiles does nothing: on this system, no child serves.
func keepInheritedFiles() {}
