package aws_test

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/lanyard-dev/lanyard/auth"
	"github.com/lanyard-dev/lanyard/auth/aws"
	"github.com/lanyard-dev/lanyard/auth/internal/rig"
	"github.com/lanyard-dev/lanyard/cloudtest/oidc"
)

// environment sets the given environment variables, and removes every other AWS identity from the
// environment.
func environment(t *testing.T, set map[string]string) {
	t.Helper()
	for _, entry := range os.Environ() {
		if name, _, _ := strings.Cut(entry, "="); strings.HasPrefix(name, "AWS_") {
			t.Setenv(name, "")
		}
	}
	none := filepath.Join(t.TempDir(), "none")
	t.Setenv("HOME", t.TempDir())
	t.Setenv("AWS_CONFIG_FILE", none)
	t.Setenv("AWS_SHARED_CREDENTIALS_FILE", none)
	t.Setenv("AWS_EC2_METADATA_DISABLED", "true")
	for name, value := range set {
		t.Setenv(name, value)
	}
}

func file(t *testing.T, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "file")
	rig.Must(t, os.WriteFile(path, []byte(content), 0o600))
	return path
}

func asController(t *testing.T, w *world) (auth.Token, error) {
	t.Helper()
	return auth.GetToken(t.Context(), w.aws, auth.WithController())
}

// irsa returns the environment variables that EKS gives a Pod whose ServiceAccount has a role.
func irsa(t *testing.T, w *world, trusted string) map[string]string {
	t.Helper()

	token, err := w.Issuer.Mint(oidc.Claims{"sub": controllerSubject, "aud": []string{"sts.amazonaws.com"}})
	rig.Must(t, err)
	return map[string]string{
		"AWS_ROLE_ARN": w.roleFor(t, "lanyard", trusted), "AWS_WEB_IDENTITY_TOKEN_FILE": file(t, token), "AWS_ROLE_SESSION_NAME": "controller",
	}
}

const controllerSubject = "system:serviceaccount:lanyard-system:lanyard-controller"

func TestControllerIRSA(t *testing.T) {
	w := newWorld(t)
	environment(t, irsa(t, w, controllerSubject))
	token, err := asController(t, w)
	rig.Must(t, err)
	if whose, err := w.caller(t.Context(), token); err != nil || whose != "arn:aws:iam::123456789123:role/lanyard-ecr" {
		t.Errorf("%s, %v", whose, err)
	}
	credentials, err := auth.GetToken(t.Context(), w.aws, auth.WithController(), auth.WithImageRepository(imageA))
	if err != nil || credentials.(*auth.RegistryCredentials).Password.IsZero() {
		t.Errorf("registry: %v, %v", credentials, err)
	}
}

// TestControllerTokenStaysInItsPartition checks that an object cannot have the controller's web
// identity token sent to another partition than the one of the controller's role. The operator of
// the other partition could use the token to assume the controller's role.
func TestControllerTokenStaysInItsPartition(t *testing.T) {
	w := newWorld(t)
	set := irsa(t, w, controllerSubject)
	profile := "role_arn = " + set["AWS_ROLE_ARN"] + "\nweb_identity_token_file = " + set["AWS_WEB_IDENTITY_TOKEN_FILE"] + "\n"
	nowhere := w.provider(t, aws.Config{}) // a provider without a region
	for name, environ := range map[string]map[string]string{
		"variables":      set,
		"profile":        {"AWS_CONFIG_FILE": file(t, "[default]\n"+profile)},
		"source profile": {"AWS_CONFIG_FILE": file(t, "[default]\nrole_arn = arn:aws-cn:iam::123456789123:role/a\nsource_profile = base\n[profile base]\n"+profile)},
		"role of no partition": {
			"AWS_ROLE_ARN": "arn:aws-mars:iam::123456789123:role/a", "AWS_WEB_IDENTITY_TOKEN_FILE": set["AWS_WEB_IDENTITY_TOKEN_FILE"],
		},
	} {
		t.Run(name, func(t *testing.T) {
			environment(t, environ)
			for _, provider := range []*aws.Provider{w.aws, nowhere} {
				for _, option := range []auth.Option{
					auth.WithSTSRegion("cn-north-1"),
					auth.WithImageRepository("123456789123.dkr.ecr.cn-north-1.amazonaws.com.cn/a"),
					auth.WithImageRepository("123456789123.dkr.ecr.us-gov-west-1.amazonaws.com/a"),
				} {
					_, err := auth.GetToken(t.Context(), provider, auth.WithController(), option)
					e, ok := errors.AsType[*auth.Error](err)
					if !ok || e.Stage != auth.StageIdentity || e.Code != auth.CodeIdentityInvalid || !strings.Contains(e.Error(), "artition") || e.Fix == "" {
						t.Errorf("%v", err)
					}
				}
			}
		})
	}
	if calls := w.Calls(""); len(calls) != 0 {
		t.Errorf("%d calls were made", len(calls))
	}
	// Another region of the role's partition is permitted.
	environment(t, set)
	_, err := auth.GetToken(t.Context(), nowhere, auth.WithController(), auth.WithSTSRegion("us-west-2"))
	rig.Must(t, err)
}

