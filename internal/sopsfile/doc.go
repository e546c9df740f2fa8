// Package sopsfile reads files that SOPS encrypted, and decrypts them.
//
// The package is for a confined process (package sandbox). It parses the file, and returns its master
// keys. Another process, which has credentials, decrypts the data key. With the data key, this package
// decrypts the file's values and checks the file's MAC. The package calls no key service, and reads
// neither the environment nor files.
//
// SOPS's own library parses and writes the formats, walks the values, and defines the MAC. What it
// says in errors and logs is not shown: it quotes the file's content. A program that links the library
// also links its key sources, of which none runs, and its audit log, whose init reads the file
// /etc/sops/audit.yaml if there is one.
//
// # What the MAC covers
//
// The MAC covers the file's values, run together in their order. It covers no keys and no comments,
// and not where a value ends. Each encrypted value is bound to its path. So somebody without keys
// cannot move an encrypted value to another path, but can rename what is not encrypted, and change
// where an unencrypted value ends. [Plain.Manifests] says what follows for manifests.
package sopsfile
