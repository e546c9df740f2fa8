// Package oci reads and writes artifacts in OCI registries (OCI distribution specification 1.1).
//
// A pull has four steps, each of which can be refused on its own:
//
//	repo, err := oci.ParseURL("oci://registry.example/team/app")
//	client, err := oci.Connect(ctx, repo, oci.Options{Auth: auth, Transport: transport})
//	resolved, err := client.Resolve(ctx, oci.Reference{SemVer: ">=1.0.0"}) // asks for a digest only
//	manifest, err := client.Fetch(ctx, resolved)
//	layer, err := manifest.Select(oci.LayerSelector{})
//	stream, err := client.Open(ctx, layer) // verified while it is read
//
// Nothing that a registry sends is trusted: answers are bounded, digests are computed from the
// bytes, whatever the registry leads to, its token server included, is asked by https and is no
// private address, and no credential goes to another host than the registry and the token server
// that it names. Every failure is an *origin.Error whose text holds no credential, no query of a
// URL, and of an answer's body only the registry's own error code and message, shortened.
//
// The package knows neither clouds nor Kubernetes. Credentials come in as an authn.Authenticator; certificates, proxy
// and the check of dialled addresses come in with the http.RoundTripper. Deadlines are the caller's contexts'.
package oci
