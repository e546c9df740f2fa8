package gcp_test

import (
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"maps"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/lanyard-dev/lanyard/auth"
	"github.com/lanyard-dev/lanyard/auth/gcp"
	"github.com/lanyard-dev/lanyard/auth/internal/rig"
	cloudgcp "github.com/lanyard-dev/lanyard/cloudtest/gcp"
	"github.com/lanyard-dev/lanyard/cloudtest/oidc"
)

// environment sets the program's environment so that its only identity is a credentials file with
// this content. If content is empty, there is no identity.
func environment(t *testing.T, content string) (path string) {
	t.Helper()
	for _, entry := range os.Environ() {
		if name, _, _ := strings.Cut(entry, "="); strings.HasPrefix(name, "GOOGLE_") || strings.HasPrefix(name, "GCE_") || strings.HasPrefix(name, "AWS_") {
			t.Setenv(name, "")
		}
	}
	t.Setenv("HOME", t.TempDir())
	if content != "" {
		path = file(t, content)
	}
	t.Setenv("GOOGLE_APPLICATION_CREDENTIALS", path)
	return path
}

func file(t *testing.T, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "credentials.json")
	rig.Must(t, os.WriteFile(path, []byte(content), 0o600))
	return path
}

func asController(t *testing.T, provider *gcp.Provider, more ...auth.Option) (auth.Token, error) {
	t.Helper()
	return auth.GetToken(t.Context(), provider, append([]auth.Option{auth.WithController()}, more...)...)
}

func document(t *testing.T, fields map[string]any) string {
	t.Helper()
	data, err := json.Marshal(fields)
	rig.Must(t, err)
	return string(data)
}

// federated returns a credentials file for workload identity federation, in the form that gcloud
// writes. It names a second file, which has the proof.
func federated(t *testing.T, w *world, more map[string]any) string {
	t.Helper()
	proof, err := w.Issuer.Mint(oidc.Claims{"sub": controllerSubject, "aud": []string{"https://iam.googleapis.com/" + providerName}})
	rig.Must(t, err)
	fields := map[string]any{
		"type": "external_account", "audience": "//iam.googleapis.com/" + providerName,
		"subject_token_type": "urn:ietf:params:oauth:token-type:jwt", "token_url": "https://sts.googleapis.com/v1/token",
		"credential_source": map[string]any{"file": file(t, proof)},
	}
	maps.Copy(fields, more)
	return document(t, fields)
}

const controllerSubject = "system:serviceaccount:lanyard-system:lanyard-controller"

func TestControllerFromMetadata(t *testing.T) {
	w := newWorld(t)
	environment(t, "")
	token, err := asController(t, w.gcp)
	rig.Must(t, err)
	if whose, err := w.whose(t.Context(), token); err != nil || whose != "serviceAccount:"+controllerAccount {
		t.Errorf("%s, %v", whose, err)
	}
	credentials, err := asController(t, w.gcp, auth.WithImageRepository(imageA))
	rig.Must(t, err)
	if c, ok := credentials.(*auth.RegistryCredentials); !ok || c.Username != "oauth2accesstoken" || c.Password.IsZero() {
		t.Errorf("registry: %v", credentials)
	}
	// On GKE the token belongs to the Pod's ServiceAccount.
	rig.Must(t, w.Cloud.GCP().PutMetadata(cloudgcp.Metadata{
		Project: projectID, ClusterLocation: location, ClusterName: clusterName, KubernetesServiceAccount: "lanyard-system/lanyard-controller",
	}))
	token, err = asController(t, w.gcp)
	rig.Must(t, err)
	if whose, err := w.whose(t.Context(), token); err != nil || whose != pools+gkePool+"/subject/ns/lanyard-system/sa/lanyard-controller" {
		t.Errorf("%s, %v", whose, err)
	}
}

