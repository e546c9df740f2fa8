package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/distribution/distribution/v3/configuration"
	distribution "github.com/distribution/distribution/v3/registry"
	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/registry"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/yaml"

	"github.com/lanyard-dev/lanyard/cloudtest/oidc"
	"github.com/lanyard-dev/lanyard/internal/cli/creds/credstest"
	"github.com/lanyard-dev/lanyard/internal/issuer"
	"github.com/lanyard-dev/lanyard/internal/local"
)

// Issuers and identities of the tests' CI systems, and repositories at the tests' registries.
const (
	gitHubIssuer   = "https://token.actions.githubusercontent.com"
	gitHubEndpoint = "run-actions-1-azure-eastus.actions.githubusercontent.com"
	gitLabIssuer   = "https://gitlab.example.com"
	gitLabSubject  = "project_path:tenant-a/app:ref_type:branch:ref:main"
	agentIssuer    = "https://oidc.agents.example.org"
	agentID        = "spiffe://example.org/ci/app"

	ownRepository     = "team/app"
	foreignRepository = "other/app"
)

// ciJob is a job of a CI system: it runs the program lanyard in an environment of its own.
type ciJob struct {
	env    []string
	folder string // folder with the content to push
}

// newCIJob returns a job in the local cloud's network. Its only identity is in env.
func newCIJob(t *testing.T, env ...string) *ciJob {
	t.Helper()
	j := &ciJob{folder: t.TempDir()}
	j.env = append(world.Cloud().Env(), "PATH="+os.Getenv("PATH"), "HOME="+t.TempDir(),
		// Let gRPC log as much as it can, so that a secret in its logs is found.
		"GRPC_GO_LOG_SEVERITY_LEVEL=info", "GRPC_GO_LOG_VERBOSITY_LEVEL=99")
	j.env = append(j.env, env...)
	must(t, "write content", os.WriteFile(filepath.Join(j.folder, "app.yaml"), []byte("kind: ConfigMap\n"), 0o600))
	return j
}

// tokenLike matches text that looks like a JWT or a private key.
var tokenLike = regexp.MustCompile(`eyJ[A-Za-z0-9_-]{10,}|PRIVATE KEY`)

// run runs a program in the job's environment. The program's output must contain no secret.
func (j *ciJob) run(t *testing.T, program string, args ...string) (out, said string, err error) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), program, args...)
	cmd.Env = j.env
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err = cmd.Run()
	if found := tokenLike.FindString(stdout.String() + stderr.String()); found != "" && args[0] != "token" {
		t.Errorf("%s %q prints a secret: %.20s…", filepath.Base(program), args, found)
	}
	return stdout.String(), stderr.String(), err
}

// commands returns lanyard's arguments for several commands about an artifact. Each key begins with
// a number. Run the commands in the order of these numbers, because the first command pushes the
// artifact.
func (j *ciJob) commands(t *testing.T, repository string) map[string][]string {
	t.Helper()
	return map[string][]string{
		"1 push": {"push", "artifact", repository + ":1.0.0", "--path=" + j.folder},
		"2 diff": {"diff", "artifact", repository + ":1.0.0", "--path=" + j.folder},
		"3 tag":  {"tag", "artifact", repository + ":1.0.0", "--tag=latest"},
		"4 list": {"list", "artifact", repository},
		"5 pull": {"pull", "artifact", repository + ":latest", "--path=" + filepath.Join(t.TempDir(), "pulled")},
	}
}

// refusedThere matches a registry's refusal of a credential, or an issuer's refusal to issue a
// token for the registry.
var refusedThere = regexp.MustCompile(`\b40[13]\b|audience`)

