// Package rig has the shared parts of the providers' tests: the local cloud and a transport to it,
// servers with any answer, subjects with any proof. It also has the checks that are the same for
// all clouds. Only tests import it.
package rig