func TestControllerWithoutIdentity(t *testing.T) {
	for name, test := range map[string]struct {
		host string
		want wants
	}{
		"no metadata server": {rig.Nowhere(t), wants{auth.StageIdentity, auth.CodeUnreachable, "the connection was refused", "Workload Identity Federation for GKE"}},
		"a machine without one": {
			metadataServer(t, clusterItems("", "")),
			wants{auth.StageIdentity, auth.CodeIdentityMissing, "the node has none", "GOOGLE_APPLICATION_CREDENTIALS"},
		},
		"a captive portal": {
			serveMetadata(t, answer(200, goodToken)),
			wants{auth.StageIdentity, auth.CodeResponseInvalid, "does not come from the metadata server", "name a ServiceAccount in the object"},
		},
		"refused": {serveGoogle(t, 403, "Unable to generate access token"), wants{auth.StageExchange, auth.CodeTrustRefused, "HTTP status 403", "roles/iam.workloadIdentityUser"}},
		"failing": {serveGoogle(t, 500, ""), wants{auth.StageExchange, auth.CodeUnavailable, "HTTP status 500", "wait"}},
		"throttled": {
			serveGoogle(t, 429, ""), wants{auth.StageExchange, auth.CodeThrottled, "HTTP status 429", "quota"},
		},
		"no token": {serveGoogle(t, 200, "{}"), wants{auth.StageExchange, auth.CodeResponseInvalid, "no access_token", "answers as the metadata server"}},
		"no end": {
			serveGoogle(t, 200, `{"access_token":"a","token_type":"Bearer"}`),
			wants{auth.StageExchange, auth.CodeResponseInvalid, "no expires_in", "answers as the metadata server"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			environment(t, "")
			_, err := asController(t, newProvider(t, gcp.Config{MetadataHost: test.host}))
			test.want.check(t, err)
		})
	}
}

// serveGoogle starts a metadata server that always gives the same answer.
func serveGoogle(tb testing.TB, status int, body string) string {
	tb.Helper()
	return serveMetadata(tb, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Metadata-Flavor", "Google")
		answer(status, body)(w, r)
	})
}

func TestControllerFederated(t *testing.T) {
	w := newWorld(t)
	environment(t, federated(t, w, nil))
	token, err := asController(t, w.gcp)
	rig.Must(t, err)
	if whose, err := w.whose(t.Context(), token); err != nil || whose != pools+"tenants/subject/"+controllerSubject {
		t.Errorf("%s, %v", whose, err)
	}
	if d := token.GetDuration(); d < 50*time.Minute || d > time.Hour {
		t.Errorf("valid for %s", d)
	}

	// The controller finds its credentials file at gcloud's default path. The file names a service
	// account to impersonate.
	w.accountFor(t, "lanyard", pools+"tenants/subject/"+controllerSubject)
	impersonation := "https://iamcredentials.googleapis.com/v1/projects/-/serviceAccounts/" + emailOf("lanyard") + ":generateAccessToken"
	content := federated(t, w, map[string]any{"service_account_impersonation_url": impersonation})
	environment(t, "")
	folder := filepath.Join(os.Getenv("HOME"), ".config", "gcloud")
	rig.Must(t, os.MkdirAll(folder, 0o700))
	rig.Must(t, os.WriteFile(filepath.Join(folder, "application_default_credentials.json"), []byte(content), 0o600))
	token, err = asController(t, w.gcp)
	rig.Must(t, err)
	if whose, err := w.whose(t.Context(), token); err != nil || whose != "serviceAccount:"+emailOf("lanyard") {
		t.Errorf("%s, %v", whose, err)
	}
	w.accountFor(t, "lanyard") // no member may impersonate the service account any more
	_, err = asController(t, w.gcp)
	wants{auth.StageExchange, auth.CodeTrustRefused, "iamcredentials.googleapis.com, the controller's own token: HTTP status 403", "credentials file"}.check(t, err)
}

