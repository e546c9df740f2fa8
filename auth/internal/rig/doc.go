// Package rig has the parts that the providers' tests share:
//
//   - the local cloud and a transport to it
//   - servers that give a chosen answer
//   - subjects with a chosen proof
//   - checks
//
// Only tests import it.
package rig