// proves runs all commands with a credential. They must work at the job's own repository. They must
// fail at another repository, or without the credential.
func (j *ciJob) proves(t *testing.T, host string, credential ...string) {
	t.Helper()
	own := j.commands(t, "oci://"+host+"/"+ownRepository)
	for _, name := range []string{"1 push", "2 diff", "3 tag", "4 list", "5 pull"} {
		if out, said, err := j.run(t, binary("lanyard"), append(own[name], credential...)...); err != nil {
			t.Errorf("%s: %v: %s%s", name, err, out, said)
		}
		if _, said, err := j.run(t, binary("lanyard"), own[name]...); err == nil || !strings.Contains(said, "no credential was sent") {
			t.Errorf("%s without a credential: %v: %s", name, err, said)
		}
	}
	for name, args := range j.commands(t, "oci://"+host+"/"+foreignRepository) {
		if _, said, err := j.run(t, binary("lanyard"), append(args, credential...)...); err == nil || !refusedThere.MatchString(said) {
			t.Errorf("%s of another repository: %v: %s", name, err, said)
		}
	}
}

// refused asserts that a push with the credential is refused, with the given words in the message.
func (j *ciJob) refused(t *testing.T, host, says string, credential ...string) {
	t.Helper()
	args := append([]string{"push", "artifact", "oci://" + host + "/" + ownRepository + ":1.0.0", "--path=" + j.folder}, credential...)
	if _, said, err := j.run(t, binary("lanyard"), args...); err == nil || !strings.Contains(said, says) {
		t.Errorf("%q: %v: %s, want %q", credential, err, said, says)
	}
}

// TestCI makes jobs of CI systems push and pull with their own identities. The Apache HTTP Server
// and CNCF Distribution check the identities; neither has code for Lanyard.
func TestCI(t *testing.T) {
	beside(t)
	tn := newTenant(t, "ci")
	tn.putAccount(t, "runner", "")
	tn.putAccount(t, "other", "")
	rights(t, tn.namespace)
	t.Run("ServiceAccountToken", func(t *testing.T) { jobsInTheCluster(t, tn.namespace) })
	t.Run("GitHubOIDCToken", jobsOfGitHub)
	t.Run("GitLabOIDCToken", jobsOfGitLab)
	t.Run("SpiffeJWT", jobsWithJWTSVIDs)
	t.Run("SpiffeCertificate", jobsWithCertificates)
	t.Run("clouds", jobsInClouds)
}

// example runs a script from examples/ci as a job. It replaces the registry in the script with
// host.
func (j *ciJob) example(t *testing.T, file, host string, script func(document map[string]any) string) {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("..", "..", "examples", "ci", file))
	must(t, "read an example", err)
	parts := bytes.Split(data, []byte("\n---\n"))
	var document map[string]any
	must(t, "read an example", yaml.Unmarshal(parts[len(parts)-1], &document))
	folder := t.TempDir()
	must(t, "copy the content", os.CopyFS(filepath.Join(folder, "deploy"), os.DirFS(j.folder)))
	lanyard, err := filepath.Abs(binary("lanyard"))
	must(t, "find lanyard", err)
	text := strings.NewReplacer("registry.example.com", host, "lanyard ", lanyard+" ").Replace(script(document))
	cmd := exec.CommandContext(t.Context(), "/bin/sh", "-ec", text)
	cmd.Dir, cmd.Env = folder, append(j.env, "GITHUB_SHA=6c1b1a7", "GITHUB_REF_NAME=main", "GITHUB_SERVER_URL=https://github.com", "GITHUB_REPOSITORY=team/app",
		"CI_COMMIT_SHA=6c1b1a7", "CI_COMMIT_BRANCH=main", "CI_PROJECT_URL=https://gitlab.com/team/app")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("examples/ci/%s: %v: %s", file, err, out)
	}
}

// at returns the member of a document at this path.
func at(document any, path ...any) any {
	for _, step := range path {
		switch step := step.(type) {
		case string:
			document = document.(map[string]any)[step]
		case int:
			document = document.([]any)[step]
		}
	}
	return document
}

// words joins the lines of a script or the words of a command.
func words(list any, separator string) string {
	var all []string
	for _, word := range list.([]any) {
		all = append(all, word.(string))
	}
	return strings.Join(all, separator)
}

// rights allows the ServiceAccount "runner" to request tokens for itself, and nothing else.
func rights(t *testing.T, namespace string) {
	t.Helper()
	meta := metav1.ObjectMeta{Namespace: namespace, Name: "own-tokens"}
	create(t, &rbacv1.Role{ObjectMeta: meta, Rules: []rbacv1.PolicyRule{{
		APIGroups: []string{""}, Resources: []string{"serviceaccounts/token"}, ResourceNames: []string{"runner"}, Verbs: []string{"create"},
	}}})
	create(t, &rbacv1.RoleBinding{
		ObjectMeta: meta, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: meta.Name},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: namespace, Name: "runner"}},
	})
}

