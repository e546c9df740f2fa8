// Package e2e holds the end-to-end tests. They are black-box tests of the built programs, with real
// services and clients. The programs are in bin/; `make e2e` builds them first.
//
// All tests share one cluster and the local cloud. The shared cluster has a Kubernetes API server
// (dev/controlplane). Its lanyard-controller runs under the program's own ServiceAccount, with the
// permissions of the chart. This lanyard-controller is built with the race detector.
//
// Servers of other projects store the content:
//   - CNCF Distribution has the images of the registries at AWS, Azure and Google.
//   - gofakes3, Azurite and fake-gcs-server have the buckets at AWS, Azure and Google. They check
//     no permissions: the local cloud checks each request before it reaches them.
//   - MinIO has further buckets, and checks permissions itself.
//
// Unmodified programs of other projects use or verify what Kubernetes and Lanyard issue:
//   - The clouds' own clients use ServiceAccount tokens of the shared cluster, and files that
//     Lanyard renders. These clients are the aws command, and the libraries of Azure, Google and
//     Alibaba Cloud for Node.
//   - kubectl, skopeo and Vault's JWT plugin also use files that Lanyard renders.
//   - MinIO's STS verifies ServiceAccount tokens.
//
// Lanyard's own issuer has its own cluster in the local cloud ([TestIssuer]). This cluster has the
// chart's programs and permissions. The programs are killed while the issuer's keys rotate.
// Services of other projects verify the issuer's tokens: the shared cluster's API server, Vault's
// JWT plugin, Apache's mod_auth_openidc and MinIO.
//
// Bindings have two clusters of their own ([TestBindings], [TestRenewals]). In the second cluster,
// a consumer presents the credentials in Secrets all the time.
//
// SPIFFE has its own cluster ([TestSPIFFE]). Apache, CNCF Distribution, NATS, the shared cluster's
// API server and SPIFFE's own library verify its SVIDs.
//
// Each test has its own namespaces, cloud identities and repositories. It first calls beside() or
// alone(). Tests that call beside() run in parallel, and use their own names. Tests that call
// alone() affect all objects of the shared cluster. They run first, one at a time, and give the
// reason.
//
// A shard is a group of objects with its own controller. A test takes a shard if it needs another
// configuration of the controller. The test starts the shard's controller, which is built without
// the race detector, as shipped. Clusters and shards are few, to bound the memory of a run.
//
// After the last test, the API server's audit log is checked.
package e2e
