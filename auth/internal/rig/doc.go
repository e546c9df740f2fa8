// Package rig has the shared parts of the providers' tests: the local cloud and a transport to it,
// servers with any answer, subjects with any proof. It also has the checks that all clouds share.
// Only tests import it.
package rig
