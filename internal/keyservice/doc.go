// Package keyservice decrypts the data keys of SOPS files, with the keys and identities of a tenant.
//
// It is the counterpart of package sopsfile. A confined process reads the files, and says which master
// keys can decrypt them. This package gets only those names and the encrypted data keys, checks both,
// and asks a cloud's key service or uses a key of the tenant's Secret. Of what a key decrypts, it
// returns only what has exactly the length of a data key. Otherwise somebody who writes files could
// decrypt anything with the tenant's keys.
//
// # Whose identity
//
// The identity at a cloud comes from the caller, and never from a file. Files name roles and profiles
// (role, aws_profile); a key with one of both is refused. The host that gets a credential follows from
// the tables of package endpoint, and never from a file's text alone.
//
// No code of SOPS's own key sources runs here. They would read the environment, home folders and
// files, and would start programs.
package keyservice
