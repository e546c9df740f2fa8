// Package attack is a suite of attacks by hostile tenants on Lanyard's running programs. The
// environment is the same as in the end-to-end tests: the local cloud, a real API server,
// lanyard-controller, and the issuer's programs. The programs run with the flags, the permissions
// and the memory limit of the chart.
//
// During the attacks, the demonstration's tenant-a works as an honest tenant. Its sources and its
// binding are reconciled all the time. The tenant creates new sources, and requests tokens. The
// tenant acts as a ServiceAccount, to which the API server's priority and fairness applies. The
// demonstration's tenant-c is another possible victim: its clouds trust Lanyard's own issuer.
//
// [attacks] lists the attacks. Each attack has its own namespaces and servers. The suite fails if
// the controller does what the hostile tenant wants. For every attack, the suite also fails if
//
//   - a cloud grants a hostile tenant access to anything of tenant-a or tenant-c;
//   - the status of a hostile tenant's object shows an identity or an artifact of tenant-a;
//   - a hostile server receives a credential;
//   - an object of the honest tenant stops being Ready, even for a moment;
//   - in each of three runs of the attack, the honest tenant's wait for a reconciliation, a new
//     source or a token is too long at the 99th percentile (the function maxLatency computes the
//     limit);
//   - the memory of a program ever exceeds the program's limit in the chart.
//
// At the end, the suite prints a table. The table has the attempts and grants of each attack, the
// honest tenant's waits for each sort of work, and each program's peak memory beside its limit.
//
// `make attack` runs all attacks. `go test -short` runs only some attacks, in about three minutes.
package attack
