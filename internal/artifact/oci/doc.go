// Package oci reads and writes artifacts in OCI registries (OCI distribution specification 1.1).
//
// A pull has four steps after Connect, and each step can fail on its own:
//
//	repo, err := oci.ParseURL("oci://registry.example/team/app")
//	client, err := oci.Connect(ctx, repo, oci.Options{Auth: auth, Transport: transport})
//	resolved, err := client.Resolve(ctx, oci.Reference{SemVer: ">=1.0.0"}) // asks for a digest only
//	manifest, err := client.Fetch(ctx, resolved)
//	layer, err := manifest.Select(oci.LayerSelector{})
//	stream, err := client.Open(ctx, layer) // verified while it is read
//
// Nothing that a registry sends is trusted. Answers are bounded, and digests are computed from the
// bytes. The registry can refer to other hosts, such as its token server. These hosts need https
// and must not have a private address. A credential goes only to the registry and to its token
// server. Failures of a registry, of its answers and of references are an *origin.Error. Its text
// contains no credential and no URL query. Of an answer's body, it contains only the registry's
// error code and message, shortened.
//
// The package is independent of clouds and Kubernetes. Credentials come from an
// authn.Authenticator. Certificates, proxy and the check of dialled addresses belong to the
// http.RoundTripper. Deadlines come from the callers' contexts.
package oci