func TestControllerRefusedByTrust(t *testing.T) {
	w := newWorld(t)
	environment(t, irsa(t, w, "nobody"))
	_, err := asController(t, w)
	e, ok := errors.AsType[*auth.Error](err)
	if !ok || e.Stage != auth.StageExchange || e.Code != auth.CodeTrustRefused || !strings.Contains(e.Fix, "AWS_ROLE_ARN") {
		t.Errorf("%v", err)
	}
}

// TestControllerCABundle checks that the SDK trusts the certificate authorities in the file that
// AWS_CA_BUNDLE names. The SDK can add them only to an HTTP client of its own type,
// awshttp.BuildableClient.
func TestControllerCABundle(t *testing.T) {
	w := newWorld(t)
	set := irsa(t, w, controllerSubject)
	set["AWS_CA_BUNDLE"] = file(t, string(w.Cloud.CAPEM()))
	environment(t, set)
	trusting := w.Base
	w.Base = &http.Transport{Proxy: trusting.Proxy} // trusts only the system's authorities, not the local cloud's
	w.aws = w.provider(t, aws.Config{Region: region})
	_, err := asController(t, w)
	rig.Must(t, err)
	t.Setenv("AWS_CA_BUNDLE", "")
	if _, err := asController(t, w); auth.CodeOf(err) != auth.CodeUnreachable {
		t.Errorf("without the bundle: %v", err)
	}
	// The SDK must add the bundle to a copy of the provider's root certificates, because other
	// connections use the original set.
	w.Base = &http.Transport{Proxy: trusting.Proxy, TLSClientConfig: trusting.TLSClientConfig.Clone()}
	w.aws = w.provider(t, aws.Config{Region: region})
	before := trusting.TLSClientConfig.RootCAs.Clone()
	other := httptest.NewUnstartedServer(nil)
	other.StartTLS()
	defer other.Close()
	t.Setenv("AWS_CA_BUNDLE", file(t, pemOf(other)))
	_, err = asController(t, w)
	rig.Must(t, err)
	if !trusting.TLSClientConfig.RootCAs.Equal(before) {
		t.Error("AWS_CA_BUNDLE was added to the authorities of all connections")
	}
}

func TestControllerStaticKeys(t *testing.T) {
	w := newWorld(t)
	environment(t, map[string]string{"AWS_ACCESS_KEY_ID": "AKIA0000000000000000", "AWS_SECRET_ACCESS_KEY": "static-secret"})
	token, err := asController(t, w)
	rig.Must(t, err)
	c := token.(*aws.Token).Credentials()
	if c.AccessKeyID != "AKIA0000000000000000" || c.SecretAccessKey != "static-secret" || c.SessionToken != "" {
		t.Error("other keys than those of the environment")
	}
	// Keys without an expiration are read again within an hour.
	if d := token.GetDuration(); d <= 59*time.Minute || d > time.Hour {
		t.Errorf("valid for %s", d)
	}
}