// jobsInTheCluster tests jobs with a ServiceAccount of the cluster.
func jobsInTheCluster(t *testing.T, namespace string) {
	t.Helper()
	const host = "ci-cluster.registry.example.com"
	subjects := map[string]string{ownRepository: "system:serviceaccount:" + namespace + ":runner", foreignRepository: "system:serviceaccount:" + namespace + ":other"}
	newFederatedRegistry(t, host).protectFor(t, local.Issuer, clusterKeys, "oci://"+host+"/"+ownRepository, subjects)
	const kind = "--creds=ServiceAccountToken"
	config := kubeconfig(t, namespace, "runner")
	job := newCIJob(t, "KUBECONFIG="+config)
	kubectlAsTheJob(t, job, config, namespace)
	account := []string{kind, "--sa-name=runner", "--sa-namespace=" + namespace}
	job.proves(t, host, account...) // the default audience is the artifact's URL
	job.proves(t, host, append(account, "--audiences=aud1,oci://"+host+"/"+ownRepository)...)
	held := secretFile(t, "token", token(t, namespace, "runner", "oci://"+host+"/"+ownRepository))
	job.proves(t, host, kind, "--sa-token="+held)
	job.proves(t, host, "--token-file="+held)

	job.example(t, "job.yaml", host, func(d map[string]any) string {
		container := at(d, "spec", "template", "spec", "containers", 0)
		command := words(at(container, "command"), " ") + " " + words(at(container, "args"), " ")
		return strings.NewReplacer("/var/run/secrets/registry/token", held, "=/deploy", "="+job.folder).Replace(command)
	})

	job.refused(t, host, "401", append(account, "--audiences=aud1,aud2")...)
	job.refused(t, host, `needs "create" on serviceaccounts/token in namespace `+namespace, kind, "--sa-name=other", "--sa-namespace="+namespace)
	job.refused(t, host, "--sa-name names no ServiceAccount", kind)
	job.refused(t, host, "opens a cluster", append(account, "--audiences="+local.Issuer)...)
	job.refused(t, host, "AWS STS", append(account, "--audiences="+stsAudience)...)
	job.refused(t, host, "opens a cluster", kind, "--sa-token="+secretFile(t, "token", token(t, namespace, "runner")))
	job.refused(t, host, "is never sent without TLS", append(account, "--insecure-registry")...)
}

// kubectlAsTheJob makes kubectl run lanyard as its credential plugin. The plugin needs a kubeconfig
// of its own. If the plugin gets kubectl's kubeconfig, its error message must say how to pass
// another one.
func kubectlAsTheJob(t *testing.T, job *ciJob, config, namespace string) {
	t.Helper()
	lanyard, err := filepath.Abs(binary("lanyard"))
	must(t, "find lanyard", err)
	kubectl, err := clientcmd.LoadFromFile(config)
	must(t, "read a kubeconfig", err)
	for name := range kubectl.AuthInfos {
		kubectl.AuthInfos[name] = &clientcmdapi.AuthInfo{Exec: &clientcmdapi.ExecConfig{
			APIVersion: "client.authentication.k8s.io/v1", InteractiveMode: clientcmdapi.NeverExecInteractiveMode, Command: lanyard,
			Args: []string{
				"token", "--creds=ServiceAccountToken", "--sa-name=runner", "--sa-namespace=" + namespace, "--audiences=" + local.Issuer,
				"--format=exec-credential",
			},
		}}
	}
	path := filepath.Join(t.TempDir(), "kubeconfig")
	must(t, "write a kubeconfig", clientcmd.WriteToFile(*kubectl, path))
	whoami := []string{"kubectl", "--kubeconfig=" + path, "auth", "whoami", "-o", "jsonpath={.status.userInfo.username}"}
	out, said, err := job.run(t, binary("controlplane"), whoami...)
	if want := "system:serviceaccount:" + namespace + ":runner"; err != nil || out != want {
		t.Errorf("kubectl is %q, %v: %s; want %s", out, err, said, want)
	}
	if out, said, err := newCIJob(t, "KUBECONFIG="+path).run(t, binary("controlplane"), whoami...); err == nil || !strings.Contains(said, "add --kubeconfig to the plugin's args") {
		t.Errorf("lanyard with kubectl's own kubeconfig: %q, %v: %s", out, err, said)
	}
}

