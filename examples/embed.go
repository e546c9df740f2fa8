// Package examples holds the manifests of the demonstration, so that the
// command lanyard up can apply them without a copy of the repository.
package examples

import (
	"embed"
	"io/fs"
)

//go:embed *.yaml
var files embed.FS

// ExpectAnnotation says what must come of an object of the demonstration:
// "pulled", which is also meant where it is absent, or "refused:" and the reason
// of the object's condition Ready, such as "refused:TrustRefused".
const ExpectAnnotation = "demo.lanyard.dev/expect"

// Files returns the manifests, all at the root of the file system. Those of
// namespaces.yaml must be applied first; the order of the others does not
// matter.
func Files() fs.FS { return files }
