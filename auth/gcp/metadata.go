package gcp

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/lanyard-dev/lanyard/auth"
	"github.com/lanyard-dev/lanyard/auth/endpoint"
	"github.com/lanyard-dev/lanyard/auth/internal/remote"
)

// DefaultMetadataHost is the default of [Config].MetadataHost, the metadata server's address.
// Source: Compute Engine, "About VM metadata".
const DefaultMetadataHost = "169.254.169.254"

const (
	// metadataPatience is the total time for the requests that identify the cluster. It is short,
	// because the server is on the same node.
	metadataPatience = 5 * time.Second
	// metadataRetry is the wait after a failed attempt to identify the cluster. Without it, each of
	// a thousand accounts would cause another attempt.
	metadataRetry = 5 * time.Second
	// metadataConnect is the timeout for connecting to the server.
	metadataConnect = 2 * time.Second
	// metadataServer names the server in errors.
	metadataServer = "the metadata server"
	// flavor is a header of requests to the metadata server and of its answers; the value is
	// flavorGoogle. Other servers do not send this header.
	flavor, flavorGoogle = "Metadata-Flavor", "Google"
)

// metadata is a client of the machine's metadata server. It learns the program's GKE cluster only
// once, because the cluster of a running program does not change. It waits until a token needs the
// cluster, because outside GKE there may be no metadata server.
type metadata struct {
	client *http.Client
	root   string
	retry  time.Duration

	mu   sync.Mutex // never held during I/O
	last *inquiry
}

// inquiry is one attempt to identify the cluster. Its result may be read only after done is closed.
type inquiry struct {
	done    chan struct{}
	cluster endpoint.GKECluster
	failure *remote.Failure
	ended   time.Time
}

func newMetadata(host string, timeout time.Duration) (*metadata, error) {
	host = cmp.Or(host, DefaultMetadataHost)
	root, err := url.Parse("http://" + host + "/computeMetadata/v1/")
	if err != nil || root.Host != host || root.User != nil || root.Hostname() == "" {
		return nil, fmt.Errorf("GCE_METADATA_HOST: %q is not host[:port]", host)
	}
	t := &http.Transport{
		// No proxy: the server is on the machine itself, and sends credentials in plain text.
		DialContext:            (&net.Dialer{Timeout: metadataConnect}).DialContext,
		IdleConnTimeout:        time.Minute,
		MaxResponseHeaderBytes: 64 << 10,
	}
	return &metadata{client: remote.NewClient(t, timeout), root: root.String(), retry: metadataRetry}, nil
}

// gke returns the cluster that the program runs in. Callers share one inquiry. Each caller waits
// until the inquiry or the caller's own context ends.
func (m *metadata) gke(ctx context.Context, subject auth.Subject) (endpoint.GKECluster, error) {
	m.mu.Lock()
	q := m.last
	if q == nil || q.stale(m.retry) {
		q = &inquiry{done: make(chan struct{})}
		m.last = q
		go m.inquire(context.WithoutCancel(ctx), q)
	}
	m.mu.Unlock()
	var f remote.Failure
	select {
	case <-q.done:
		if q.failure == nil {
			return q.cluster, nil
		}
		f = *q.failure
	case <-ctx.Done():
		f = remote.Unanswered(ctx, ctx.Err(), metadataServer)
	}
	f.Fix = "outside GKE set " + providerAttribute().At(subject) + " to the resource name of a workload identity provider; on GKE " + f.Fix
	return endpoint.GKECluster{}, f.Error(auth.StageIdentity, "the GKE cluster")
}

// stale reports whether the inquiry failed so long ago that a new inquiry is worthwhile.
func (q *inquiry) stale(retry time.Duration) bool {
	select {
	case <-q.done:
		return q.failure != nil && time.Since(q.ended) > retry
	default:
		return false
	}
}

func (m *metadata) inquire(ctx context.Context, q *inquiry) {
	ctx, cancel := context.WithTimeout(ctx, metadataPatience)
	defer cancel()
	defer close(q.done)
	q.cluster, q.failure = m.cluster(ctx)
	q.ended = time.Now()
}

