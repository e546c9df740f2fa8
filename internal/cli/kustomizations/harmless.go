package kustomizations

import (
	"fmt"
	"net/http"
	"slices"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	"github.com/lanyard-dev/lanyard/internal/cli/cluster"
)

// harmless is a client of a cluster that can only read and send dry runs.
type harmless struct {
	client.Client

	config *rest.Config
	http   *http.Client
}

// newHarmless returns a client with the rights of another one.
func newHarmless(c *cluster.Client) (*harmless, error) {
	config := rest.CopyConfig(c.Config)
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return dryRuns{next} })
	connection, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, fmt.Errorf("connect to %s: %w", config.Host, err)
	}
	made, err := client.New(config, client.Options{HTTPClient: connection, Scheme: c.Scheme()})
	if err != nil {
		return nil, fmt.Errorf("connect to %s: %w", config.Host, err)
	}
	return &harmless{Client: made, config: config, http: connection}, nil
}

// Discover implements apply.Client.
func (h *harmless) Discover() (apimeta.RESTMapper, error) {
	return apiutil.NewDynamicRESTMapper(h.config, h.http)
}

// dryRuns sends only requests that store nothing: reads, and patches with dryRun=All.
type dryRuns struct{ next http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (d dryRuns) RoundTrip(r *http.Request) (*http.Response, error) {
	tries := r.Method == http.MethodPatch && slices.Equal(r.URL.Query()["dryRun"], []string{metav1.DryRunAll})
	if r.Method != http.MethodGet && !tries {
		if r.Body != nil {
			_ = r.Body.Close() // a RoundTripper must close the body, and the request is not sent
		}
		return nil, fmt.Errorf("a comparison does not send %s %s, which could write", r.Method, r.URL.Path)
	}
	return d.next.RoundTrip(r)
}
