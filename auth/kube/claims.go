package kube

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/lanyard-dev/lanyard/auth"
)

// claims are the claims of a token of a ServiceAccount or of a WorkloadIdentity. The claim aud is
// always a list. Source: k8s.io/kubernetes pkg/serviceaccount/claims.go; Lanyard's token server.
type claims struct {
	Issuer     string   `json:"iss"`
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
	Lanyard identityClaims `json:"lanyard.dev"`
}

// readClaims decodes a JWT in compact form (RFC 7515 §7.1). It does not verify the signature. The
// token comes from the API server over TLS, and the token's receiver verifies the signature. Errors
// quote nothing of the token.
func readClaims(token string) (claims, error) {
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		return claims{}, fmt.Errorf("not a JWT: it has %d parts, not 3", len(parts))
	}
	payload, err := decodePart(parts[1])
	if err != nil {
		return claims{}, errors.New("not a JWT: its claims are not base64url")
	}
	var said claims
	if err := json.Unmarshal(payload, &said); err != nil {
		return claims{}, errors.New("not the JWT of a subject: its claims cannot be decoded")
	}
	if said.Expires < 1 || said.Expires > math.MaxUint32 {
		return claims{}, errors.New("it does not say when it expires")
	}
	return said, nil
}

// decodePart decodes a part of a JWT in compact form.
func decodePart(part string) ([]byte, error) { return base64.RawURLEncoding.DecodeString(part) }

func (c claims) expiresAt() time.Time { return time.Unix(int64(c.Expires), 0).UTC() }

// check refuses a token of another account, a token whose audiences are not exactly those given,
// and an expired token. Its error is an [*auth.Error].
func (c claims) check(account auth.Account, audiences []string) error {
	subject := account.Subject
	in := c.Kubernetes
	switch {
	case c.Subject != subject.String() || in.Namespace != subject.Namespace() || in.ServiceAccount.Name != subject.Name():
		return proofInvalid(subject, errors.New("it is of another account"))
	case in.ServiceAccount.UID != account.UID:
		return replaced(subject, "before its token was made")
	}
	return c.checkReceivers(subject, audiences)
}

// checkReceivers refuses a token that is not for exactly these audiences, or that has expired.
func (c claims) checkReceivers(subject auth.Subject, audiences []string) error {
	switch {
	case !slices.Equal(c.Audience, audiences):
		return proofInvalid(subject, fmt.Errorf("it is not for audience %s alone", quoted(audiences)))
	case !c.expiresAt().After(time.Now()):
		return proofInvalid(subject, errors.New("it has expired already"))
	}
	return nil
}

// quoted returns the audiences as quoted text, for errors.
func quoted(audiences []string) string {
	quoted := make([]string, len(audiences))
	for i, audience := range audiences {
		quoted[i] = strconv.Quote(audience)
	}
	return strings.Join(quoted, " and ")
}