func (m *metadata) cluster(ctx context.Context) (endpoint.GKECluster, *remote.Failure) {
	var c endpoint.GKECluster
	for _, item := range []struct {
		path     string
		to       *string
		optional bool
	}{
		{path: "project/project-id", to: &c.Project},
		{path: "instance/attributes/cluster-location", to: &c.Location},
		{path: "instance/attributes/cluster-name", to: &c.Name},
		// The project's number may be missing. It is only part of a principal's name in the Fix of
		// an [auth.Error].
		{path: "project/numeric-project-id", to: &c.ProjectNumber, optional: true},
	} {
		answer, failure := m.get(ctx, item.path)
		switch {
		case failure == nil && answer.Status == http.StatusOK:
			*item.to = strings.TrimSpace(string(answer.Body))
		case item.optional:
		case failure != nil:
			return endpoint.GKECluster{}, failure
		case answer.Status == http.StatusNotFound:
			return endpoint.GKECluster{}, &remote.Failure{
				Where: metadataServer, Code: auth.CodeIdentityMissing, What: "this machine of Google Cloud does not belong to a GKE cluster",
				Fix: "check that the cluster has Workload Identity Federation",
			}
		default:
			return endpoint.GKECluster{}, new(answer.Refusal(metadataServer, "the node"))
		}
	}
	if err := c.Check(); err != nil {
		return endpoint.GKECluster{}, &remote.Failure{
			Where: metadataServer, Code: auth.CodeResponseInvalid, What: err.Error(), Fix: "check which server answers as " + metadataServer,
		}
	}
	return c, nil
}

// get asks for one item. The answer may have any status, but must come from a metadata server.
func (m *metadata) get(ctx context.Context, path string) (remote.Answer, *remote.Failure) {
	answer, err := remote.Try(ctx, m.client, func(ctx context.Context) (*http.Request, error) {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, m.root+path, nil)
		if err == nil {
			request.Header.Set(flavor, flavorGoogle)
		}
		return request, err
	})
	if err != nil {
		f := remote.Unanswered(ctx, err, metadataServer)
		f.Cause = nil // the inquiry's own timeout must not look like the end of a caller's context
		return remote.Answer{}, &f
	}
	if answer.Header.Get(flavor) != flavorGoogle {
		return remote.Answer{}, &remote.Failure{
			Where: metadataServer, Code: auth.CodeResponseInvalid, What: "the answer does not come from the metadata server",
			Fix: "check which server answers as " + metadataServer,
		}
	}
	return answer, nil
}

// token gets an access token of the machine's identity or, on GKE, of the Pod's identity.
func (m *metadata) token(ctx context.Context, scopes []string) (*Token, error) {
	asked := time.Now()
	query := url.Values{"scopes": {strings.Join(scopes, ",")}}
	answer, failure := m.get(ctx, "instance/service-accounts/default/token?"+query.Encode())
	if failure != nil {
		failure.Fix, failure.Cause = giveIdentity, context.Cause(ctx)
		return nil, failure.Error(auth.StageIdentity, controllerOperation)
	}
	switch answer.Status {
	case http.StatusOK:
	case http.StatusNotFound:
		return nil, remote.Failure{
			Where: metadataServer, Code: auth.CodeIdentityMissing, What: "no identity is configured, and the node has none", Fix: giveIdentity,
		}.Error(auth.StageIdentity, controllerOperation)
	case http.StatusForbidden:
		return nil, remote.Failure{
			Where: metadataServer, Code: auth.CodeTrustRefused, What: "HTTP status 403",
			Fix: "grant roles/iam.workloadIdentityUser to the controller's ServiceAccount on the service account that it is annotated with",
		}.Error(auth.StageExchange, controllerOperation)
	default:
		return nil, answer.Refusal(metadataServer, "the node").Error(auth.StageExchange, controllerOperation)
	}
	token, err := parseToken(answer.Body, asked)
	if err != nil {
		return nil, remote.Invalid(metadataServer, "a token", err).Error(auth.StageExchange, controllerOperation)
	}
	return token, nil
}