func TestControllerKey(t *testing.T) {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	rig.Must(t, err)
	pkcs8, err := x509.MarshalPKCS8PrivateKey(key)
	rig.Must(t, err)
	private := string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: pkcs8}))
	environment(t, document(t, map[string]any{
		"type": "service_account", "client_email": emailA, "private_key_id": "1", "private_key": private, "token_uri": "https://oauth2.googleapis.com/token",
	}))
	var asked string
	provider := wired(t, func(w http.ResponseWriter, r *http.Request) {
		asked = r.Host + r.URL.Path
		answer(200, `{"access_token":"`+accountTokenA+`","token_type":"Bearer","expires_in":3599}`)(w, r)
	})
	token, err := asController(t, provider)
	rig.Must(t, err)
	if asked != "oauth2.googleapis.com/token" || token.(*gcp.Token).Secret.Reveal() != accountTokenA {
		t.Errorf("asked %s", asked)
	}
	_, err = asController(t, wired(t, answer(200, `{"access_token":"`+accountTokenA+`","token_type":"Bearer"}`)))
	wants{auth.StageExchange, auth.CodeResponseInvalid, "no access token with an end", "answers as oauth2.googleapis.com"}.check(t, err)
	_, err = asController(t, wired(t, answer(400, `{"error":"invalid_grant","error_description":"Invalid JWT Signature. `+private[:60]+`"}`)))
	wants{auth.StageExchange, auth.CodeTrustRefused, "oauth2.googleapis.com, the controller's own token: HTTP status 400", "credentials file"}.check(t, err)
	if strings.Contains(err.Error(), "PRIVATE") || strings.Contains(err.Error(), "Signature") {
		t.Errorf("the answer is repeated: %v", err)
	}
	_, err = asController(t, wired(t, func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }))
	wants{auth.StageExchange, auth.CodeUnreachable, "the connection was closed", "reached"}.check(t, err)
	_, err = asController(t, wired(t, answer(503, "")))
	wants{auth.StageExchange, auth.CodeUnavailable, "HTTP status 503", "wait"}.check(t, err)
}

func TestControllerStartsNoProgram(t *testing.T) {
	trace := filepath.Join(t.TempDir(), "started")
	program := filepath.Join(t.TempDir(), "program")
	rig.Must(t, os.WriteFile(program, []byte("#!/bin/sh\ntouch "+trace+"\n"), 0o700))
	w := newWorld(t)
	executable := map[string]any{"executable": map[string]any{"command": program}}
	inner := map[string]any{}
	rig.Must(t, json.Unmarshal([]byte(federated(t, w, map[string]any{"credential_source": executable})), &inner))
	for name, content := range map[string]string{
		"source":                  federated(t, w, map[string]any{"credential_source": executable}),
		"source with a file too":  federated(t, w, map[string]any{"credential_source": map[string]any{"file": "/x", "executable": map[string]any{"command": program}}}),
		"source in upper case":    federated(t, w, map[string]any{"Credential_Source": map[string]any{"EXECUTABLE": map[string]any{"command": program}}}),
		"source of an account":    document(t, map[string]any{"type": "impersonated_service_account", "service_account_impersonation_url": "https://x", "source_credentials": inner}),
		"source given twice":      strings.Replace(federated(t, w, nil), "{", `{"credential_source":{"executable":{"command":"`+program+`"}},`, 1),
		"source without anything": federated(t, w, map[string]any{"credential_source": map[string]any{"executable": map[string]any{}}}),
	} {
		t.Run(name, func(t *testing.T) {
			environment(t, content)
			t.Setenv("GOOGLE_EXTERNAL_ACCOUNT_ALLOW_EXECUTABLES", "1")
			_, err := asController(t, w.gcp)
			wants{auth.StageIdentity, auth.CodeOptionUnsupported, "no program is started for a credential", "Workload Identity Federation"}.check(t, err)
			if _, err := os.Stat(trace); !os.IsNotExist(err) {
				t.Errorf("the program was started: %v", err)
			}
		})
	}
}

