package creds_test

import (
	"bytes"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/docker/docker-credential-helpers/client"
	"github.com/docker/docker-credential-helpers/credentials"

	"github.com/lanyard-dev/lanyard/cloudtest/oidc"
	"github.com/lanyard-dev/lanyard/internal/cli/creds"
	"github.com/lanyard-dev/lanyard/internal/must"
)

// ask sends a request to the helper as Docker does. It returns the answer and the advice for users.
func (w *world) ask(t *testing.T, action, input string) (answer, advice string, err error) {
	t.Helper()
	var out, said bytes.Buffer
	helper := creds.Helper{Process: w.process(), Home: t.TempDir(), In: strings.NewReader(input), Out: &out, Err: &said}
	err = helper.Run(t.Context(), action)
	return out.String(), said.String(), err
}

// configure writes the helper's configuration.
func (w *world) configure(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "credentials.yaml")
	must.Succeed(t, os.WriteFile(path, []byte(text), 0o600))
	w.env[creds.HelperFile] = path
	return path
}

// TestHelperAnswers checks that only the hosts in the configuration get a credential.
func TestHelperAnswers(t *testing.T) {
	w := newWorld(t)
	w.configure(t, `registries:
  registry.example.com:
    creds: ServiceAccountToken
    saName: puller
    audiences: [registry.example.com]
  registry.example.com:5000:
    creds: WorkloadIdentityToken
    workloadIdentity: app
    audiences: [registry.example.com]
    user: robot
  cloud.example.com:
    creds: ServiceAccountToken
    saName: puller
    audiences: [sts.amazonaws.com]
  file.example.com:
    tokenFile: `+file(t, w.mint(t, oidc.Claims{"aud": "https://kubernetes.default.svc"}))+`
`)
	for server, want := range map[string]string{ // server → user; "" for no credential; "!" before a part of an error
		"registry.example.com":                "token",
		"https://registry.example.com":        "token",
		"https://registry.example.com/v2/":    "token",
		"registry.example.com/team/app":       "token",
		"Registry.Example.com":                "token",
		"registry.example.com:5000":           "robot",
		"http://registry.example.com":         "",
		"registry.example.com:443":            "",
		"registry.example.com.evil.example":   "",
		"evil.example/registry.example.com":   "",
		"evil.example?registry.example.com":   "",
		"registry.example.com@evil.example":   "",
		"x.registry.example.com":              "",
		"regİstry.example.com":                "",
		"registry.example.com.":               "",
		"example.com":                         "",
		"index.docker.io":                     "",
		"https://index.docker.io/v1/":         "",
		"cloud.example.com":                   "!would be valid at AWS STS",
		"file.example.com":                    "!opens a cluster",
		"ftp://registry.example.com":          "",
		"https://registry.example.com:5000/x": "robot",
	} {
		out, _, err := w.ask(t, "get", server+"\n")
		if refusal, ok := strings.CutPrefix(want, "!"); ok {
			if err == nil || !strings.Contains(out, refusal) {
				t.Errorf("%s: %q, %v", server, out, err)
			}
			continue
		}
		if want == "" {
			if !credentials.IsErrCredentialsNotFoundMessage(out) || err == nil {
				t.Errorf("%s gets %q, %v", server, out, err)
			}
			continue
		}
		var got credentials.Credentials
		if json.Unmarshal([]byte(out), &got) != nil || err != nil || got.ServerURL != server || got.Username != want {
			t.Fatalf("%s: %q, %v", server, out, err)
		}
		if token, err := oidc.Read(got.Secret); err != nil || token.Audience[0] != host {
			t.Errorf("%s: token %+v, %v", server, token, err)
		}
	}

	out, _, err := w.ask(t, "list", "")
	var users map[string]string
	if json.Unmarshal([]byte(out), &users) != nil || err != nil || len(users) != 4 || users["registry.example.com:5000"] != "robot" || users[host] != "token" {
		t.Errorf("list: %q, %v", out, err)
	}
	for action, input := range map[string]string{"store": `{"ServerURL":"registry.example.com","Username":"a","Secret":"hunter2"}`, "erase": host} {
		out, _, err := w.ask(t, action, input)
		if err == nil || !strings.Contains(out, "stores nothing") || strings.Contains(out, "hunter2") {
			t.Errorf("%s: %q, %v", action, out, err)
		}
	}
}

// TestHelperIgnoresTheWorkingFolder asserts that a relative XDG_CONFIG_HOME is ignored. The files
// in the working folder may come from a fork. The author of the fork must not choose who gets a
// credential.
func TestHelperIgnoresTheWorkingFolder(t *testing.T) {
	w := newWorld(t)
	t.Chdir(t.TempDir())
	must.Succeed(t, os.Mkdir("lanyard", 0o700))
	const all = `registries: {registry.example.com: {creds: ServiceAccountToken, saName: puller, audiences: [a]}}`
	must.Succeed(t, os.WriteFile("lanyard/credentials.yaml", []byte(all), 0o600))
	w.env["XDG_CONFIG_HOME"] = "."
	if out, _, err := w.ask(t, "get", host); !credentials.IsErrCredentialsNotFoundMessage(out) || err == nil {
		t.Errorf("%q, %v", out, err)
	}
}

