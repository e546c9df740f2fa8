package gcp_test

import (
	"context"
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"cloud.google.com/go/compute/metadata"
	"golang.org/x/oauth2"
	"golang.org/x/oauth2/google"
	"golang.org/x/oauth2/google/externalaccount"

	"github.com/lanyard-dev/lanyard/cloudtest/gcp"
	"github.com/lanyard-dev/lanyard/cloudtest/internal/must"
	"github.com/lanyard-dev/lanyard/cloudtest/internal/rig"
	"github.com/lanyard-dev/lanyard/cloudtest/journal"
	"github.com/lanyard-dev/lanyard/cloudtest/oidc"
)

// TestSDKExternalAccount uses Google's own library for Go, unmodified, with a token in a file. The
// library gets one access token without impersonation, and one of a service account.
func TestSDKExternalAccount(t *testing.T) {
	w := newWorld(t)
	ctx := context.WithValue(t.Context(), oauth2.HTTPClient, w.client)
	file := filepath.Join(t.TempDir(), "token")
	must.Succeed(t, os.WriteFile(file, []byte(minted(t)(w.pool.Mint(poolClaims(ksaA, "tenant-a")))), 0o600))
	get := func(account string) (*oauth2.Token, error) {
		config := map[string]any{
			"type": "external_account", "audience": poolAudience, "subject_token_type": "urn:ietf:params:oauth:token-type:jwt",
			"token_url": "https://sts.googleapis.com/v1/token", "credential_source": map[string]any{"file": file},
		}
		if account != "" {
			config["service_account_impersonation_url"] = "https://iamcredentials.googleapis.com/v1/projects/-/serviceAccounts/" + account + ":generateAccessToken"
		}
		text, err := json.Marshal(config)
		must.Succeed(t, err)
		creds, err := google.CredentialsFromJSONWithType(ctx, text, google.ExternalAccount, scopeAll)
		must.Succeed(t, err)
		return creds.TokenSource.Token()
	}
	for account, want := range map[string]string{"": "", accountA: "", accountB: "iam.serviceAccounts.getAccessToken"} {
		token, err := get(account)
		switch {
		case want == "" && err != nil:
			t.Errorf("as %q: %v", account, err)
		case want == "" && (token.AccessToken == "" || token.Type() != "Bearer" || time.Until(token.Expiry) > time.Hour || time.Until(token.Expiry) < 55*time.Minute):
			t.Errorf("as %q: a token until %s", account, token.Expiry)
		case want != "" && (err == nil || !strings.Contains(err.Error(), want)):
			t.Errorf("as %q: %v", account, err)
		}
	}
}

type supplier string

func (s supplier) SubjectToken(context.Context, externalaccount.SupplierOptions) (string, error) {
	return string(s), nil
}