func TestControllerPodIdentity(t *testing.T) {
	w := newWorld(t)
	agent := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/v1/credentials" || r.Header.Get("Authorization") != "pod-token" {
			http.Error(rw, "no", http.StatusForbidden)
			return
		}
		_, _ = io.WriteString(rw, `{"AccessKeyId":"ASIAPOD","SecretAccessKey":"s","Token":"t","Expiration":"2124-01-01T00:00:00Z"}`)
	}))
	defer agent.Close()
	environment(t, map[string]string{"AWS_CONTAINER_CREDENTIALS_FULL_URI": agent.URL + "/v1/credentials", "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE": file(t, "pod-token")})
	token, err := asController(t, w)
	rig.Must(t, err)
	if c := token.(*aws.Token).Credentials(); c.AccessKeyID != "ASIAPOD" || c.Expires.Year() < 2123 {
		t.Errorf("until %s", c.Expires)
	}
	t.Setenv("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", file(t, "wrong"))
	_, err = asController(t, w)
	if e, ok := errors.AsType[*auth.Error](err); !ok || e.Code != auth.CodeRefused || e.Fix == "" {
		t.Errorf("refused by the agent: %v", err)
	}
}

// metadata starts an EC2 instance metadata service and returns its URL.
func metadata(t *testing.T, role string) string {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		const path = "/latest/meta-data/iam/security-credentials/"
		switch {
		case r.URL.Path == "/latest/api/token":
			rw.Header().Set("X-Aws-Ec2-Metadata-Token-Ttl-Seconds", "21600")
			_, _ = io.WriteString(rw, "imds-token")
		case role != "" && r.URL.Path == path:
			_, _ = io.WriteString(rw, role)
		case role != "" && r.URL.Path == path+role:
			_, _ = io.WriteString(rw, `{"Code":"Success","AccessKeyId":"ASIANODE","SecretAccessKey":"s","Token":"t","Expiration":"2124-01-01T00:00:00Z"}`)
		default:
			http.NotFound(rw, r)
		}
	}))
	t.Cleanup(server.Close)
	return server.URL
}

func TestControllerInstanceMetadata(t *testing.T) {
	// The proxy refuses plain HTTP, so the test fails if a metadata request goes through the proxy.
	w := newWorld(t)
	environment(t, map[string]string{"AWS_EC2_METADATA_DISABLED": "", "AWS_EC2_METADATA_SERVICE_ENDPOINT": metadata(t, "node")})
	token, err := asController(t, w)
	rig.Must(t, err)
	if c := token.(*aws.Token).Credentials(); c.AccessKeyID != "ASIANODE" {
		t.Error("other keys than those of the node")
	}
	for name, set := range map[string]map[string]string{
		"no role":  {"AWS_EC2_METADATA_SERVICE_ENDPOINT": metadata(t, "")},
		"disabled": {"AWS_EC2_METADATA_DISABLED": "true"},
	} {
		t.Run(name, func(t *testing.T) {
			for name, value := range set {
				t.Setenv(name, value)
			}
			_, err := asController(t, w)
			if e, ok := errors.AsType[*auth.Error](err); !ok || e.Stage != auth.StageIdentity || e.Code != auth.CodeIdentityMissing || !strings.Contains(e.Fix, "IRSA") {
				t.Errorf("%v", err)
			}
		})
	}
	t.Run("away", func(t *testing.T) {
		t.Setenv("AWS_EC2_METADATA_SERVICE_ENDPOINT", "http://127.0.0.1:1")
		if _, err := asController(t, w); auth.CodeOf(err) != auth.CodeUnreachable || !strings.Contains(err.Error(), "IRSA") {
			t.Errorf("%v", err)
		}
	})
}

