package auth

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/url"
	"strings"
)

// Key identifies a token: two calls share one exactly when their keys are equal. Every input that changes what is issued
// is a field, so that no input can be forgotten: an exchange sees nothing else. The reason for each field stands beside it.
// Keys are comparable; nothing in them is secret.
type Key struct {
	// Provider is the provider's name: tokens of two clouds never meet.
	Provider string
	// Subject is the subject that the token is for. It was proven, not only claimed, when the token was issued: without it,
	// anyone who names an identity would get a token that was entrusted to somebody else.
	Subject Subject
	// UID is the subject's: an account that is deleted and created again inherits nothing. Empty for the controller.
	UID string
	// Identity is the provider's identity that the subject asked for: changing it must change the token.
	Identity string
	// Scopes bound what the token may do.
	Scopes List
	// Image is the part of the image repository that decides the registry credentials (a region for AWS).
	Image string
	// STSEndpoint is where the token was issued, if not at the provider's own place.
	STSEndpoint string
	// ProxyURL is the proxy on the way to STSEndpoint; empty without one, since a proxy sees only TLS on the way to the
	// provider's own endpoints. Its password enters as a keyed hash.
	ProxyURL string
	// Audiences are the receivers of a token that is itself the credential.
	Audiences List
	// STSRegion is the region of the security token service: it bounds where its tokens are valid.
	STSRegion string
	// CADigest is the SHA-256 of the certificate authorities that the endpoint was verified with, in hex.
	CADigest string
	// Signer names the key that signed a token of our own.
	Signer string
}

// String is the key as text. For a ServiceAccount and for the controller it is, byte for byte, the text of the
// multi-tenant workload identity design, fields that are unset left out:
//
//	provider=…,serviceAccountName=…,serviceAccountNamespace=…,cloudProviderIdentity=…,scopes=…,imageRepositoryKey=…,stsEndpoint=…,proxyURL=…
//
// followed by Lanyard's own subjectKind (for other subjects), serviceAccountUID, audiences, stsRegion, caDigest and signer.
// Commas, equals signs, percent signs and control characters inside values are percent-encoded, so that two different
// keys never print alike.
func (k Key) String() string {
	var b strings.Builder
	field := func(name, value string) {
		if value == "" {
			return
		}
		if b.Len() > 0 {
			b.WriteByte(',')
		}
		b.WriteString(name)
		b.WriteByte('=')
		b.WriteString(value)
	}
	field("provider", escape(k.Provider))
	field("serviceAccountName", escape(k.Subject.name))
	field("serviceAccountNamespace", escape(k.Subject.namespace))
	field("cloudProviderIdentity", escape(k.Identity))
	field("scopes", k.Scopes.encoded)
	field("imageRepositoryKey", escape(k.Image))
	field("stsEndpoint", escape(k.STSEndpoint))
	field("proxyURL", escape(k.ProxyURL))
	if k.Subject.kind != KindServiceAccount && k.Subject.kind != KindController {
		field("subjectKind", escape(string(k.Subject.kind)))
	}
	field("serviceAccountUID", escape(k.UID))
	field("audiences", k.Audiences.encoded)
	field("stsRegion", escape(k.STSRegion))
	field("caDigest", escape(k.CADigest))
	field("signer", escape(k.Signer))
	return b.String()
}

// Digest is the SHA-256 of [Key.String] in lower-case hex: what logs and people compare.
func (k Key) Digest() string {
	sum := sha256.Sum256([]byte(k.String()))
	return hex.EncodeToString(sum[:])
}

// List is an ordered list of non-empty strings in a comparable form.
type List struct {
	encoded string // values percent-encoded and joined by commas
}

// NewList makes a List. An empty value is an error, because it could not be told from no value.
func NewList(values ...string) (List, error) {
	encoded := make([]string, len(values))
	for i, v := range values {
		if v == "" {
			return List{}, fmt.Errorf("value %d of %d is empty", i+1, len(values))
		}
		encoded[i] = escape(v)
	}
	return List{strings.Join(encoded, ",")}, nil
}

// IsZero reports whether the list is empty.
func (l List) IsZero() bool { return l.encoded == "" }

// Values are what the list was made of.
func (l List) Values() []string {
	if l.IsZero() {
		return nil
	}
	values := strings.Split(l.encoded, ",")
	for i, v := range values {
		values[i] = unescape(v)
	}
	return values
}

// String is the list with its values percent-encoded and joined by commas.
func (l List) String() string { return l.encoded }

// escape percent-encodes what separates fields and values, and what would not print. It is injective.
func escape(s string) string {
	special := func(c byte) bool { return c == '%' || c == ',' || c == '=' || c <= ' ' || c >= 0x7f }
	n := 0
	for i := range len(s) {
		if special(s[i]) {
			n++
		}
	}
	if n == 0 {
		return s
	}
	var b strings.Builder
	b.Grow(len(s) + 2*n)
	for i := range len(s) {
		if special(s[i]) {
			fmt.Fprintf(&b, "%%%02X", s[i])
		} else {
			b.WriteByte(s[i])
		}
	}
	return b.String()
}

// unescape is escape's opposite.
func unescape(s string) string {
	plain, err := url.PathUnescape(s)
	if err != nil {
		return s // escape makes no such text
	}
	return plain
}
