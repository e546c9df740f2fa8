package controllertest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/lanyard-dev/lanyard/auth"
)

// Cloud is a fake provider with the name aws. Each of its roles trusts one subject. An account
// names its role, such as role/<name>, in the attribute "role". The tests' services ask the cloud
// who holds a credential.
type Cloud struct {
	registry string

	mu        sync.Mutex // guards the fields below
	trust     map[string]string
	holders   map[string]string // ID of a session -> role
	down      error
	hanging   chan struct{} // gets a value when an exchange hangs; nil if exchanges do not hang
	issued    auth.Token    // token that exchanges return; if nil, each returns a new Session
	exchanges []Exchange
}

// Exchange is a request to exchange a proof for a session.
type Exchange struct {
	// Endpoint is the security token service that the object chose; empty for the cloud's own.
	Endpoint string
	// Proxy is the host[:port] of the request's proxy; empty without a proxy.
	Proxy string
}

// Session is a token that the cloud issued.
type Session struct {
	// ID is the text AKID, followed by a number. It is not secret.
	ID string
}

// GetDuration implements auth.Token. A session always lives for an hour.
func (*Session) GetDuration() time.Duration { return time.Hour }

var _ auth.RegistryProvider = (*Cloud)(nil)

// NewCloud makes a cloud with a registry at the host. Its roles trust no subject yet.
func NewCloud(registry string) *Cloud {
	return &Cloud{registry: registry, trust: map[string]string{}, holders: map[string]string{}}
}

// Trust makes the role trust this subject, and no other subject.
func (c *Cloud) Trust(role, subject string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.trust[role] = subject
}

// Fail makes all exchanges fail with the error. With nil, exchanges succeed again.
func (c *Cloud) Fail(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.down = err
}

// Hang makes all exchanges wait until their context ends. The channel gets a value when the first one
// begins.
func (c *Cloud) Hang() (asked <-chan struct{}) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.hanging = make(chan struct{}, 1)
	return c.hanging
}

// Issue makes all exchanges return the token, so that a test can use the token of another cloud.
func (c *Cloud) Issue(token auth.Token) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.issued = token
}

// Revoke ends all sessions before their time.
func (c *Cloud) Revoke() {
	c.mu.Lock()
	defer c.mu.Unlock()
	clear(c.holders)
}

// Holder returns the role of a session. The credential is the session's ID, or the registry
// password made from the ID.
func (c *Cloud) Holder(credential string) (role string, known bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	role, known = c.holders[strings.TrimPrefix(credential, passwordPrefix)]
	return role, known
}

// Exchanges returns all exchanges that were requested so far.
func (c *Cloud) Exchanges() []Exchange {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.exchanges)
}

// passwordPrefix marks passwords. Tests check that no object contains the prefix.
const passwordPrefix = "s3cret-"

// GetName implements auth.Provider.
func (*Cloud) GetName() string { return "aws" }

// GetTarget implements auth.Provider.
func (c *Cloud) GetTarget(o *auth.Options) (auth.Target, error) {
	target := auth.Target{STSEndpoint: o.STSEndpoint, STSRegion: o.STSRegion}
	if o.ImageRepository == "" {
		return target, nil
	}
	target.Image, _, _ = strings.Cut(o.ImageRepository, "/")
	if target.Image != c.registry {
		return auth.Target{}, &auth.Error{
			Stage: auth.StageRegistry, Code: auth.CodeEndpointRefused, Fix: "name a registry of the cloud", Err: fmt.Errorf("%q is none", target.Image),
		}
	}
	return target, nil
}

// GetIdentity implements auth.Provider.
func (*Cloud) GetIdentity(a auth.Account) (string, error) {
	switch role := a.Attributes["role"]; {
	case role == "":
		return "", &auth.Error{Stage: auth.StageIdentity, Code: auth.CodeIdentityMissing, Fix: "annotate the ServiceAccount", Err: errors.New("no role")}
	case !strings.HasPrefix(role, "role/"):
		return "", &auth.Error{Stage: auth.StageIdentity, Code: auth.CodeIdentityInvalid, Fix: "write role/<name>", Err: errors.New("no ARN")}
	default:
		return role, nil
	}
}

// GetProofRequest implements auth.Provider.
func (*Cloud) GetProofRequest(context.Context, *auth.Request) (auth.ProofRequest, error) {
	return auth.ProofRequest{Form: auth.FormJWT, Audiences: []string{"sts"}}, nil
}

// NewToken implements auth.Provider.
func (c *Cloud) NewToken(ctx context.Context, proof auth.Proof, request *auth.Request) (auth.Token, error) {
	jwt, err := auth.JWTOf(proof)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	hanging := c.hanging
	c.mu.Unlock()
	if hanging != nil {
		select {
		case hanging <- struct{}{}:
		default: // an earlier request has already sent a value
		}
		<-ctx.Done()
		return nil, ctx.Err()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	exchange := Exchange{Endpoint: request.Key.STSEndpoint}
	if request.ProxyURL != nil {
		exchange.Proxy = request.ProxyURL.Host
	}
	c.exchanges = append(c.exchanges, exchange)
	if c.down != nil {
		return nil, c.down
	}
	role := request.Key.Identity
	if c.trust[role]+" for sts" != jwt.Token.Reveal() {
		return nil, &auth.Error{
			Stage: auth.StageExchange, Code: auth.CodeTrustRefused, Fix: "have the role's trust policy name the subject",
			Err: fmt.Errorf("%s does not trust %s", role, request.Key.Subject),
		}
	}
	if c.issued != nil {
		return c.issued, nil
	}
	session := &Session{ID: fmt.Sprintf("AKID%d", len(c.exchanges))}
	c.holders[session.ID] = role
	return session, nil
}

// NewRegistryToken implements auth.RegistryProvider.
func (*Cloud) NewRegistryToken(_ context.Context, token auth.Token, _ *auth.Request) (*auth.RegistryCredentials, error) {
	// The cloud itself issues only sessions, so the token is a *Session.
	password := auth.NewSecret(passwordPrefix + token.(*Session).ID)
	return &auth.RegistryCredentials{Username: "AWS", Password: password, ExpiresAt: time.Now().Add(30 * time.Minute)}, nil
}