// TestHelperByItsProtocol asserts that Docker's own client understands the answers.
func TestHelperByItsProtocol(t *testing.T) {
	w := newWorld(t)
	w.configure(t, `registries: {registry.example.com: {creds: ServiceAccountToken, saName: puller, audiences: [registry.example.com]}}`)
	docker := func(args ...string) client.Program { return &program{t: t, world: w, action: args[0]} }
	if got, err := client.Get(docker, host); err != nil || got.Username != "token" || got.Secret == "" {
		t.Errorf("%+v, %v", got, err)
	}
	if _, err := client.Get(docker, "evil.example"); !credentials.IsErrCredentialsNotFound(err) {
		t.Error(err)
	}
	if err := client.Store(docker, &credentials.Credentials{ServerURL: host, Username: "a", Secret: "hunter2"}); err == nil || !strings.Contains(err.Error(), "stores nothing") {
		t.Error(err)
	}
	if users, err := client.List(docker); err != nil || users[host] != "token" {
		t.Errorf("%v, %v", users, err)
	}
}

// program implements client.Program, by which Docker's client runs the helper.
type program struct {
	t      *testing.T
	world  *world
	action string
	in     bytes.Buffer
}

func (p *program) Input(in io.Reader) { _, _ = p.in.ReadFrom(in) }

func (p *program) Output() ([]byte, error) {
	out, _, err := p.world.ask(p.t, p.action, p.in.String())
	return []byte(out), err
}

// TestHelperConfiguration checks which configurations are accepted. Errors name the line.
func TestHelperConfiguration(t *testing.T) {
	for name, c := range map[string]struct{ entry, says string }{
		"AWS":                   {"123456789123.dkr.ecr.eu-west-1.amazonaws.com: {creds: aws}", ""},
		"Azure":                 {"lanyard.azurecr.io: {creds: azure}", ""},
		"Google":                {"europe-west1-docker.pkg.dev: {creds: gcp}", ""},
		"GitLab":                {"registry.example.com: {creds: GitLabOIDCToken, tokenEnv: X}", ""},
		"GitHub":                {"registry.example.com: {creds: GitHubOIDCToken, audiences: [a]}", ""},
		"SPIFFE":                {"localhost:5000: {creds: SpiffeJWT, audiences: [a]}", ""},
		"AWS elsewhere":         {"registry.example.com: {creds: aws}", ":2: --creds=aws is for the registries of aws alone"},
		"Azure's look-alike":    {"lanyard.azurecr.io.evil.example: {creds: azure}", ":2: --creds=azure is for"},
		"another cloud":         {"lanyard.azurecr.io: {creds: gcp}", ":2: --creds=gcp is for"},
		"a pattern":             {`"*.example.com": {creds: GitHubOIDCToken, audiences: [a]}`, ":2: "},
		"a repository":          {`registry.example.com/team: {creds: GitHubOIDCToken, audiences: [a]}`, ":2: "},
		"a URL":                 {`https://registry.example.com: {creds: GitHubOIDCToken, audiences: [a]}`, ":2: "},
		"upper case":            {`Registry.example.com: {creds: GitHubOIDCToken, audiences: [a]}`, "in lower case"},
		"nothing":               {"registry.example.com: {}", "write creds or tokenFile"},
		"no audience":           {"registry.example.com: {creds: SpiffeJWT}", "write audiences"},
		"a certificate":         {"registry.example.com: {creds: SpiffeCertificate}", "Docker's protocol has no certificates"},
		"an unknown credential": {"registry.example.com: {creds: hunter}", `creds: there is no credential "hunter"`},
		"an unknown field":      {"registry.example.com: {creds: aws, sa-name: x}", "unknown field"},
		"fields that do not go": {"registry.example.com: {creds: GitHubOIDCToken, audiences: [a], saName: x}", "saName does not go with creds=GitHubOIDCToken"},
		"a host twice":          {"a.example: {creds: aws}\n  a.example: {creds: aws}", ":3: "},
	} {
		w := newWorld(t)
		path := w.configure(t, "registries:\n  "+c.entry+"\n")
		out, _, err := w.ask(t, "list", "")
		if (err == nil) != (c.says == "") || err != nil && !strings.Contains(out, c.says) {
			t.Errorf("%s: %q, want %q", name, out, c.says)
		}
		if err != nil && !strings.HasPrefix(out, path+":") {
			t.Errorf("%s: the error does not begin with its place: %s", name, out)
		}
	}
	w := newWorld(t)
	w.env[creds.HelperFile] = filepath.Join(t.TempDir(), "missing.yaml")
	if out, advice, err := w.ask(t, "get", host); !credentials.IsErrCredentialsNotFoundMessage(out) || err == nil || !strings.Contains(advice, "no registry gets a credential") {
		t.Errorf("no file: %q, %q, %v", out, advice, err)
	}
}
