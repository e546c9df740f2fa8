// Package rig is what the tests of every provider need: the local cloud and a way to it, a server that says whatever a test has it
// say, subjects that are proven by whom the test likes, and the checks that are the same for all clouds. Only tests import it.
package rig