func TestControllerFileFaults(t *testing.T) {
	w := newWorld(t)
	nested := map[string]any{"type": "external_account"}
	for range 20 {
		nested = map[string]any{"type": "impersonated_service_account", "service_account_impersonation_url": "https://x", "source_credentials": nested}
	}
	// An RSA key with the primes 3 and 5. crypto/rsa would compute with this key, so
	// NewControllerToken must refuse the key.
	const tiny = "-----BEGIN RSA PRIVATE KEY-----\nMBsCAQACAQ8CAQMCAQMCAQMCAQUCAQECAQMCAQI=\n-----END RSA PRIVATE KEY-----\n"
	for name, test := range map[string]struct{ content, text string }{
		"not JSON":            {"<html>", "not JSON"},
		"no type":             {"{}", "its type  is not supported"},
		"unknown type":        {`{"type":"secret-type"}`, "its type secret-type is not supported"},
		"people":              {`{"type":"service_account","web":{"redirect_uris":["x"]}}`, "signing in people"},
		"universe":            {federated(t, w, map[string]any{"universe_domain": "s3nsapis.fr"}), "in universe s3nsapis.fr"},
		"no audience":         {federated(t, w, map[string]any{"audience": ""}), "cannot be used"},
		"no token file":       {federated(t, w, map[string]any{"credential_source": map[string]any{"file": "/nowhere/token"}}), "no request could be made"},
		"a key that is none":  {document(t, map[string]any{"type": "service_account", "private_key": "secret-key"}), "its private_key: there is no private key in PEM"},
		"a key that burns":    {document(t, map[string]any{"type": "service_account", "private_key": tiny}), "its private_key: the RSA key has 4 bits"},
		"too deep":            {document(t, nested), "nests too many credentials"},
		"longer than any one": {`{"x":"` + strings.Repeat("a", 2<<20) + `"}`, "cannot be read"},
	} {
		t.Run(name, func(t *testing.T) {
			path := environment(t, test.content)
			_, err := asController(t, w.gcp)
			wants{auth.StageIdentity, auth.CodeIdentityInvalid, test.text, "correct the controller's credentials file"}.check(t, err)
			if !strings.Contains(err.Error(), path) || strings.Contains(err.Error(), "secret-key") || len(err.Error()) > 1000 {
				t.Errorf("%v", err)
			}
		})
	}
	t.Run("missing", func(t *testing.T) {
		environment(t, "")
		t.Setenv("GOOGLE_APPLICATION_CREDENTIALS", "/nowhere/credentials.json")
		_, err := asController(t, w.gcp)
		wants{auth.StageIdentity, auth.CodeIdentityInvalid, "the credentials file /nowhere/credentials.json: it cannot be read", "correct"}.check(t, err)
	})
}

// TestControllerTakesNoDetour checks that NewControllerToken itself refuses a tenant's proxy, and
// that GetToken refuses a call with such a proxy.
func TestControllerTakesNoDetour(t *testing.T) {
	w := newWorld(t)
	environment(t, federated(t, w, nil))
	request := &auth.Request{Key: auth.Key{Subject: auth.Controller()}, ProxyURL: &url.URL{Scheme: "http", Host: "proxy:1"}}
	if _, err := w.gcp.NewControllerToken(t.Context(), request); auth.CodeOf(err) != auth.CodeEndpointRefused {
		t.Errorf("%v", err)
	}
	if n := w.exchanges(); n != 0 {
		t.Errorf("%d exchanges", n)
	}
	_, err := asController(t, w.gcp, auth.WithProxyURL(w.Proxy))
	if e, ok := errors.AsType[*auth.Error](err); !ok || e.Code != auth.CodeEndpointRefused || e.Fix == "" {
		t.Errorf("%v", err)
	}
}