// jobsWithIdentities tests jobs that may request tokens of a WorkloadIdentity.
func jobsWithIdentities(t *testing.T, w *issuerWorld) {
	t.Helper()
	const host, namespace, kind = "ci-issuer.registry.example.com", "ci-identities", "--creds=WorkloadIdentityToken"
	own := "oci://" + host + "/" + ownRepository
	w.putNamespace(t, namespace)
	identity := w.newIdentity(t, namespace, "app", own)
	newFederatedRegistry(t, host).protectFor(t, ownIssuer, ownIssuer+"/jwks", own, map[string]string{ownRepository: issuer.Subject(identity), foreignRepository: "another"})
	job := newCIJob(t, "KUBECONFIG="+w.Kubeconfig())
	job.proves(t, host, kind, "--workload-identity=app", "--namespace="+namespace)
	job.refused(t, host, "audience", kind, "--workload-identity=app", "--namespace="+namespace, "--audiences=another")
	job.refused(t, host, "there is no workloadidentity/none in namespace "+namespace, kind, "--workload-identity=none", "--namespace="+namespace)
	job.refused(t, host, "needs --workload-identity", kind)
}

// jobsOfGitHub tests jobs of GitHub Actions.
func jobsOfGitHub(t *testing.T) {
	const host = "ci-github.registry.example.com"
	gitHub := credstest.NewGitHub(t, gitHubIssuer)
	must(t, "serve GitHub's keys", world.Cloud().HandleIssuer(gitHub.Issuer))
	must(t, "serve GitHub's endpoint", world.Cloud().Handle(gitHubEndpoint, gitHub))
	t.Cleanup(func() {
		_ = world.Cloud().Handle(gitHub.Issuer.Host(), nil)
		_ = world.Cloud().Handle(gitHubEndpoint, nil)
	})
	protected := newFederatedRegistry(t, host)
	protected.protect(t, gitHubIssuer, gitHubIssuer+"/keys", map[string]string{ownRepository: credstest.GitHubSubject, foreignRepository: "repo:tenant-b/app:ref:refs/heads/main"})
	const kind, audience = "--creds=GitHubOIDCToken", "--audiences=" + host
	address := "ACTIONS_ID_TOKEN_REQUEST_URL=https://" + gitHubEndpoint + credstest.GitHubPath
	secret := "ACTIONS_ID_TOKEN_REQUEST_TOKEN=" + gitHub.RequestToken
	job := newCIJob(t, address, secret)
	job.proves(t, host, kind, audience)

	job.example(t, "github.yml", host, func(d map[string]any) string { return at(d, "jobs", "publish", "steps", 2, "run").(string) })

	// The default audience is the artifact's URL, but the registry expects another audience.
	job.refused(t, host, "401", kind)
	job.refused(t, host, "a token of GitHub has one audience", kind, "--audiences=aud1,aud2")
	newCIJob(t).refused(t, host, "a pull request of a fork never has it", kind, audience)
	pullRequest, err := gitHub.Issuer.Mint(oidc.Claims{"sub": "repo:tenant-a/app:pull_request", "aud": host, "exp": time.Now().Add(time.Hour).Unix()})
	must(t, "mint the token of a pull request", err)
	job.refused(t, host, "401", "--token-file="+secretFile(t, "token", pullRequest))
	newCIJob(t, "ACTIONS_ID_TOKEN_REQUEST_URL=https://"+host+"/token?api-version=2.0", secret).refused(t, host, "the job's token does not go there", kind, audience)
	gitHub.Fail(503, 503, 503)
	job.refused(t, host, "HTTP status 503", kind, audience)

	t.Run("helper", func(t *testing.T) { toolsWithTheHelper(t, protected, address, secret) })
}

