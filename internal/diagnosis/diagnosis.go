// Package diagnosis explains the credential of one object:
//   - whose credential it is
//   - which field or flag decides this
//   - what proves the identity
//   - where this proof is exchanged for the credential
//   - which key the credential has in the controller's cache
//
// For an object without a credential, the package says what to do. Of an object that acts at the API
// server, the package says as which ServiceAccount the object acts, and what was refused to it.
//
//	object ──fields──▶ auth/spec ──subject──▶ auth.Resolve ──▶ key
//
// The answers come from the code of the controller: package auth/spec judges the fields, package
// identity the chains and their grants, and the providers make the key. The objects are read live,
// with the permissions of the caller. Nothing is written, no token is requested, no Secret is read
// and no cloud is called. Facts that only the controller knows, such as its flags, are listed as
// unknown.
package diagnosis

import (
	"fmt"
	"io"
	"strings"

	"github.com/lanyard-dev/lanyard/internal/plain"
	"github.com/lanyard-dev/lanyard/internal/report"
)

// Diagnosis explains the credential of an object. Its texts are for people, except identifiers such
// as Name, Key and Digest. No text contains a secret.
type Diagnosis struct {
	// Kind, Namespace and Name identify the object.
	Kind      string `json:"kind"`
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	// Result, Reason and Message show the object's status, as in the object's row of a report.
	Result  report.Result `json:"result"`
	Reason  string        `json:"reason,omitempty"`
	Message string        `json:"message,omitempty"`
	// Subject says whose credential the object gets. It is the text of an auth.Subject, or another
	// text, such as secret:<namespace>:<name>. It is "unknown" if the controller's flags decide
	// whose credential the object gets.
	Subject string `json:"subject,omitempty"`
	// From is the field of the object, or the flag of the controller, that decides the subject.
	From string `json:"from,omitempty"`
	// Account describes the subject in the cluster, such as its UID and its attributes.
	Account string `json:"account,omitempty"`
	// Chain has the AWS identities from the subject to the root of the chain, and whether the grant
	// of each identity admits the namespace.
	Chain []string `json:"chain,omitempty"`
	// Proof says what proves the subject's identity. Exchange says which service exchanges the
	// proof for a credential. Credential describes the credential, and Delivery says who gets it.
	Proof      string `json:"proof,omitempty"`
	Exchange   string `json:"exchange,omitempty"`
	Credential string `json:"credential,omitempty"`
	Delivery   string `json:"delivery,omitempty"`
	// Decryption says whose identity decrypts encrypted files. Then it says which keys decrypted the
	// first files last.
	Decryption []string `json:"decryption,omitempty"`
	// Key is the key of the token in the controller's cache. Digest is the SHA-256 of Key, as in
	// the log of the controller; empty if only the controller can compute it.
	Key    string `json:"key,omitempty"`
	Digest string `json:"digest,omitempty"`
	// Used is the subject whose credential the controller used last, with its cloud identity.
	// Changed says how the identity of the next token differs from Used.
	Used    string `json:"used,omitempty"`
	Changed string `json:"changed,omitempty"`
	// Refusal says why the object gets no credential.
	Refusal string `json:"refusal,omitempty"`
	// Unknown lists facts that affect the credential but are not known here. Examples are flags of
	// the controller, and objects that the caller may not read.
	Unknown []string `json:"unknown,omitempty"`
	// NextStep says what to do.
	NextStep string `json:"nextStep"`
}

// clean replaces unprintable characters in all texts, because tenants write some of the texts.
func (d *Diagnosis) clean() {
	for _, text := range []*string{
		&d.Reason, &d.Message, &d.Subject, &d.From, &d.Account, &d.Proof, &d.Exchange, &d.Credential, &d.Delivery, &d.Key,
		&d.Used, &d.Changed, &d.Refusal, &d.NextStep,
	} {
		*text = plain.Text(*text)
	}
	for _, list := range [][]string{d.Chain, d.Decryption, d.Unknown} {
		for i := range list {
			list[i] = plain.Text(list[i])
		}
	}
}

// Write writes the diagnosis for people, one line for each step.
func (d *Diagnosis) Write(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%s/%s in namespace %s: %s", strings.ToLower(d.Kind), d.Name, d.Namespace, d.Result)
	if d.Reason != "" {
		fmt.Fprintf(&b, ", %s\n  %s", d.Reason, d.Message)
	}
	b.WriteString("\n\n")
	row := func(name string, texts ...string) {
		for _, text := range texts {
			if text != "" {
				fmt.Fprintf(&b, "%-12s %s\n", name, text)
				name = ""
			}
		}
	}
	row("subject", strings.TrimSuffix(d.Subject+", from "+d.From, ", from "))
	row("account", d.Account)
	row("chain", d.Chain...)
	row("proof", d.Proof)
	row("exchange", d.Exchange)
	row("credential", d.Credential)
	row("delivery", d.Delivery)
	row("decryption", d.Decryption...)
	row("key", d.Key)
	row("digest", d.Digest)
	row("used", d.Used, d.Changed)
	row("refused", d.Refusal)
	row("unknown", d.Unknown...)
	row("next step", d.NextStep)
	_, err := io.WriteString(w, b.String())
	return err
}
