package binding

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"

	identityv1 "github.com/lanyard-dev/lanyard/api/identity/v1alpha1"
	"github.com/lanyard-dev/lanyard/auth"
	"github.com/lanyard-dev/lanyard/internal/delivery"
)

// Annotations that describe the credential in a Secret.
const (
	// issuedAnnotation and expiresAnnotation are the beginning and the end of an exchanged
	// credential's life, in RFC 3339. A token contains these times itself, so its Secret has no
	// such annotations.
	issuedAnnotation  = "workloadidentity.lanyard.dev/issued-at"
	expiresAnnotation = "workloadidentity.lanyard.dev/expires-at"
)

// written is everything that the controller writes into a Secret.
type written struct {
	labels      map[string]string
	annotations map[string]string
	data        map[string][]byte
}

// contentOf returns the content of the Secret for a credential.
func (p plan) contentOf(made credential) written {
	w := written{
		labels:      map[string]string{identityv1.ProviderLabel: p.target.Type},
		annotations: map[string]string{},
		data:        made.content.Data,
	}
	if delivery.Exchanged(p.store.Format) {
		w.annotations[issuedAnnotation] = made.issuedAt.Format(time.RFC3339)
		w.annotations[expiresAnnotation] = made.expiresAt.Format(time.RFC3339)
	}
	return w
}

// digest returns the SHA-256, in hex, of the written data and of its inputs. The inputs are the
// identity, the store and the context object. The digest is stored in the binding's status, so a
// right to write Secrets is not enough to change the digest. Nobody can guess a credential from the
// digest, because each credential has at least 128 random bits.
func (p plan) digest(w written) string {
	text, err := json.Marshal(map[string]any{
		"subject": p.subject.String(), "uid": p.uid, "spec": p.spec, "target": p.target, "store": p.store, "context": p.context,
		"issuedAt": w.annotations[issuedAnnotation], "expiresAt": w.annotations[expiresAnnotation], "data": w.data,
	})
	if err != nil {
		// Marshal cannot fail here, because the specs come from JSON. If it did, p.find would
		// reject the empty digest.
		return ""
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])
}

// inSecret describes the credential that a Secret contains.
type inSecret struct {
	lifetime

	digest string
	keys   []string // sorted keys of the data
}

// find returns the credential in the Secret, or false if the Secret has none that fits the plan.
// The argument digest is from the binding's status. It must equal the digest that [plan.digest]
// calculates from the plan and the Secret's content.
//
// find also returns false if the credential's time of issue is [skew] or more in the future. This
// happens if the controller's clock has been set back. With such a clock, the controller would
// renew the credential too late.
func (p plan) find(secret *secretRead, digest string) (inSecret, bool) {
	if secret == nil || !secret.owned || digest == "" {
		return inSecret{}, false
	}
	kept := written{annotations: secret.Annotations, data: map[string][]byte{}}
	keys := secret.unchanged()
	for _, key := range keys {
		kept.data[key] = secret.Data[key]
	}
	if secret.Labels[identityv1.ProviderLabel] != p.target.Type || digest != p.digest(kept) {
		return inSecret{}, false
	}
	var lives lifetime
	var err error
	if delivery.Exchanged(p.store.Format) {
		lives, err = annotatedLifetime(secret.Annotations)
	} else {
		lives, err = lifetimeOf(string(secret.Data[delivery.TokenKey]))
	}
	return inSecret{lives, digest, keys}, err == nil && lives.issuedAt.Before(time.Now().Add(skew))
}

// skew is the time by which an issuer's clock may be ahead of the controller's clock.
const skew = time.Minute

// annotatedLifetime reads the lifetime of an exchanged credential from annotations.
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

// lifetimeOf reads a token's lifetime and the ID of its key. It does not verify the signature,
// because the receivers of the token do that.
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

// checked returns the lifetime, or an error if it is not positive or is too long for a credential
// in a Secret.
func checked(lives lifetime) (lifetime, error) {
	if life := lives.expiresAt.Sub(lives.issuedAt); life <= 0 || life > longest {
		return lifetime{}, noToken()
	}
	return lives, nil
}

// noToken returns the error for a token that no token server can have made. The error contains no
// part of the token.
func noToken() error {
	return &auth.Error{
		Stage: auth.StageTokenRequest, Code: auth.CodeResponseInvalid,
		Fix: "check which server answers for token.lanyard.dev",
		Err: errors.New("the token does not say when it was issued, when it ends and who signed it"),
	}
}