// jobsOfGitLab tests jobs of GitLab, which get their token in an environment variable.
func jobsOfGitLab(t *testing.T) {
	const host = "ci-gitlab.registry.example.com"
	gitLab, err := oidc.NewIssuer(gitLabIssuer, oidc.ES256)
	must(t, "make an issuer", err)
	must(t, "serve GitLab's keys", world.Cloud().HandleIssuer(gitLab))
	t.Cleanup(func() { _ = world.Cloud().Handle(gitLab.Host(), nil) })
	newFederatedRegistry(t, host).protect(t, gitLabIssuer, gitLabIssuer+"/keys", map[string]string{ownRepository: gitLabSubject, foreignRepository: "another"})
	mint := func(audience string, life time.Duration) string {
		token, err := gitLab.Mint(oidc.Claims{"sub": gitLabSubject, "aud": audience, "exp": time.Now().Add(life).Unix()})
		must(t, "mint a token", err)
		return token
	}
	const kind = "--creds=GitLabOIDCToken"
	job := newCIJob(t, "LANYARD_ID_TOKEN="+mint(host, time.Hour))
	job.proves(t, host, kind)
	job.example(t, "gitlab.yml", host, func(d map[string]any) string { return words(at(d, "publish", "script"), "\n") })
	newCIJob(t, "REGISTRY_TOKEN="+mint(host, time.Hour)).proves(t, host, kind, "--token-env=REGISTRY_TOKEN", "--audiences="+host)
	newCIJob(t).refused(t, host, "give the job an id_tokens entry", kind)
	newCIJob(t, "LANYARD_ID_TOKEN="+mint(host, -time.Minute)).refused(t, host, "expired at", kind)
	newCIJob(t, "LANYARD_ID_TOKEN="+mint(gitLabIssuer, time.Hour)).refused(t, host, "opens a cluster", kind)
	newCIJob(t, "LANYARD_ID_TOKEN="+mint("vault", time.Hour)).refused(t, host, "401", kind)
}

// jobsWithJWTSVIDs tests jobs with JWT-SVIDs of a SPIFFE agent, at a registry that trusts the
// agent's issuer.
func jobsWithJWTSVIDs(t *testing.T) {
	const host = "ci-spiffe.registry.example.com"
	agent := credstest.NewAgent(t, agentID, agentIssuer)
	must(t, "serve the keys", world.Cloud().HandleIssuer(agent.Issuer))
	t.Cleanup(func() { _ = world.Cloud().Handle(agent.Issuer.Host(), nil) })
	newFederatedRegistry(t, host).protect(t, agentIssuer, agentIssuer+"/keys", map[string]string{ownRepository: agentID, foreignRepository: agentID + "/other"})
	job := newCIJob(t, "SPIFFE_ENDPOINT_SOCKET="+agent.Address())
	job.proves(t, host, "--creds=SpiffeJWT", "--audiences=aud1,"+host)
	job.refused(t, host, "401", "--creds=SpiffeJWT", "--audiences=aud1,aud2")
	job.refused(t, host, "Google", "--creds=SpiffeJWT", "--audiences=//iam.googleapis.com/projects/1/locations/global/workloadIdentityPools/p/providers/q")
	newCIJob(t).refused(t, host, "SPIFFE_ENDPOINT_SOCKET is not set", "--creds=SpiffeJWT")
	agent.Deny()
	job.refused(t, host, "register the workload", "--creds=SpiffeJWT", "--audiences="+host)
}

