package binding

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
	corev1 "k8s.io/api/core/v1"

	identityv1 "github.com/lanyard-dev/lanyard/api/identity/v1alpha1"
	"github.com/lanyard-dev/lanyard/auth"
	"github.com/lanyard-dev/lanyard/internal/delivery"
)

// Annotations of Secrets that say what lies in them.
const (
	// digestAnnotation is a digest of the data and of what it was made of.
	digestAnnotation = "workloadidentity.lanyard.dev/digest"
	// issuedAnnotation and expiresAnnotation say, in RFC 3339, how long a credential lives that was
	// got in exchange. A token says that itself.
	issuedAnnotation  = "workloadidentity.lanyard.dev/issued-at"
	expiresAnnotation = "workloadidentity.lanyard.dev/expires-at"
)

// written is all that is written into a Secret.
type written struct {
	kind        corev1.SecretType
	labels      map[string]string
	annotations map[string]string
	data        map[string][]byte
}

// contentOf returns what is written for a credential.
func (p plan) contentOf(made credential) written {
	w := written{
		kind:        made.content.Type,
		labels:      map[string]string{identityv1.ProviderLabel: p.target.Type},
		annotations: map[string]string{},
		data:        made.content.Data,
	}
	if delivery.Exchanged(p.store.Format) {
		w.annotations[issuedAnnotation] = made.issuedAt.Format(time.RFC3339)
		w.annotations[expiresAnnotation] = made.expiresAt.Format(time.RFC3339)
	}
	w.annotations[digestAnnotation] = p.digest(w)
	return w
}

// digest returns the SHA-256 of what is written and of what that was made of, in hex. Nobody guesses
// a credential from it, because each has at least 128 random bits.
func (p plan) digest(w written) string {
	text, err := json.Marshal(map[string]any{
		"subject": p.subject.String(), "uid": p.uid, "spec": p.spec, "target": p.target, "store": p.store, "context": p.context,
		"issuedAt": w.annotations[issuedAnnotation], "expiresAt": w.annotations[expiresAnnotation], "data": w.data,
	})
	if err != nil {
		return "" // cannot happen: specs come from JSON; no Secret has this digest
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])
}

// find returns how long the credential lives that lies in the Secret. It returns false if the Secret
// is not exactly as the plan's credential would have been written.
func (p plan) find(secret *secretRead) (lifetime, bool) {
	if secret == nil || !secret.owned {
		return lifetime{}, false
	}
	kept := written{kind: secret.Type, labels: secret.Labels, annotations: secret.Annotations, data: map[string][]byte{}}
	for _, key := range secret.ours() {
		kept.data[key] = secret.Data[key]
	}
	digest := secret.Annotations[digestAnnotation]
	if secret.Labels[identityv1.ProviderLabel] != p.target.Type || digest == "" || digest != p.digest(kept) {
		return lifetime{}, false
	}
	var lives lifetime
	var err error
	if delivery.Exchanged(p.store.Format) {
		lives, err = annotatedLifetime(secret.Annotations)
	} else {
		lives, err = lifetimeOf(string(secret.Data[delivery.TokenKey]))
	}
	return lives, err == nil
}

// annotatedLifetime reads the annotations of a credential that was got in exchange.
func annotatedLifetime(annotations map[string]string) (lifetime, error) {
	issuedAt, err := time.Parse(time.RFC3339, annotations[issuedAnnotation])
	if err != nil {
		return lifetime{}, err
	}
	expiresAt, err := time.Parse(time.RFC3339, annotations[expiresAnnotation])
	if err != nil {
		return lifetime{}, err
	}
	return checked(lifetime{issuedAt: issuedAt, expiresAt: expiresAt})
}

// lifetimeOf reads a token's lifetime and key. It verifies no signature: that is for those who get
// the token.
func lifetimeOf(token string) (lifetime, error) {
	parsed, err := jwt.ParseSigned(token, []jose.SignatureAlgorithm{jose.RS256, jose.ES256})
	var claims jwt.Claims
	if err == nil {
		err = parsed.UnsafeClaimsWithoutVerification(&claims)
	}
	if err != nil || claims.IssuedAt == nil || claims.Expiry == nil || len(parsed.Headers) != 1 {
		return lifetime{}, noToken()
	}
	return checked(lifetime{issuedAt: claims.IssuedAt.Time().UTC(), expiresAt: claims.Expiry.Time().UTC(), kid: parsed.Headers[0].KeyID})
}

// checked refuses a lifetime that no credential of ours has.
func checked(lives lifetime) (lifetime, error) {
	if life := lives.expiresAt.Sub(lives.issuedAt); life <= 0 || life > longest {
		return lifetime{}, noToken()
	}
	return lives, nil
}

// noToken is the error for what no token server has made. It repeats nothing of the token.
func noToken() error {
	return &auth.Error{
		Stage: auth.StageTokenRequest, Code: auth.CodeResponseInvalid,
		Fix: "check which server answers for token.lanyard.dev",
		Err: errors.New("the token does not say when it was issued, when it ends and who signed it"),
	}
}
