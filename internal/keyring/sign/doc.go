// Package sign has the private side of key rings. A Signer signs with the active keys of a ring, in
// every replica of the token server. A Rotator carries out what keyring.Next decides, in one
// replica, which Lead elects. A Store keeps the private halves. Only the token server may import
// this package; a test in internal/architecture checks it.
//
// Nothing here trusts that a process is alone, or that it finishes what it began:
//
//   - A private half exists before the ring names its key. What a killed process leaves behind is
//     an unnamed private half, which is deleted later.
//   - The ring changes only by an update with the resourceVersion that was read. If two processes
//     believe that they lead, one of them fails and reads again.
//   - A Signer whose view of the ring is older than a minute signs nothing. So a key that was
//     retired or revoked signs for at most that long, even in a process that lost the API server,
//     or that was suspended.
package sign
