// Package examples embeds the demonstration's manifests, and the content of the demonstration's
// cloud and registries. So the command lanyard up needs no copy of the repository.
package examples

import (
	"bytes"
	"embed"
	"io/fs"
)

//go:embed *.yaml
var files embed.FS

//go:embed namespaces.yaml aws.yaml azure.yaml gcp.yaml refusals.yaml
var withoutIssuer embed.FS

//go:embed namespaces.yaml aws.yaml azure.yaml gcp.yaml issuer.yaml refusals.yaml
var withoutLent embed.FS

//go:embed artifacts
var artifacts embed.FS

//go:embed cloud/cloud.yaml
var cloud []byte

// ExpectAnnotation is the annotation with the expected result of an object of the demonstration.
// The result is "pulled", or "refused:" followed by the reason of the object's condition Ready,
// such as "refused:TrustRefused". Without the annotation, "pulled" is expected.
const ExpectAnnotation = "demo.lanyard.dev/expect"

// Files returns the manifests, all at the root of the file system. Apply namespaces.yaml first;
// the order of the other files does not matter.
func Files() fs.FS { return files }

// WithoutLent returns [Files] without lent.yaml and apply.yaml. The objects in lent.yaml need the
// CRDs of AWS identities, such as AWSClusterRoleIdentity. They also need an AWS identity for
// Lanyard's programs themselves. The objects in apply.yaml need the apply controller.
func WithoutLent() fs.FS { return withoutLent }

// WithoutIssuer returns the files of [WithoutLent] except issuer.yaml. The objects in issuer.yaml
// need Lanyard's own issuer.
func WithoutIssuer() fs.FS { return withoutIssuer }

// Artifacts returns the files that the tenants publish. The folder of a tenant has the tenant's
// name. It holds the content of the artifact <tenant>/app:1.0.0.
func Artifacts() (fs.FS, error) { return fs.Sub(artifacts, "artifacts") }

// Cloud returns the content of the local cloud, as YAML.
func Cloud() []byte { return bytes.Clone(cloud) }
