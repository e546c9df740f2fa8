// Package e2e holds the end-to-end tests: black-box tests of the built programs against real counterparties. One world is
// started for all of them: a Kubernetes API server (dev/controlplane), the local cloud with distribution as the registry of all
// three clouds, and lanyard-controller under the ServiceAccount and the permissions that the chart gives it. Each test has
// namespaces, cloud identities and repositories of its own in it. This controller is built with the race detector; those of the
// second shard, which tests start for themselves, are the one that is shipped.
//
// The programs are those in bin/; `make e2e` builds them first. The same tokens are judged by MinIO's STS, and used by the
// clouds' own clients: the aws command, and the SDKs of Azure and Google for Node. Buckets are MinIO's, and those of gofakes3,
// Azurite and fake-gcs-server behind the local cloud's checks.
//
// The tests run one after the other, in the order of their files: what some of them do (a service that is down) is felt by all
// objects of the world, and the last one reads the API server's audit log of the whole run.
package e2e
