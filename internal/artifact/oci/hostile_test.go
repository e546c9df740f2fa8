package oci_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/lanyard-dev/lanyard/internal/artifact/origin"
)

// tokens is a token server inside the cluster that gives its token to anybody.
func tokens(w http.ResponseWriter, _ *http.Request) {
	_ = json.NewEncoder(w).Encode(map[string]string{"token": insideToken})
}

const (
	inside      = "svc.ns.svc.cluster.local"
	insideToken = "a-token-of-the-inside"
)

func challenge(realm string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("WWW-Authenticate", fmt.Sprintf(`Bearer realm=%q,service="test"`, realm))
		w.WriteHeader(http.StatusUnauthorized)
	}
}

// at returns a registry. The given handler answers the requests whose path contains the given part.
func at(part string, answer http.HandlerFunc) *fake {
	f, _ := artifact("layer")
	f.override = func(w http.ResponseWriter, r *http.Request) bool {
		hit := strings.Contains(r.URL.Path, part) && (part != "/v2/" || r.URL.Path == part)
		if hit {
			answer(w, r)
		}
		return hit
	}
	return f
}

// TestHostileRegistryLeadsNowhere checks that a tenant's registry cannot lead the controller to
// hosts that the tenant cannot reach. The registry names such hosts:
//   - in its answer to /v2/
//   - as its token server
//   - in redirects of its token server, manifests and blobs
func TestHostileRegistryLeadsNowhere(t *testing.T) {
	for _, to := range []string{
		"http://" + inside + "/any/path?x=y", "http://" + inside + ":8500/any/path?x=y", "http://10.0.3.7:9090/any/path?x=y",
		"https://10.0.3.7/any/path?x=y", "https://169.254.169.254/latest/meta-data", "https://[fd00::1]/x", "https://127.0.0.1/x",
		"http://" + registryHost + ":8500/any/path", "ftp://" + inside + "/x",
	} {
		redirect := func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Location", to)
			w.WriteHeader(http.StatusFound)
		}
		for name, registry := range map[string]http.Handler{
			"root":                 at("/v2/", redirect),
			"realm":                at("/v2/", challenge(to)),
			"realm that redirects": at("/v2/", challenge("https://"+tokenHost+"/token")),
			"realm of a redirect": at("/v2/", func(w http.ResponseWriter, r *http.Request) {
				http.Redirect(w, r, "https://"+blobHost+"/", http.StatusFound)
			}),
			"tags":  at("/manifests/", redirect),
			"blobs": at("/blobs/", redirect),
			"blobs that ask for it": at("/blobs/", func(w http.ResponseWriter, r *http.Request) {
				http.Redirect(w, r, "https://"+blobHost+"/", http.StatusFound)
			}),
		} {
			for _, insecure := range []bool{false, true} {
				others := map[string]http.Handler{tokenHost: http.HandlerFunc(redirect), blobHost: challenge(to), inside: http.HandlerFunc(tokens)}
				plain := map[string]http.Handler{inside: http.HandlerFunc(tokens)}
				if insecure {
					plain[registryHost] = registry
				} else {
					others[registryHost] = registry
				}
				n := serveBoth(t, others, plain)
				opts := credentials()
				opts.Insecure = insecure
				_, err := pull(t.Context(), n, opts, appURL)
				if err == nil || origin.CodeOf(err) == "" {
					t.Fatalf("%s, insecure %t, to %s: %v", name, insecure, to, err)
				}
				noSecret(t, err, insideToken, "x=y")
				target, _ := url.Parse(to)
				says := map[string]string{"root": "it leads to " + target.Host + " without TLS", "blobs": "it leads to " + target.Host + " without TLS", "realm": "realm"}
				if target.Scheme == "http" && !insecure && !strings.Contains(err.Error(), says[name]) {
					t.Errorf("%s, to %s: %v, want %q", name, to, err, says[name])
				}
				for _, r := range n.requests {
					if r.URL.Host == target.Host && r.URL.Scheme == target.Scheme {
						t.Errorf("%s, insecure %t: %s was asked", name, insecure, r.URL)
					}
					if strings.Contains(r.Header.Get("Authorization"), insideToken) {
						t.Errorf("%s, insecure %t: %s was shown the token", name, insecure, r.URL)
					}
				}
			}
		}
	}
}

// TestRegistriesLeadElsewhere checks that redirects and token servers of common registries work.
func TestRegistriesLeadElsewhere(t *testing.T) {
	withToken := func(realm string) http.Handler {
		f, _ := artifact("layer")
		f.override = func(w http.ResponseWriter, r *http.Request) bool {
			switch {
			case r.URL.Path == "/service/token":
				tokens(w, r)
			case r.Header.Get("Authorization") != "Bearer "+insideToken:
				challenge(realm)(w, r)
			default:
				return false
			}
			return true
		}
		return f
	}
	other := map[string]http.Handler{tokenHost: http.HandlerFunc(tokens)}
	for name, test := range map[string]struct {
		registry http.Handler
		insecure bool
	}{
		"tokens at the same host, as at ghcr.io and quay.io":     {withToken("https://" + registryHost + "/service/token"), false},
		"tokens elsewhere, as at Docker Hub and GitLab":          {withToken("https://" + tokenHost + "/token"), false},
		"tokens of a Harbor without TLS":                         {withToken("http://" + registryHost + "/service/token"), true},
		"tokens of a Harbor without TLS, port written":           {withToken("http://" + registryHost + ":80/service/token"), true},
		"tokens elsewhere with TLS for a registry that has none": {withToken("https://" + tokenHost + "/token"), true},
		"a root elsewhere, as that of registry.k8s.io": {at("/v2/", func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "https://"+tokenHost+"/", http.StatusTemporaryRedirect)
		}), false},
	} {
		n := serve(t, map[string]http.Handler{registryHost: test.registry, tokenHost: other[tokenHost]})
		if test.insecure {
			n = serveBoth(t, other, map[string]http.Handler{registryHost: test.registry})
		}
		opts := credentials()
		opts.Insecure = test.insecure
		if body, err := pull(t.Context(), n, opts, appURL); err != nil || body != "layer" {
			t.Errorf("%s: %q, %v", name, body, err)
		}
	}
}

// TestDockerHubIsAtHome checks that requests go to the host of Docker Hub's API, which differs from
// the host in its repositories' names.
func TestDockerHubIsAtHome(t *testing.T) {
	n := serveBoth(t, nil, nil)
	opts := credentials()
	opts.Insecure = true
	if _, err := pull(t.Context(), n, opts, "oci://docker.io/library/alpine"); origin.CodeOf(err) != origin.CodeUnreachable {
		t.Errorf("%v", err)
	}
	if len(n.sent("index.docker.io")) != len(n.requests) || len(n.requests) == 0 {
		t.Errorf("%d requests, %d to Docker Hub", len(n.requests), len(n.sent("index.docker.io")))
	}
}
