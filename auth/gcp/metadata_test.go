package gcp_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lanyard-dev/lanyard/auth"
	"github.com/lanyard-dev/lanyard/auth/gcp"
	"github.com/lanyard-dev/lanyard/auth/internal/rig"
	"github.com/lanyard-dev/lanyard/cloudtest/fault"
	cloudgcp "github.com/lanyard-dev/lanyard/cloudtest/gcp"
)

// serveMetadata starts a server with the handler and returns its host and port.
func serveMetadata(tb testing.TB, handler http.HandlerFunc) string {
	tb.Helper()
	server := httptest.NewServer(handler)
	tb.Cleanup(server.Close)
	target, err := url.Parse(server.URL)
	rig.Must(tb, err)
	return target.Host
}

// metadataServer starts a metadata server that has only these items. It returns its host and port.
func metadataServer(tb testing.TB, items map[string]string) string {
	tb.Helper()
	return serveMetadata(tb, func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Metadata-Flavor") != "Google" {
			http.Error(w, "no", http.StatusForbidden)
			return
		}
		w.Header().Set("Metadata-Flavor", "Google")
		value, ok := items[strings.TrimPrefix(r.URL.Path, "/computeMetadata/v1/")]
		if !ok {
			http.NotFound(w, r)
			return
		}
		_, _ = io.WriteString(w, value)
	})
}

// clusterItems returns the metadata of a GKE cluster. The item at the path gets the given value; an
// empty value removes the item.
func clusterItems(path, value string) map[string]string {
	items := map[string]string{
		"project/project-id": projectID, "project/numeric-project-id": projectNumber,
		"instance/attributes/cluster-location": location, "instance/attributes/cluster-name": clusterName,
	}
	if items[path] = value; value == "" {
		delete(items, path)
	}
	return items
}

func audience(ctx context.Context, tb testing.TB, provider *gcp.Provider) (string, error) {
	tb.Helper()
	return rig.Audience(ctx, provider, &auth.Request{Key: auth.Key{Subject: tenant(tb, "tenant-a").Subject}})
}

const setAnnotation = "outside GKE set annotation gcp.lanyard.dev/workload-identity-provider of ServiceAccount tenant-a/tenant-a-gcs-sa"

func TestMetadata(t *testing.T) {
	for name, items := range map[string]map[string]string{
		"GKE":                   clusterItems("", ""),
		"without the number":    clusterItems("project/numeric-project-id", ""),
		"with line ends":        clusterItems("project/project-id", projectID+"\n"),
		"in a zone":             clusterItems("instance/attributes/cluster-location", "europe-west1-b"),
		"domain-scoped project": clusterItems("project/project-id", "example.com:p"),
	} {
		t.Run(name, func(t *testing.T) {
			got, err := audience(t.Context(), t, newProvider(t, gcp.Config{MetadataHost: metadataServer(t, items)}))
			if want := strings.TrimSpace(items["project/project-id"]) + ".svc.id.goog"; err != nil || got != want {
				t.Errorf("%s, %v, want %s", got, err, want)
			}
		})
	}
}

func TestMetadataRefusals(t *testing.T) {
	google := func(status int, body string) string {
		return serveMetadata(t, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Metadata-Flavor", "Google")
			w.WriteHeader(status)
			_, _ = io.WriteString(w, body)
		})
	}
	for _, test := range []struct {
		name, host string
		code       auth.Code
		text       string
	}{
		{"nobody listens", rig.Nowhere(t), auth.CodeUnreachable, "the connection was refused"},
		{"a captive portal", serveMetadata(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "<html>sign in") }), auth.CodeResponseInvalid, "does not come from the metadata server"},
		{"a portal that redirects", serveMetadata(t, func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "http://portal/", http.StatusFound) }), auth.CodeResponseInvalid, "does not come from the metadata server"},
		{"another flavor", serveMetadata(t, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Metadata-Flavor", "Acme")
			_, _ = io.WriteString(w, projectID)
		}), auth.CodeResponseInvalid, "does not come from the metadata server"},
		{"HTML of the right flavor", google(200, "<!DOCTYPE html>\n<html>"), auth.CodeResponseInvalid, "not a project ID"},
		{"failing", google(503, ""), auth.CodeUnavailable, "HTTP status 503"},
		{"forbidden", google(403, "no"), auth.CodeResponseInvalid, "HTTP status 403"},
		{"too much", google(200, strings.Repeat("a", 2<<20)), auth.CodeResponseInvalid, "too long"},
		{"hangs up", serveMetadata(t, func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }), auth.CodeUnreachable, "the connection was closed"},
		{"no cluster", metadataServer(t, clusterItems("instance/attributes/cluster-name", "")), auth.CodeIdentityMissing, "does not belong to a GKE cluster"},
		{"no location", metadataServer(t, clusterItems("instance/attributes/cluster-location", "")), auth.CodeIdentityMissing, "does not belong to a GKE cluster"},
		{"project", metadataServer(t, clusterItems("project/project-id", "p/../q")), auth.CodeResponseInvalid, "not a project ID"},
		{"number", metadataServer(t, clusterItems("project/numeric-project-id", "x")), auth.CodeResponseInvalid, "not a number"},
		{"location", metadataServer(t, clusterItems("instance/attributes/cluster-location", "here")), auth.CodeResponseInvalid, "neither a region nor a zone"},
		{"name", metadataServer(t, clusterItems("instance/attributes/cluster-name", "a:b")), auth.CodeResponseInvalid, "not a cluster's"},
	} {
		t.Run(test.name, func(t *testing.T) {
			_, err := audience(t.Context(), t, newProvider(t, gcp.Config{MetadataHost: test.host}))
			wants{auth.StageIdentity, test.code, test.text, setAnnotation}.check(t, err)
			if strings.Contains(err.Error(), "127.0.0.1") || strings.ContainsAny(err.Error(), "\n") {
				t.Errorf("%v", err)
			}
		})
	}
}