// TestSDKExternalAccountOfGKE checks that the token source of Google's library accepts GKE's
// audience, and reports STS's refusals.
func TestSDKExternalAccountOfGKE(t *testing.T) {
	w := newWorld(t)
	ctx := context.WithValue(t.Context(), oauth2.HTTPClient, w.client)
	for name, tt := range map[string]struct{ token, want string }{
		"good":   {minted(t)(w.cluster.Mint(clusterClaims(ksaB))), ""},
		"forged": {minted(t)(w.cluster.Forge(clusterClaims(ksaB))), "invalid_grant"},
	} {
		source, err := externalaccount.NewTokenSource(ctx, externalaccount.Config{
			Audience: gkeAudience, SubjectTokenType: "urn:ietf:params:oauth:token-type:jwt", TokenURL: "https://sts.googleapis.com/v1/token",
			Scopes: []string{scopeAll}, SubjectTokenSupplier: supplier(tt.token),
			ServiceAccountImpersonationURL:             "https://iamcredentials.googleapis.com/v1/projects/-/serviceAccounts/" + accountB + ":generateAccessToken",
			ServiceAccountImpersonationLifetimeSeconds: 600,
		})
		must.Succeed(t, err)
		token, err := source.Token()
		switch {
		case tt.want == "" && (err != nil || time.Until(token.Expiry) > 10*time.Minute):
			t.Errorf("%s: %+v %v", name, token, err)
		case tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)):
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestSDKMetadata checks that Google's own client for the metadata server works unmodified, with
// GCE_METADATA_HOST.
func TestSDKMetadata(t *testing.T) {
	w := newWorld(t)
	must.Succeed(t, w.Start(t.Context()))
	env := w.Env("ca.pem")
	at := slices.IndexFunc(env, func(v string) bool { return strings.HasPrefix(v, "GCE_METADATA_HOST=") })
	if at < 0 {
		t.Fatalf("%v", env)
	}
	t.Setenv("GCE_METADATA_HOST", strings.TrimPrefix(env[at], "GCE_METADATA_HOST="))
	client := metadata.NewClient(&http.Client{Transport: &http.Transport{DisableKeepAlives: true}})
	ctx := t.Context()
	for path, want := range map[string]string{
		"project/project-id": projectID, "project/numeric-project-id": projectNumber, "instance/attributes/cluster-name": "tenants",
		"instance/attributes/cluster-location": "europe-west1", "universe/universe-domain": "googleapis.com",
		"instance/service-accounts/default/email": controller, "instance/service-accounts/default/scopes": scopeAll + "\n",
	} {
		if got, err := client.GetWithContext(ctx, path); err != nil || got != want {
			t.Errorf("%s: %q %v", path, got, err)
		}
	}
	if _, err := client.GetWithContext(ctx, "instance/attributes/other"); err == nil {
		t.Error("there is an attribute that is not")
	} else if _, undefined := err.(metadata.NotDefinedError); !undefined { //nolint:errorlint // the library's own way
		t.Errorf("%v", err)
	}
	token, err := google.ComputeTokenSource("").Token()
	if err != nil || token.AccessToken == "" {
		t.Errorf("%+v %v", token, err)
	}
	raw, err := client.GetWithContext(ctx, "instance/service-accounts/default/identity?audience=https://receiver.example&format=full")
	must.Succeed(t, err)
	identity, err := oidc.Read(raw)
	must.Succeed(t, err)
	verifier := &oidc.Verifier{Client: w.client}
	if err := verifier.Verify(ctx, identity, time.Now()); err != nil || identity.Issuer != "https://accounts.google.com" || identity.Claims["email"] != controller {
		t.Errorf("%+v %v", identity.Claims, err)
	}
	calls := w.Journal().Calls(journal.Filter{Service: gcp.ServiceMetadata, Operation: "instance/service-accounts/default/token"})
	if len(calls) != 1 || calls[0].Principal != "serviceAccount:"+controller {
		t.Errorf("journal has %+v", calls)
	}
}

// TestMetadataRefusals: the header Metadata-Flavor is required, forwarded requests are refused, and
// unknown paths are not found.
func TestMetadataRefusals(t *testing.T) {
	w := newWorld(t)
	const root = "http://metadata.google.internal"
	for _, tt := range []struct {
		name, method, path string
		header             []string
		status             int
		text               string
	}{
		{"with the header", "GET", "/computeMetadata/v1/project/project-id", []string{"Metadata-Flavor", "Google"}, 200, projectID},
		{"HEAD", "HEAD", "/computeMetadata/v1/project/project-id", []string{"Metadata-Flavor", "Google"}, 200, ""},
		{"root", "GET", "/", []string{"Metadata-Flavor", "Google"}, 200, "computeMetadata/\n"},
		{"directory", "GET", "/computeMetadata/v1/instance/", []string{"Metadata-Flavor", "Google"}, 200, "attributes/\nservice-accounts/\n"},
		{"directory without a slash", "GET", "/computeMetadata/v1/instance", []string{"Metadata-Flavor", "Google"}, 200, "attributes/\nservice-accounts/\n"},
		{"recursive", "GET", "/computeMetadata/v1/instance/service-accounts/default/?recursive=true", []string{"Metadata-Flavor", "Google"}, 200, `"scopes": [`},
		{"without the header", "GET", "/computeMetadata/v1/project/project-id", nil, 403, "Missing Metadata-Flavor:Google header."},
		{"header of another flavor", "GET", "/computeMetadata/v1/project/project-id", []string{"Metadata-Flavor", "Other"}, 403, "Missing"},
		{"forwarded", "GET", "/computeMetadata/v1/project/project-id", []string{"Metadata-Flavor", "Google", "X-Forwarded-For", "10.0.0.1"}, 403, "X-Forwarded-For"},
		{"not there", "GET", "/computeMetadata/v1/instance/attributes/kube-env", []string{"Metadata-Flavor", "Google"}, 404, "<!DOCTYPE html>"},
		{"another version", "GET", "/computeMetadata/v2/project/project-id", []string{"Metadata-Flavor", "Google"}, 404, "<!DOCTYPE html>"},
		{"POST", "POST", "/computeMetadata/v1/project/project-id", []string{"Metadata-Flavor", "Google"}, 405, ""},
		{"identity without audience", "GET", "/computeMetadata/v1/instance/service-accounts/default/identity", []string{"Metadata-Flavor", "Google"}, 400, "audience"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := rig.NewRequest(t, tt.method, root+tt.path, "", "")
			for i := 0; i < len(tt.header); i += 2 {
				r.Header.Set(tt.header[i], tt.header[i+1])
			}
			a := w.do(t, r)
			if a.status != tt.status || !strings.Contains(a.body, tt.text) || a.header.Get("Metadata-Flavor") != "Google" {
				t.Errorf("HTTP %d %q, %q", a.status, a.header.Get("Metadata-Flavor"), a.body)
			}
		})
	}
}

