// Package e2e holds the end-to-end tests: black-box tests of the built programs against real
// counterparties. All tests share one cluster and the local cloud. The cluster has a Kubernetes API
// server (dev/controlplane). The cloud has distribution as the registry of all three clouds. The
// program lanyard-controller runs under its ServiceAccount with the permissions of the chart. Each
// test has its own namespaces, cloud identities and repositories. The shared cluster's controller
// is built with the race detector. The controllers of the shards, which tests start themselves, are
// built as shipped.
//
// Lanyard's own issuer has its own cluster in the cloud ([TestIssuer]), with the chart's programs
// and permissions. Services of other projects verify its tokens: the shared cluster's API server,
// Vault's JWT plugin, Apache's mod_auth_openidc and MinIO. The programs are killed while the
// issuer's keys rotate.
//
// Bindings have two clusters of their own ([TestBindings], [TestRenewals]). In the second cluster,
// a consumer presents the credentials in Secrets all the time.
//
// SPIFFE also has its own cluster ([TestSPIFFE]). Apache, distribution, NATS, the shared cluster's
// API server and SPIFFE's own library verify its SVIDs.
//
// The programs are in bin/; `make e2e` builds them first. MinIO's STS also verifies the
// ServiceAccount tokens. The clouds' own clients use these tokens: the aws command, and the
// libraries of Azure, Google and Alibaba Cloud for Node. These clients, Vault's JWT plugin, kubectl
// and skopeo also use the files that Lanyard renders for them. Buckets are at MinIO, gofakes3,
// Azurite and fake-gcs-server. The last three are behind the local cloud's checks.
//
// Each test begins by saying what it shares. Most tests run in parallel (beside), with their own
// names. Tests that need another configuration of the controller take a shard, and start a
// controller for the shard's objects. Tests that affect all objects of the shared cluster run first
// and one at a time, and say why (alone). Clusters and shards are few, to bound the memory of a
// run. After the last test, the API server's audit log is checked.
package e2e
