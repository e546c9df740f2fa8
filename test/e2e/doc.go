// Package e2e holds the end-to-end tests: black-box tests of the built programs against real
// counterparties. All tests share one cluster and the local cloud. The cluster has a Kubernetes API
// server (dev/controlplane). The registries at AWS, Azure and Google are CNCF Distribution. The
// program lanyard-controller runs under its ServiceAccount with the permissions of the chart. Each
// test has its own namespaces, cloud identities and repositories. The shared cluster's controller
// is built with the race detector.
//
// Lanyard's own issuer has its own cluster in the cloud ([TestIssuer]), with the chart's programs
// and permissions. Services of other projects verify its tokens: the shared cluster's API server,
// Vault's JWT plugin, Apache's mod_auth_openidc and MinIO. The programs are killed while the
// issuer's keys rotate.
//
// Bindings have two clusters of their own ([TestBindings], [TestRenewals]). In the second cluster,
// a consumer presents the credentials in Secrets all the time.
//
// SPIFFE has its own cluster ([TestSPIFFE]). Apache, CNCF Distribution, NATS, the shared cluster's
// API server and SPIFFE's own library verify its SVIDs.
//
// The programs are in bin/; `make e2e` builds them first. MinIO's STS also verifies the shared
// cluster's ServiceAccount tokens. The clouds' own clients use these tokens: the aws command, and
// the libraries of Azure, Google and Alibaba Cloud for Node. These clients, Vault's JWT plugin,
// kubectl and skopeo also use the files that Lanyard renders for them. Buckets are at MinIO,
// gofakes3, Azurite and fake-gcs-server. The last three are behind the local cloud's checks.
//
// Each test first calls beside() or alone(). Tests that call beside() run in parallel, and use
// their own names. Tests that call alone() affect all objects of the shared cluster: they run
// first, one at a time, and give the reason. A test that needs another configuration of the
// controller takes a shard, a group of objects with its own controller. The test starts this
// controller, which is built without the race detector, as shipped. Clusters and shards are few, to
// bound the memory of a run. After the last test, the API server's audit log is checked.
package e2e
