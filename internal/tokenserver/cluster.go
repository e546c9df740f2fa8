package tokenserver

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/go-jose/go-jose/v4"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	identityv1 "github.com/lanyard-dev/lanyard/api/identity/v1alpha1"
	"github.com/lanyard-dev/lanyard/internal/keyring"
)

// ClusterIssuer checks that the API server cannot mistake our issuer's tokens for ServiceAccount
// tokens. Such a mistake could give access to the cluster.
type ClusterIssuer struct {
	// Documents reads the discovery documents of the API server. Every ServiceAccount may read
	// them, unless an administrator has withdrawn the ClusterRole
	// system:service-account-issuer-discovery.
	Documents rest.Interface
	// Issuer is the URL of our issuer.
	Issuer string
	// Ring names the KeyRing with our issuer's keys.
	Ring client.ObjectKey
	// Client reads the KeyRing.
	Client client.Reader
}

// Check returns an error if our issuer is also the API server's, or if a key of our ring also signs
// the API server's tokens.
func (c ClusterIssuer) Check(ctx context.Context) error {
	var document struct {
		Issuer string `json:"issuer"`
	}
	if err := c.read(ctx, "/.well-known/openid-configuration", &document); err != nil {
		return err
	}
	switch document.Issuer {
	case "":
		return errors.New("the API server's discovery document names no issuer: set the API server's flag --service-account-issuer")
	case c.Issuer:
		return fmt.Errorf("the issuer %s is the API server's own: choose another URL (--issuer)", c.Issuer)
	}
	var set jose.JSONWebKeySet
	if err := c.read(ctx, "/openid/v1/jwks", &set); err != nil {
		return err
	}
	object := &identityv1.KeyRing{}
	if err := c.Client.Get(ctx, c.Ring, object); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("read KeyRing %s: %w", c.Ring, err)
	}
	ring, _ := keyring.Parse(&object.Status) // Parse omits invalid keys, which never sign
	ours := map[string]bool{}
	for _, key := range ring.Public() {
		ours[key.ID] = true
	}
	for _, jwk := range set.Keys {
		// Skip keys for which NewKey fails: no ring can have such a key.
		if key, err := keyring.NewKey(jwk.Key); err == nil && ours[key.ID] {
			return fmt.Errorf("the key %s of KeyRing %s signs the API server's own tokens too: revoke the key", key.ID, c.Ring)
		}
	}
	return nil
}

func (c ClusterIssuer) read(ctx context.Context, path string, into any) error {
	data, err := c.Documents.Get().AbsPath(path).DoRaw(ctx)
	if err != nil {
		return fmt.Errorf("read the API server's %s: %w; grant this program the ClusterRole system:service-account-issuer-discovery",
			path, err)
	}
	if err := json.Unmarshal(data, into); err != nil {
		return fmt.Errorf("read the API server's %s: %w", path, err)
	}
	return nil
}