// TestControllerInstanceMetadataAstray checks calls when the metadata service does not answer, or
// when another server has its address. That server must not delay callers. Its text must not appear
// in errors.
func TestControllerInstanceMetadataAstray(t *testing.T) {
	w := newWorld(t)
	serve := func(answer http.HandlerFunc) string {
		server := httptest.NewServer(answer)
		t.Cleanup(server.Close)
		return server.URL
	}
	const page = "<html><head><title>Sign in</title></head><body>captive-portal</body></html>"
	html := func(status int) http.HandlerFunc {
		return func(rw http.ResponseWriter, _ *http.Request) {
			rw.Header().Set("Content-Type", "text/html")
			rw.WriteHeader(status)
			_, _ = io.WriteString(rw, page)
		}
	}
	// once() starts a metadata service and returns its URL. Requests whose URL path contains the
	// given text go to the given handler. All other requests get correct answers.
	once := func(path string, then http.HandlerFunc) string {
		good, err := url.Parse(metadata(t, "node"))
		rig.Must(t, err)
		proxy := httputil.NewSingleHostReverseProxy(good)
		return serve(func(rw http.ResponseWriter, r *http.Request) {
			if strings.Contains(r.URL.Path, path) {
				then(rw, r)
				return
			}
			proxy.ServeHTTP(rw, r)
		})
	}
	done := make(chan struct{})
	defer close(done) // end the handlers, because a server's Close waits for its handlers
	hang := func(http.ResponseWriter, *http.Request) { <-done }
	away := http.RedirectHandler("https://captive-portal.example.org/", http.StatusFound).ServeHTTP
	cut := func(rw http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(rw, `{"Code":"Success","AccessKeyId":"ASIA`)
	}
	trickle := func(rw http.ResponseWriter, _ *http.Request) {
		rw.WriteHeader(http.StatusOK)
		for {
			if _, err := io.WriteString(rw, " "); err != nil {
				return
			}
			_ = http.NewResponseController(rw).Flush()
			select {
			case <-done:
				return
			case <-time.After(10 * time.Millisecond):
			}
		}
	}
	w.aws = w.provider(t, aws.Config{Region: region, Timeout: time.Second})
	for name, test := range map[string]struct {
		endpoint string
		code     auth.Code
		text     string
	}{
		"hangs":                 {serve(hang), auth.CodeUnreachable, "no answer in time"},
		"hangs after the token": {once("/security-credentials/", hang), auth.CodeUnreachable, "no answer in time"},
		"hangs at the end":      {once("/node", hang), auth.CodeUnreachable, "no answer in time"},
		"trickles":              {serve(trickle), auth.CodeUnreachable, "no answer in time"},
		"trickles at the end":   {once("/node", trickle), auth.CodeUnreachable, "no answer in time"},
		"HTML":                  {serve(html(200)), auth.CodeResponseInvalid, "does not come from the metadata service"},
		"HTML after the token":  {once("/security-credentials/", html(200)), auth.CodeResponseInvalid, "does not come from the metadata service"},
		"HTML at the end":       {once("/node", html(200)), auth.CodeResponseInvalid, "does not come from the metadata service"},
		"cut off":               {once("/node", cut), auth.CodeResponseInvalid, "does not come from the metadata service"},
		"HTML 403":              {serve(html(403)), auth.CodeIdentityMissing, "the node has none"},
		"HTML 404":              {serve(html(404)), auth.CodeIdentityMissing, "the node has none"},
		"HTML 503":              {serve(html(503)), auth.CodeUnavailable, "HTTP status 503"},
		"redirect":              {serve(away), auth.CodeResponseInvalid, "HTTP status 302"},
	} {
		t.Run(name, func(t *testing.T) {
			environment(t, map[string]string{"AWS_EC2_METADATA_DISABLED": "", "AWS_EC2_METADATA_SERVICE_ENDPOINT": test.endpoint})
			start := time.Now()
			_, err := asController(t, w)
			if d := time.Since(start); d > 10*time.Second {
				t.Errorf("it took %s", d)
			}
			e, ok := errors.AsType[*auth.Error](err)
			if !ok || e.Code != test.code || !strings.Contains(e.Err.Error(), test.text) || e.Fix == "" {
				t.Errorf("got %v, want %s with %q", err, test.code, test.text)
			}
			if ok && (strings.Contains(e.Error(), "html") || strings.Contains(e.Error(), "portal")) {
				t.Errorf("the error repeats the answer: %v", e)
			}
		})
	}
}

