package discovery

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/go-jose/go-jose/v4"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"

	"github.com/lanyard-dev/lanyard/internal/discovery/document"
)

// mirrorInterval is the time between two reads of the API server's documents. If the API server's
// keys change at a restart, the mirror serves the new keys within this time.
const mirrorInterval = time.Minute

// Mirror serves the documents of the cluster's own issuer of ServiceAccount tokens, for clusters
// whose API server cannot be reached by services outside the cluster.
type Mirror struct {
	// API reads from the API server.
	API rest.Interface
	// Issuer publishes the documents. Its URL must be the value of the API server's flag
	// --service-account-issuer.
	Issuer *Issuer
	// Log gets the errors.
	Log *slog.Logger
}

// Run publishes the API server's documents once per mirrorInterval until ctx ends. While the API
// server cannot be reached, the last documents are still served.
func (m *Mirror) Run(ctx context.Context) error {
	wait.UntilWithContext(ctx, func(ctx context.Context) {
		if err := m.Step(ctx); err != nil && ctx.Err() == nil {
			m.Log.Error("the API server's documents cannot be mirrored; the last documents stay", "error", err)
		}
	}, mirrorInterval)
	return nil
}

// Step reads and publishes the API server's documents once.
func (m *Mirror) Step(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, mirrorInterval/2)
	defer cancel()
	const grant = "; grant this program the ClusterRole system:service-account-issuer-discovery"
	data, err := m.API.Get().AbsPath(document.ConfigurationPath).DoRaw(ctx)
	if err != nil {
		return fmt.Errorf("read the API server's discovery document: %w%s", err, grant)
	}
	var config struct {
		Issuer string `json:"issuer"`
	}
	if err := json.Unmarshal(data, &config); err != nil {
		return fmt.Errorf("read the API server's discovery document: %w", err)
	}
	if want := m.Issuer.url.String(); config.Issuer != want {
		return fmt.Errorf("the API server's issuer is %q, and the mirror is at %q: set the API server's flag --service-account-issuer to the mirror's URL, or use Lanyard's own issuer", config.Issuer, want)
	}
	data, err = m.API.Get().AbsPath("/openid/v1/jwks").DoRaw(ctx)
	if err != nil {
		return fmt.Errorf("read the API server's keys: %w%s", err, grant)
	}
	var set jose.JSONWebKeySet
	if err := json.Unmarshal(data, &set); err != nil {
		return errors.New("read the API server's keys: the answer is not a key set")
	}
	d, err := document.New(config.Issuer, set.Keys, document.MaxAge)
	if err != nil {
		return err
	}
	m.Issuer.Publish(d)
	return nil
}
