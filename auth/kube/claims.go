package kube

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/lanyard-dev/lanyard/auth"
)

// claims are those of a ServiceAccount token. Source: k8s.io/kubernetes pkg/serviceaccount/claims.go, whose aud is always a
// list.
type claims struct {
	Subject    string   `json:"sub"`
	Audience   []string `json:"aud"`
	Expires    float64  `json:"exp"` // seconds since 1970 (RFC 7519 §2, NumericDate)
	Kubernetes struct {
		Namespace      string `json:"namespace"`
		ServiceAccount struct {
			Name string `json:"name"`
			UID  string `json:"uid"`
		} `json:"serviceaccount"`
	} `json:"kubernetes.io"`
}

// readClaims decodes a JWT in compact form (RFC 7515 §7.1). It verifies no signature: the token comes from the API server
// over its own TLS connection, and its receiver verifies it. Errors quote nothing of the token.
func readClaims(token string) (claims, error) {
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		return claims{}, fmt.Errorf("not a JWT: it has %d parts, not 3", len(parts))
	}
	payload, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil {
		return claims{}, errors.New("not a JWT: its claims are not base64url")
	}
	var said claims
	if err := json.Unmarshal(payload, &said); err != nil {
		return claims{}, errors.New("not the JWT of a ServiceAccount: its claims cannot be decoded")
	}
	if said.Expires < 1 || said.Expires > math.MaxUint32 {
		return claims{}, errors.New("it does not say when it expires")
	}
	return said, nil
}

func (c claims) expiresAt() time.Time { return time.Unix(int64(c.Expires), 0).UTC() }

// answers checks that the token is of account and for audience alone. Its error is an [*auth.Error].
func (c claims) answers(account auth.Account, audience string) error {
	subject := account.Subject
	in := c.Kubernetes
	switch {
	case c.Subject != subject.String() || in.Namespace != subject.Namespace() || in.ServiceAccount.Name != subject.Name():
		return proofInvalid(subject, errors.New("it is of another account"))
	case in.ServiceAccount.UID != account.UID:
		return replaced(subject, "before its token was made")
	case !slices.Equal(c.Audience, []string{audience}):
		return proofInvalid(subject, fmt.Errorf("it is not for audience %q alone", audience))
	case !c.expiresAt().After(time.Now()):
		return proofInvalid(subject, errors.New("it has expired already"))
	}
	return nil
}