// TestMetadataIdentities checks the email and the token of these workloads:
//   - a node
//   - a Kubernetes ServiceAccount
//   - a Kubernetes ServiceAccount that refers to an IAM service account
//
// The last one gets a token only if it may impersonate the IAM service account.
func TestMetadataIdentities(t *testing.T) {
	w := newWorld(t)
	gke := gcp.Metadata{Project: projectID, ClusterLocation: "europe-west1", ClusterName: "tenants", KubernetesServiceAccount: "tenant-a/tenant-a-bucket-sa"}
	as := func(account string) gcp.Metadata {
		m := gke
		m.ServiceAccount = account
		return m
	}
	get := func(path string) answer {
		r := rig.NewRequest(t, http.MethodGet, "http://metadata.google.internal/computeMetadata/v1/instance/service-accounts/default/"+path, "", "")
		r.Header.Set("Metadata-Flavor", "Google")
		return w.do(t, r)
	}
	for _, tt := range []struct {
		name      string
		metadata  gcp.Metadata
		email     string
		status    int
		principal string
		text      string
	}{
		{"node", gcp.Metadata{Project: projectID, ServiceAccount: controller}, controller, 200, "serviceAccount:" + controller, ""},
		{"ServiceAccount itself", gke, gkePool, 200, principalOf("tenant-a", "tenant-a-bucket-sa"), ""},
		{"allowed to be another", as(accountA), accountA, 200, "serviceAccount:" + accountA, ""},
		{"not allowed", as(accountB), accountB, 403, "", "Unable to generate access token; IAM returned 403 Forbidden: Permission 'iam.serviceAccounts.getAccessToken' denied"},
		{"no such account", as("no-body@my-org-project.iam.gserviceaccount.com"), "no-body@my-org-project.iam.gserviceaccount.com", 404, "", "Gaia id not found for email"},
		{"nobody", gcp.Metadata{Project: projectID}, "", 404, "", "404"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			must.Succeed(t, w.GCP().PutMetadata(tt.metadata))
			if a := get("email"); (tt.email == "") != (a.status == 404) || (tt.email != "" && a.body != tt.email) {
				t.Errorf("email: HTTP %d %s", a.status, a.body)
			}
			before := w.Journal().Last()
			a := get("token")
			if a.status != tt.status || !strings.Contains(a.body, tt.text) {
				t.Errorf("HTTP %d %s", a.status, a.body)
			}
			calls := w.Journal().Calls(journal.Filter{After: before, Service: gcp.ServiceMetadata})
			if len(calls) != 1 || calls[0].Principal != tt.principal {
				t.Errorf("journal has %+v", calls)
			}
		})
	}
	w.GCP().DeleteMetadata()
	w.client.CloseIdleConnections()
	r := rig.NewRequest(t, http.MethodGet, "http://metadata.google.internal/computeMetadata/v1/project/project-id", "", "")
	if res, err := w.client.Do(r); err == nil {
		_ = res.Body.Close()
		t.Errorf("there is still a metadata server: HTTP %d", res.StatusCode)
	}
	if env := w.Env("ca.pem"); slices.ContainsFunc(env, func(v string) bool { return strings.HasPrefix(v, "GCE_METADATA_HOST") }) {
		t.Error("the environment still names one")
	}
}
