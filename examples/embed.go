// Package examples holds the manifests of the demonstration, so that the
// command lanyard up can apply them without a copy of the repository; and what is
// in the cloud and the registry that they are about.
package examples

import (
	"bytes"
	"embed"
	"io/fs"
)

//go:embed *.yaml
var files embed.FS

//go:embed artifacts
var artifacts embed.FS

//go:embed cloud/cloud.yaml
var cloud []byte

// ExpectAnnotation says what must come of an object of the demonstration:
// "pulled", which is also meant where it is absent, or "refused:" and the reason
// of the object's condition Ready, such as "refused:TrustRefused".
const ExpectAnnotation = "demo.lanyard.dev/expect"

// Files returns the manifests, all at the root of the file system. Those of
// namespaces.yaml must be applied first; the order of the others does not
// matter.
func Files() fs.FS { return files }

// Artifacts returns what the tenants publish, a folder for each tenant by its
// name: the content of <tenant>/app:1.0.0.
func Artifacts() (fs.FS, error) { return fs.Sub(artifacts, "artifacts") }

// Cloud returns the description of the local cloud, YAML.
func Cloud() []byte { return bytes.Clone(cloud) }