// jobsWithCertificates tests jobs with X.509-SVIDs as TLS client certificates, at the registry CNCF
// Distribution. The agent replaces the SVID while a job uses it.
func jobsWithCertificates(t *testing.T) {
	agent := credstest.NewAgent(t, agentID, agentIssuer)
	company, address, dir := newAuthority(t), freeAddress(t), t.TempDir()
	certificate, key := company.issue(t)
	write := func(name string, content []byte) string {
		path := filepath.Join(dir, name)
		must(t, "write a file", os.WriteFile(path, content, 0o600))
		return path
	}
	config := &configuration.Configuration{Storage: configuration.Storage{
		"inmemory":    configuration.Parameters{},
		"maintenance": configuration.Parameters{"uploadpurging": map[any]any{"enabled": false}},
	}}
	config.HTTP.RelativeURLs, config.HTTP.Addr = true, address
	config.Log.AccessLog.Disabled, config.Log.Level = true, "error"
	config.HTTP.TLS.Certificate, config.HTTP.TLS.Key = write("tls.crt", certificate), write("tls.key", key)
	config.HTTP.TLS.ClientCAs = []string{write("clients.pem", pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: agent.Authority.Raw}))}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	mutual, err := distribution.NewRegistry(ctx, config)
	must(t, "make a registry", err)
	ended := make(chan error, 1)
	go func() { ended <- mutual.ListenAndServe() }()
	t.Cleanup(func() {
		_ = mutual.Shutdown(ctx)
		<-ended
		cancel()
	})

	job := newCIJob(t, "SPIFFE_ENDPOINT_SOCKET="+agent.Address())
	trust := "--ca-file=" + write("company.pem", company.pem)
	rotating := time.AfterFunc(0, func() {
		for range 200 {
			agent.Rotate()
			time.Sleep(5 * time.Millisecond)
		}
	})
	defer rotating.Stop()
	own := job.commands(t, "oci://"+address+"/"+ownRepository)
	for _, name := range []string{"1 push", "2 diff", "3 tag", "4 list", "5 pull"} {
		if out, said, err := job.run(t, binary("lanyard"), append(own[name], "--creds=SpiffeCertificate", trust)...); err != nil {
			t.Errorf("%s: %v: %s%s", name, err, out, said)
		}
		if _, said, err := job.run(t, binary("lanyard"), append(own[name], trust)...); err == nil {
			t.Errorf("%s works without a certificate: %s", name, said)
		}
	}
	// stranger is an agent with the same SPIFFE ID but another authority, so the registry must
	// refuse it.
	stranger := credstest.NewAgent(t, agentID, agentIssuer)
	newCIJob(t, "SPIFFE_ENDPOINT_SOCKET="+stranger.Address()).refused(t, address, "lanyard: ", "--creds=SpiffeCertificate", trust)
	job.refused(t, address, "--audiences does not go with --creds=SpiffeCertificate", "--creds=SpiffeCertificate", "--audiences=a", trust)
	agent.Deny()
	job.refused(t, address, "register the workload", "--creds=SpiffeCertificate", trust)
}

// jobsInClouds tests jobs with the identity that a cloud gives them, at the cloud's own registry.
func jobsInClouds(t *testing.T) {
	tn := newTenant(t, "ci-clouds")
	application, account := tn.atAzure(t), tn.atGoogle(t)
	tokenOf := func(audience string) string { return secretFile(t, "token", token(t, tn.namespace, puller, audience)) }
	_, _, google := atGoogle(googleAudience, account)(t, tokenOf(googlePool))
	for cloud, tt := range map[string]struct {
		env  []string
		own  string
		host string // host of another registry at the cloud
	}{
		"aws":   {[]string{"AWS_ACCESS_KEY_ID=" + publisherKey, "AWS_SECRET_ACCESS_KEY=" + publisherSecret}, tn.url, "000000000000.dkr.ecr.eu-west-1.amazonaws.com"},
		"azure": {[]string{"AZURE_CLIENT_ID=" + application, "AZURE_TENANT_ID=" + local.AzureTenant, "AZURE_FEDERATED_TOKEN_FILE=" + tokenOf(azureAudience)}, "oci://" + tn.azureRegistry() + ".azurecr.io/app", "other.azurecr.io"},
		"gcp":   {google, tn.googleURL(), googleRegion + "-docker.pkg.dev/other-project/other"},
	} {
		t.Run(cloud, func(t *testing.T) {
			job := newCIJob(t, tt.env...)
			own, none := job.commands(t, tt.own), newCIJob(t).commands(t, tt.own)
			for _, name := range []string{"1 push", "2 diff", "3 tag", "4 list", "5 pull"} {
				if out, said, err := job.run(t, binary("lanyard"), append(own[name], "--creds="+cloud)...); err != nil {
					t.Errorf("%s: %v: %s%s", name, err, out, said)
				}
				if _, said, err := newCIJob(t).run(t, binary("lanyard"), none[name]...); err == nil {
					t.Errorf("%s works without a credential: %s", name, said)
				}
			}
			for name, args := range job.commands(t, "oci://"+tt.host+"/app") {
				if _, said, err := job.run(t, binary("lanyard"), append(args, "--creds="+cloud)...); err == nil {
					t.Errorf("%s at another registry of the cloud: %s", name, said)
				}
			}
			host, _, _ := strings.Cut(strings.TrimPrefix(tt.own, "oci://"), "/")
			for _, elsewhere := range []string{"ci-clouds.registry.example.com", host + ".evil.example"} {
				job.refused(t, elsewhere, "this machine's identity does not go there", "--creds="+cloud)
			}
		})
	}
	reader := newCIJob(t, "AWS_ROLE_ARN="+tn.role, "AWS_WEB_IDENTITY_TOKEN_FILE="+tokenOf(stsAudience))
	if _, said, err := reader.run(t, binary("lanyard"), append(reader.commands(t, tn.url)["5 pull"], "--creds=aws")...); err != nil {
		t.Errorf("pull as a role: %v: %s", err, said)
	}
	if _, said, err := reader.run(t, binary("lanyard"), append(reader.commands(t, tn.url)["1 push"], "--creds=aws")...); err == nil {
		t.Errorf("push as a role that may read: %s", said)
	}
}