func TestControllerStartsNoProgram(t *testing.T) {
	for name, config := range map[string]string{
		"default profile": "[default]\ncredential_process = PROGRAM\n",
		"source profile":  "[default]\nrole_arn = arn:aws:iam::123456789123:role/r\nsource_profile = base\n[profile base]\ncredential_process = PROGRAM\n",
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			trace := filepath.Join(t.TempDir(), "started")
			program := filepath.Join(t.TempDir(), "program")
			rig.Must(t, os.WriteFile(program, []byte("#!/bin/sh\ntouch "+trace+"\necho '{\"Version\":1,\"AccessKeyId\":\"a\",\"SecretAccessKey\":\"b\"}'\n"), 0o700))
			environment(t, map[string]string{"AWS_CONFIG_FILE": file(t, strings.ReplaceAll(config, "PROGRAM", program))})
			_, err := asController(t, w)
			e, ok := errors.AsType[*auth.Error](err)
			if !ok || e.Code != auth.CodeOptionUnsupported || !strings.Contains(e.Error(), "credential_process") || e.Fix == "" {
				t.Errorf("%v", err)
			}
			if _, err := os.Stat(trace); !os.IsNotExist(err) {
				t.Errorf("the program was started: %v", err)
			}
		})
	}
}

func TestControllerConfigurationFaults(t *testing.T) {
	for name, test := range map[string]struct {
		set  map[string]string
		text string
	}{
		"profile": {map[string]string{"AWS_PROFILE": "none"}, "the profile none does not exist"},
		"bundle":  {map[string]string{"AWS_CA_BUNDLE": file(t, "no certificate")}, "a setting is not valid"},
		"token":   {map[string]string{"AWS_ROLE_ARN": roleA, "AWS_WEB_IDENTITY_TOKEN_FILE": "/none/token"}, "the token file they name is mounted"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			environment(t, test.set)
			_, err := asController(t, w)
			if e, ok := errors.AsType[*auth.Error](err); !ok || e.Stage != auth.StageIdentity || e.Fix == "" || !strings.Contains(e.Error(), test.text) {
				t.Errorf("%v", err)
			}
		})
	}
}

// TestControllerTakesNoDetour checks that NewControllerToken itself refuses a tenant's endpoint and
// a tenant's proxy, although GetTarget refuses both earlier.
func TestControllerTakesNoDetour(t *testing.T) {
	w := newWorld(t)
	environment(t, irsa(t, w, controllerSubject))
	for name, request := range map[string]*auth.Request{
		"endpoint": {Key: auth.Key{Subject: auth.Controller(), Target: auth.Target{STSRegion: region, STSEndpoint: "https://sts.eu-west-1.amazonaws.com"}}},
		"proxy":    {Key: auth.Key{Subject: auth.Controller(), Target: auth.Target{STSRegion: region}}, ProxyURL: &url.URL{Scheme: "http", Host: "proxy:1"}},
	} {
		if _, err := w.aws.NewControllerToken(t.Context(), request); auth.CodeOf(err) != auth.CodeEndpointRefused {
			t.Errorf("%s: %v", name, err)
		}
	}
	if n := w.exchanges(); n != 0 {
		t.Errorf("%d exchanges", n)
	}
}

func TestControllerRegion(t *testing.T) {
	w := newWorld(t)
	environment(t, irsa(t, w, controllerSubject))
	_, err := auth.GetToken(t.Context(), w.aws, auth.WithController(), auth.WithSTSRegion("us-west-2"))
	rig.Must(t, err)
	if calls := w.Calls("sts"); len(calls) != 1 || calls[0].Host != "sts.us-west-2.amazonaws.com" {
		t.Errorf("%+v", calls)
	}
}
