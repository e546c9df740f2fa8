// Package e2e holds the end-to-end tests: black-box tests of the built programs against real counterparties. One world is
// started for all of them: a Kubernetes API server (dev/controlplane), the local cloud with distribution as its registry, and
// lanyard-controller under the ServiceAccount and the permissions that the chart gives it. Each test has namespaces, roles and
// repositories of its own in it.
//
// The programs are those in bin/; `make e2e` builds them first. MinIO's STS and the aws CLI judge and use the same tokens.
//
// The tests run one after the other, in the order of their files: what some of them do (a service that is down) is felt by all
// objects of the world, and the last one reads the API server's audit log of the whole run.
package e2e