// toolsWithTheHelper runs skopeo, lanyard and Helm. Their Docker configuration names lanyard as the
// credential helper.
func toolsWithTheHelper(t *testing.T, protected *federatedRegistry, env ...string) {
	t.Helper()
	host := "basic." + protected.host
	openDoorForBasic(t, host, protected.host)
	programs, home := t.TempDir(), t.TempDir()
	lanyard, err := filepath.Abs(binary("lanyard"))
	must(t, "find lanyard", err)
	must(t, "link the helper", os.Symlink(lanyard, filepath.Join(programs, "docker-credential-lanyard")))
	write := func(path, content string) {
		must(t, "make a folder", os.MkdirAll(filepath.Dir(filepath.Join(home, path)), 0o700))
		must(t, "write a file", os.WriteFile(filepath.Join(home, path), []byte(content), 0o700))
	}
	write(".docker/config.json", `{"credHelpers": {"`+host+`": "lanyard", "evil.registry.example.com": "lanyard"}}`)
	write(".config/lanyard/credentials.yaml", "registries: {"+host+": {creds: GitHubOIDCToken, audiences: ["+protected.host+"]}}")
	job := newCIJob(t, append(env, "PATH="+programs+":"+os.Getenv("PATH"), "HOME="+home, "XDG_RUNTIME_DIR="+home)...)
	t.Run("skopeo", func(t *testing.T) { skopeoCopies(t, job, host) })
	// Like skopeo, lanyard reads the Docker configuration above. It finds its own name there, and
	// calls itself as the credential helper.
	own := job.commands(t, "oci://"+host+"/"+ownRepository)
	for _, name := range []string{"1 push", "2 diff", "3 tag", "4 list", "5 pull"} {
		if out, said, err := job.run(t, binary("lanyard"), own[name]...); err != nil || name == "4 list" && !strings.Contains(out, "copied") {
			t.Errorf("lanyard, %s: %v: %s%s", name, err, out, said)
		}
		if _, said, err := newCIJob(t).run(t, binary("lanyard"), own[name]...); err == nil {
			t.Errorf("lanyard, %s works without the configuration: %s", name, said)
		}
	}
	for name, args := range job.commands(t, "oci://"+host+"/"+foreignRepository) {
		if _, said, err := job.run(t, binary("lanyard"), args...); err == nil {
			t.Errorf("lanyard, %s of another repository: %s", name, said)
		}
	}
	t.Run("helm", func(t *testing.T) {
		// Helm's library runs in a separate process with the job's environment.
		job.env = append(job.env, programVar+"="+helmProgram)
		self, err := os.Executable()
		must(t, "find the test's binary", err)
		if out, said, err := job.run(t, self, filepath.Join(home, ".docker", "config.json"), host); err != nil {
			t.Errorf("helm: %v: %s%s", err, out, said)
		}
	})
}

