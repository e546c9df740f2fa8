// Package discovery serves the public documents of issuers. The documents contain the public keys
// that verify tokens. Services all over the world read these documents to verify tokens. So the
// package has public keys only, and answers every client.
package discovery
