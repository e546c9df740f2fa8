// Package attack is a suite of attacks by hostile tenants on Lanyard's running programs. The
// environment is the same as in the end-to-end tests: the local cloud, a real API server,
// lanyard-controller, and the issuer's programs. The programs run with the flags, the permissions
// and the memory limit of the chart.
//
// During the attacks, an honest tenant works too: tenant-a of the demonstration in the folder
// examples. The tenant requests tokens, creates sources, and requests reconciliations of its
// objects. The tenant's requests use a ServiceAccount, because the API server's priority and
// fairness exempts administrators. Another possible victim is the demonstration's tenant-c. The
// clouds of tenant-c trust Lanyard's own issuer.
//
// [attacks] lists the attacks. Each attack has its own namespaces and servers. The suite fails if
// the controller does what the hostile tenant wants. For every attack, the suite also fails if
//
//   - a cloud grants a hostile tenant access to anything of tenant-a or tenant-c;
//   - the status of a hostile tenant's object shows an identity or an artifact of tenant-a;
//   - a hostile server receives a credential;
//   - an object of the honest tenant stops being Ready, even for a moment;
//   - in each of three runs of the attack, the honest tenant waits too long for a reconciliation, a
//     new source or a token (see the function judgeLatency);
//   - the memory of a program ever exceeds the program's limit in the chart.
//
// At the end, the suite prints a table with a row for each attack. The row has the number of
// attempts and the number of grants. A grant is a credential, an access or an artifact that the
// hostile tenant must not get. The row also has the honest tenant's waits by category of work, and
// the peak and the limit of each program's memory.
//
// `make attack` runs all attacks. `go test -short` runs only some attacks, in about three minutes.
package attack
