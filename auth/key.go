package auth

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/url"
	"strings"
)

// Key identifies a token: two calls share a token exactly when their keys are equal. So every input
// that changes the issued token is a field. An exchange takes these inputs from the Key and the
// Account of its [Request], so an option that is not in the Key cannot change the token. Keys are
// comparable and contain no secret.
type Key struct {
	// Provider is the provider's name, so that tokens of different clouds have different keys.
	Provider string
	// Subject is the subject that the token is for. It was proven when the token was issued. Two
	// subjects never share a token, even if they name the same Identity. The cloud may let only one
	// of them use that Identity. Without this field, the other would get its token from the cache.
	Subject Subject
	// UID is the subject's UID: an account that is deleted and created again inherits no token.
	// Empty for the controller.
	UID string
	// Identity is the identity that the subject names at the provider, such as a role ARN for AWS.
	// Each identity needs its own token.
	Identity string
	// IdentityFingerprint is the subject's [Account.Fingerprint], a keyed hash. Subjects with the
	// same identity but other attributes, such as another session policy, get other tokens. In a
	// chain of identities, the hash also covers the source identity. Empty if UID and Identity
	// alone decide the token.
	IdentityFingerprint string
	// Target is the part of the key that the provider derives from the options.
	Target
	// ProxyURL is the proxy for calls to STSEndpoint. It has a keyed hash in place of the URL's
	// password. It is empty without an STSEndpoint. Calls to the provider's own endpoints use TLS,
	// so a proxy for these calls cannot change the token.
	ProxyURL string
}

// setAccount sets all fields that depend on an account and its identity.
func (k *Key) setAccount(account *Account, identity string) {
	k.UID, k.Identity, k.IdentityFingerprint = account.UID, identity, account.Fingerprint
}

// String returns the key as text, without fields that are unset. The start of the text follows the
// design of Flux RFC-0010 (multi-tenant workload identity), byte for byte:
//
//	provider=…,serviceAccountName=…,serviceAccountNamespace=…,cloudProviderIdentity=…,scopes=…,imageRepositoryKey=…,stsEndpoint=…,proxyURL=…
//
// Lanyard's own fields follow: subjectKind, serviceAccountUID, audiences, stsRegion, caDigest,
// signer, credentialType, trustDomain, issuer, contextObject and identityFingerprint. A key of a
// ServiceAccount or of the controller has no subjectKind. serviceAccountUID is the UID of any
// subject.
//
// Inside values, commas, equals signs, percent signs, spaces, control characters and non-ASCII
// bytes are percent-encoded. So two different keys never print alike.
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
	terms := k.Issuance.Terms()
	field("caDigest", escape(terms.CADigest))
	field("signer", escape(terms.Signer))
	field("credentialType", escape(terms.CredentialType))
	field("trustDomain", escape(terms.TrustDomain))
	field("issuer", escape(terms.Issuer))
	field("contextObject", terms.ContextObject.encoded())
	field("identityFingerprint", escape(k.IdentityFingerprint))
	return b.String()
}

// Digest is the SHA-256 of [Key.String] in lower-case hex, short enough for logs and for people to
// compare.
func (k Key) Digest() string {
	sum := sha256.Sum256([]byte(k.String()))
	return hex.EncodeToString(sum[:])
}

// List is an ordered list of non-empty strings in a comparable form.
type List struct {
	encoded string // values percent-encoded and joined by commas
}

// NewList makes a List of values. An empty value is an error, because a list with only this value
// would look like an empty list.
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

// ParseList is the inverse of [List.String]. Text that String cannot return is an error.
func ParseList(text string) (List, error) {
	if text == "" {
		return List{}, nil
	}
	made, err := NewList(List{text}.Values()...)
	if err == nil && made.encoded != text {
		err = errors.New("not the text of a list")
	}
	return made, err
}

// IsZero reports whether the list is empty.
func (l List) IsZero() bool { return l.encoded == "" }

// Values returns the values that the list was made from, in the same order.
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

// String returns the values, percent-encoded and joined by commas.
func (l List) String() string { return l.encoded }

// escape percent-encodes separators of fields and values, and characters that do not print. Two
// different strings never have the same result.
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

// unescape is the inverse of escape.
func unescape(s string) string {
	plain, err := url.PathUnescape(s)
	if err != nil {
		return s // s is not a result of escape
	}
	return plain
}
