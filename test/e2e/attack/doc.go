// Package attack is a suite of hostile tenants against Lanyard's running programs. Its world is
// that of the end-to-end tests: the local cloud, a real API server, and lanyard-controller and the
// programs of the issuer with the flags and permissions of the chart, and its memory limit. The
// demonstration's tenant-a works beside the attacks, as an honest tenant whose objects are
// reconciled all the time. The clouds of its tenant-c trust Lanyard's own issuer.
//
// [attacks] lists the attacks. Each has namespaces and servers of its own, and fails if the
// controller does what the tenant wants. Whatever the attack is, the suite fails if
//
//   - a cloud grants a hostile tenant what is tenant-a's or tenant-c's, a status says so, or a hostile
//     server receives a credential;
//   - a reconciliation of the honest tenant takes a second longer than a busy machine explains, in each
//     of three runs of the attack, or one of the tenant's objects is not Ready for a moment;
//   - the controller's memory ever exceeds the chart's limit.
//
// `make attack` runs all attacks, `go test -short` those that together take about two minutes.
package attack
