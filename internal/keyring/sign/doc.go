// Package sign has the private side of key rings. A Signer signs with the active keys of a ring, in
// every replica of the token server. A Rotator carries out the plans of keyring.Next, in the one
// replica that Lead elects. A Store stores the private halves. Only the token server may import
// this package; a test in internal/architecture checks it.
//
// The package is safe if several processes run at once, and if a process dies at any point:
//
//   - A private half exists before its key is in the ring. So a killed process can only leave a
//     private half whose key is not in the ring. Such private halves are deleted later.
//   - The ring changes only by an update with the resourceVersion that was read. If two processes
//     believe that they lead, one of them fails and reads again.
//   - A Signer whose view of the ring is older than a minute signs nothing. So a retired or revoked
//     key signs for at most one minute more. This holds even in a process that was suspended, or
//     that cannot reach the API server.
package sign