// skopeoCopies makes skopeo inspect and copy a job's artifact.
func skopeoCopies(t *testing.T, job *ciJob, host string) {
	t.Helper()
	skopeo, err := exec.LookPath("skopeo")
	must(t, "find skopeo (apt-get install skopeo)", err)
	image := "docker://" + host + "/" + ownRepository + ":1.0.0"
	out, said, err := job.run(t, skopeo, "inspect", "--raw", image)
	var manifest struct{ Layers []struct{ MediaType string } }
	if err != nil || json.Unmarshal([]byte(out), &manifest) != nil || len(manifest.Layers) != 1 || !strings.Contains(manifest.Layers[0].MediaType, "flux") {
		t.Errorf("skopeo inspect: %v: %s%s", err, out, said)
	}
	if out, said, err := job.run(t, skopeo, "copy", "--insecure-policy", image, "docker://"+host+"/"+ownRepository+":copied"); err != nil {
		t.Errorf("skopeo copy: %v: %s%s", err, out, said)
	}
	if _, said, err := job.run(t, skopeo, "inspect", "--raw", "docker://"+host+"/"+foreignRepository+":1.0.0"); err == nil {
		t.Errorf("skopeo reads another repository: %s", said)
	}
}

// helmProgram is the value of [programVar] that makes the test binary run helmPushes.
const helmProgram = "helm"

// helmPushes makes Helm push a chart to the registry, list the chart's versions and pull it again.
// Helm reads its credentials from the given file, a Docker configuration.
func helmPushes(config, host string) error {
	dir, err := os.MkdirTemp("", "helm-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	folder, err := chartutil.Create("demo", dir)
	if err != nil {
		return fmt.Errorf("make a chart: %w", err)
	}
	made, err := loader.LoadDir(folder)
	if err != nil {
		return fmt.Errorf("read a chart: %w", err)
	}
	archive, err := chartutil.Save(made, dir)
	if err != nil {
		return fmt.Errorf("pack a chart: %w", err)
	}
	packed, err := os.ReadFile(archive)
	if err != nil {
		return err
	}
	helm, err := registry.NewClient(registry.ClientOptCredentialsFile(config))
	if err != nil {
		return fmt.Errorf("make Helm's client: %w", err)
	}
	reference := host + "/" + ownRepository + "/demo"
	pushed, err := helm.Push(packed, reference+":0.1.0")
	if err != nil {
		return fmt.Errorf("push: %w", err)
	}
	if tags, err := helm.Tags(reference); err != nil || !slices.Equal(tags, []string{"0.1.0"}) {
		return fmt.Errorf("the chart's versions are %q, %w", tags, err)
	}
	pulled, err := helm.Pull(reference + ":0.1.0")
	if err != nil {
		return fmt.Errorf("pull: %w", err)
	}
	if pulled.Manifest.Digest != pushed.Manifest.Digest || !bytes.Equal(pulled.Chart.Data, packed) {
		return errors.New("another chart is pulled than was pushed")
	}
	if _, err := helm.Push(packed, host+"/"+foreignRepository+"/demo:0.1.0"); err == nil {
		return errors.New("a chart is pushed to another repository")
	}
	return nil
}

// openDoorForBasic serves a second host of a registry, for clients that use Basic authentication.
// The second host forwards a client's password to the registry, as a bearer token. The registry
// accepts or refuses the token.
func openDoorForBasic(t *testing.T, host, upstream string) {
	t.Helper()
	door := &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(&url.URL{Scheme: "https", Host: upstream})
			_, password, _ := r.In.BasicAuth()
			r.Out.Header.Set("Authorization", "Bearer "+password)
		},
		Transport: world.Cloud().Transport(),
	}
	must(t, "open a door", world.Cloud().Handle(host, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, _, ok := r.BasicAuth(); !ok {
			w.Header().Set("WWW-Authenticate", `Basic realm="registry"`)
			http.Error(w, "who are you?", http.StatusUnauthorized)
			return
		}
		door.ServeHTTP(w, r)
	})))
	t.Cleanup(func() { _ = world.Cloud().Handle(host, nil) })
}
