// Package e2e holds the end-to-end tests: black-box tests of the built programs against real
// counterparties. All tests share one world. It has a Kubernetes API server (dev/controlplane) and
// the local cloud, with distribution as the registry of all three clouds. The program
// lanyard-controller runs under the ServiceAccount and the permissions that the chart gives it.
// Each test has namespaces, cloud identities and repositories of its own in it. This controller is
// built with the race detector; those of the second shard, which tests start for themselves, are
// the one that is shipped.
//
// Lanyard's own issuer has a cluster of its own in the cloud ([TestIssuer]), with the programs of
// the chart under the chart's rights. Its tokens are judged by services that are not ours: the
// world's API server, Vault's JWT plugin, Apache's mod_auth_openidc and MinIO. The programs are
// killed while its keys rotate.
//
// Bindings have two clusters of their own ([TestBindings], [TestRenewals]). In the second one, a
// consumer shows all the time what lies in Secrets.
//
// SPIFFE has a cluster of its own too ([TestSPIFFE]). Its SVIDs are judged by Apache's server,
// distribution, NATS, the world's API server and SPIFFE's own library.
//
// The programs are those in bin/; `make e2e` builds them first. The same tokens are judged by
// MinIO's STS, and used by the clouds' own clients: the aws command, and the libraries of Azure,
// Google and Alibaba Cloud for Node. Those, Vault's JWT plugin, kubectl and skopeo also use the
// files that Lanyard renders for them. Buckets are MinIO's, and those of gofakes3, Azurite and
// fake-gcs-server behind the local cloud's checks.
//
// Each test begins by saying what it shares. Most run beside others (beside), with names of their
// own. Tests that need another configuration of the controller take a shard, and start a controller
// for its objects. The tests that affect all objects of the world run first and alone, and say why
// (alone). Clusters and shards are few, to bound the memory of a run. After the last test, the run
// is judged by the API server's audit log.
package e2e