// TestMetadataSlow checks calls while the metadata server does not answer. Each caller waits at
// most until its own deadline, and never more than a few seconds.
func TestMetadataSlow(t *testing.T) {
	stop := make(chan struct{})
	host := serveMetadata(t, func(http.ResponseWriter, *http.Request) { <-stop })
	t.Cleanup(func() { close(stop) })
	provider := newProvider(t, gcp.Config{MetadataHost: host})
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	started := time.Now()
	_, err := audience(ctx, t, provider)
	if took := time.Since(started); !errors.Is(err, context.DeadlineExceeded) || took > 30*time.Second {
		t.Errorf("%v after %s", err, took)
	}
	wants{auth.StageIdentity, auth.CodeUnreachable, "no answer in time", setAnnotation}.check(t, err)
	_, err = audience(t.Context(), t, provider)
	if took := time.Since(started); took > 8*time.Second {
		t.Errorf("an answer after %s", took)
	}
	wants{auth.StageIdentity, auth.CodeUnreachable, "no answer in time", setAnnotation}.check(t, err)
	if errors.Is(err, context.DeadlineExceeded) {
		t.Error("the end of the inquiry is taken for that of the caller's context")
	}
}

func TestMetadataIsAskedOnce(t *testing.T) {
	var asked atomic.Int32
	items := clusterItems("", "")
	var broken atomic.Bool
	release := make(chan struct{})
	host := serveMetadata(t, func(w http.ResponseWriter, r *http.Request) {
		path := strings.TrimPrefix(r.URL.Path, "/computeMetadata/v1/")
		if path == "project/project-id" {
			asked.Add(1)
		}
		<-release
		w.Header().Set("Metadata-Flavor", "Google")
		if broken.Load() {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
		_, _ = io.WriteString(w, items[path])
	})
	provider := newProvider(t, gcp.Config{MetadataHost: host})
	if asked.Load() != 0 {
		t.Error("the metadata server is asked at the start")
	}
	gcp.RetryMetadata(provider, time.Hour)
	// A caller whose context ends does not end the inquiry for other callers.
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := audience(ctx, t, provider); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
	broken.Store(true)
	close(release)
	all := func() (failed int) {
		var wg sync.WaitGroup
		var failures atomic.Int32
		for range 50 {
			wg.Go(func() {
				if got, err := audience(t.Context(), t, provider); err != nil || got != gkePool {
					failures.Add(1)
				}
			})
		}
		wg.Wait()
		return int(failures.Load())
	}
	if n := all(); n != 50 || asked.Load() != 1 {
		t.Errorf("%d failed, asked %d times; want 50, once", n, asked.Load())
	}
	// A failure to learn the cluster is not remembered forever.
	broken.Store(false)
	gcp.RetryMetadata(provider, 0)
	for range 2 {
		if n := all(); n != 0 || asked.Load() != 2 {
			t.Errorf("%d failed, asked %d times; want 0, twice", n, asked.Load())
		}
	}
}

// TestMetadataPassesTheProxy checks that requests to the metadata server do not use the proxy. The
// server is on the machine, and the proxy would see credentials in plain text.
func TestMetadataPassesTheProxy(t *testing.T) {
	base := rig.Wire(t, answer(200, goodToken))
	base.Proxy = func(r *http.Request) (*url.URL, error) {
		if r.URL.Scheme == "http" {
			t.Errorf("%s is asked through the proxy", r.URL.Host)
		}
		return nil, nil
	}
	provider := newProvider(t, gcp.Config{Transport: base, MetadataHost: metadataServer(t, clusterItems("", ""))})
	account := tenant(t, "tenant-a")
	subject := rig.Subject(account, rig.Proof(proofA()))
	_, err := auth.GetToken(t.Context(), provider, subject)
	rig.Must(t, err)
}

// TestAdviceOnGKE checks that on GKE the fix of an error shows the principal as IAM writes it. The
// principal has the project's number if the metadata server returns the number.
func TestAdviceOnGKE(t *testing.T) {
	denied := then(rpcError(403, "PERMISSION_DENIED", "IAM_PERMISSION_DENIED", "no"))
	for number, member := range map[string]string{
		projectNumber: pools + gkePool + "/subject/ns/tenant-a/sa/tenant-a-gcs-sa",
		"":            "serviceAccount:" + gkePool + "[tenant-a/tenant-a-gcs-sa]",
	} {
		host := metadataServer(t, clusterItems("project/numeric-project-id", number))
		account := rig.WithAttribute(tenant(t, "tenant-a"), gcp.ServiceAccountAnnotation, emailA)
		subject := rig.Subject(account, rig.Proof(proofA()))
		as := subject
		_, err := auth.GetToken(t.Context(), newProvider(t, gcp.Config{Transport: rig.Wire(t, denied), MetadataHost: host}), as)
		wants{auth.StageImpersonation, auth.CodeTrustRefused, "PERMISSION_DENIED", "grant roles/iam.workloadIdentityUser on " + emailA + " to " + member}.check(t, err)
		_, err = auth.GetToken(t.Context(), newProvider(t, gcp.Config{Transport: rig.Wire(t, oauthError("invalid_target", "no")), MetadataHost: host}), as)
		wants{auth.StageExchange, auth.CodeTrustRefused, "invalid_target", "check that workload identity pool " + gkePool + " of cluster tenants in europe-west1 exists"}.check(t, err)
	}
}

// TestProviderNeedsNoMetadata checks that an account with a workload identity provider causes no
// request to the metadata server, wherever the controller runs.
func TestProviderNeedsNoMetadata(t *testing.T) {
	w := newWorld(t)
	a := rig.WithAttribute(tenant(t, "tenant-a"), gcp.ProviderAnnotation, providerName)
	_, err := auth.GetToken(t.Context(), w.gcp, w.As(a)...)
	rig.Must(t, err)
	if calls := w.Calls(cloudgcp.ServiceMetadata); len(calls) != 0 {
		t.Errorf("%d questions to the metadata server", len(calls))
	}
	// The token of an account without ProviderAnnotation needs the name of the GKE cluster. Only
	// the first such token asks the metadata server for it, in four requests.
	for range 3 {
		_, err := auth.GetToken(t.Context(), w.gcp, w.As(tenant(t, "tenant-a"))...)
		rig.Must(t, err)
	}
	if calls := w.Calls(cloudgcp.ServiceMetadata); len(calls) != 4 {
		t.Errorf("%d questions to the metadata server, want 4", len(calls))
	}
}

// TestClockSkew checks calls while the cloud's clock is wrong by a few minutes. A proof that is not
// valid by that clock is refused with a clear error. No token lives longer than with a correct
// clock.
func TestClockSkew(t *testing.T) {
	for name, direct := range map[string]bool{"direct": true, "service account": false} {
		for _, skew := range []time.Duration{-5 * time.Minute, 5 * time.Minute} {
			t.Run(name+", "+skew.String(), func(t *testing.T) {
				w := newWorld(t)
				a := w.tenantA(t)
				if direct {
					a = rig.WithAttribute(a, gcp.ServiceAccountAnnotation, "")
				}
				for _, service := range []string{cloudgcp.ServiceSTS, cloudgcp.ServiceIAMCredentials} {
					defer w.Fault(t, fault.Fault{Service: service, Kind: fault.Skew, Skew: skew})()
				}
				token, err := auth.GetToken(t.Context(), w.gcp, w.As(a)...)
				if skew < 0 { // by Google's clock, which is behind, the proof is not valid yet
					wants{auth.StageExchange, auth.CodeProofInvalid, "not valid at this time", "clock"}.check(t, err)
					return
				}
				rig.Must(t, err)
				// If direct is true, the token expires with the proof, which is valid for an hour.
				// Google's clock is ahead, so Google sees less time left.
				most := time.Hour
				if direct {
					most -= skew
				}
				if d := token.GetDuration(); d > most || d < most-time.Minute {
					t.Errorf("valid for %s, want %s", d, most)
				}
			})
		}
	}
}
