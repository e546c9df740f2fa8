package artifacts

import (
	"encoding/base64"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lanyard-dev/lanyard/cloudtest/oidc"
	"github.com/lanyard-dev/lanyard/internal/must"
)

// TestNoTokenWithoutTLS checks which credentials are sent without TLS if --insecure-registry is
// set. A password that was given to docker login is sent. These credentials are never sent:
//   - one from a credential helper
//   - a token that the command "lanyard token" printed
//   - one from a cloud
func TestNoTokenWithoutTLS(t *testing.T) {
	issuer, err := oidc.NewIssuer("https://issuer.example.com", oidc.ES256)
	must.Succeed(t, err)
	token, err := issuer.Mint(oidc.Claims{"sub": "job", "aud": "registry.example.com", "exp": time.Now().Add(time.Hour).Unix()})
	must.Succeed(t, err)
	var requests atomic.Int64
	registry := distribution(t)
	host := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		requests.Add(1)
		registry.ServeHTTP(w, r)
	}))
	source := folder(t, map[string]string{"app.yaml": "1"})
	home, programs := t.TempDir(), t.TempDir()
	t.Setenv("HOME", home)
	t.Setenv("DOCKER_CONFIG", "")
	t.Setenv("PATH", programs+":"+os.Getenv("PATH"))
	script := fmt.Sprintf("#!/bin/sh\necho '{\"Username\": \"token\", \"Secret\": \"%s\"}'\n", token)
	must.Succeed(t, os.WriteFile(filepath.Join(programs, "docker-credential-lanyard"), []byte(script), 0o700))
	login := func(host, password string) string {
		return fmt.Sprintf(`{"auths": {%q: {"auth": %q}}}`, host, base64.StdEncoding.EncodeToString([]byte("user:"+password)))
	}
	const ecr = "123456789012.dkr.ecr.eu-west-1.amazonaws.com"
	for name, tt := range map[string]struct {
		config, host string
		sent         bool
	}{
		"a password":      {login(host, "hunter2"), host, true},
		"the helper":      {fmt.Sprintf(`{"credHelpers": {%q: "lanyard"}}`, host), host, false},
		"lanyard token":   {login(host, token), host, false},
		"a cloud's login": {login(ecr, "opaque"), ecr, false},
	} {
		must.Succeed(t, os.MkdirAll(filepath.Join(home, ".docker"), 0o700))
		must.Succeed(t, os.WriteFile(filepath.Join(home, ".docker", "config.json"), []byte(tt.config), 0o600))
		for _, args := range [][]string{
			{"push", "artifact", "--insecure-registry", "--path", source, "oci://" + tt.host + "/app:1.0.0"},
			{"__complete", "pull", "artifact", "--insecure-registry", "oci://" + tt.host + "/app:"},
		} {
			before := requests.Load()
			var p process
			status := p.exactly(t.Context(), args...)
			if sent := requests.Load() > before; sent != tt.sent {
				t.Errorf("%s: lanyard %q sends requests: %v", name, args, sent)
			}
			if completes := args[0] == "__complete"; !completes && (status == 0) != tt.sent || !tt.sent && !completes && !strings.Contains(p.err.String(), "never sent without TLS") {
				t.Errorf("%s: status %d: %s", name, status, p.err.String())
			}
			if strings.Contains(p.err.String()+p.out.String(), token) {
				t.Errorf("%s: lanyard %q prints the token", name, args)
			}
		}
	}
}
