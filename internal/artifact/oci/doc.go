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
// Nothing that a registry sends is trusted. Answers are bounded, and digests are computed from the
// bytes. Hosts that the registry names, such as its token server, are asked by https only, and have
// no private address. A credential goes to the registry and to its token server alone. Every
// failure is an *origin.Error. Its text has no credential and no query of a URL. Of the answer's
// body, the text has only the registry's error code and message, shortened.
//
// The package knows neither clouds nor Kubernetes. Credentials come in as an authn.Authenticator;
// certificates, proxy and the check of dialled addresses come in with the http.RoundTripper.
// Deadlines are the caller's contexts'.
package oci
