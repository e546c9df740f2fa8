// Package discovery serves the public documents of issuers: which keys sign their tokens. Services
// all over the world read these documents to check tokens, so the package holds public keys only,
// and answers everybody.
package discovery
