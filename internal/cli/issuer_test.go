package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/lanyard-dev/lanyard/internal/cli/frame"
	"github.com/lanyard-dev/lanyard/internal/golden"
	"github.com/lanyard-dev/lanyard/internal/must"
)

const (
	identities = "/apis/identity.lanyard.dev/v1alpha1"
	ringPath   = identities + "/namespaces/lanyard-system/keyrings/issuer"
)

// fakeIssuer is an API server and a token server. It has the WorkloadIdentity app of namespace
// tenant-a, and the KeyRing of testdata.
type fakeIssuer struct {
	// refuse is called for each request for a token. It returns the answer to the request. If
	// refuse is nil or returns status 0, the answer is a token.
	refuse func() (int, any)
	// opens is true if the API server accepts the tokens as credentials of a caller.
	opens bool
	// life is how long a token lives.
	life time.Duration
	// ready is the identity's condition Ready.
	ready object
	// server is a function that changes the KeyRing as the token server does after the command's
	// update. It is called for each read of the KeyRing after the update. The first of these reads
	// has number 1.
	server func(ring object, read int)
	// interrupt is called when the ring is updated, before the answer. It may be nil.
	interrupt func()
	// conflicts is the number of updates of the ring that are refused because of a conflict.
	conflicts int

	mu       sync.Mutex
	requests []object // bodies of the requests for tokens
	ring     object
	read     int // number of reads of the ring since the update; -1 before the update
}

func newFakeIssuer(t *testing.T) (*fakeIssuer, string) {
	t.Helper()
	f := &fakeIssuer{life: time.Hour, read: -1, ready: condition("Ready", "True", "Succeeded", "tokens can be requested")}
	data, err := os.ReadFile(filepath.Join("testdata", "keyring.yaml"))
	must.Succeed(t, err)
	must.Succeed(t, yaml.Unmarshal(data, &f.ring))
	server := httptest.NewServer(f)
	t.Cleanup(server.Close)
	return f, kubeconfigOf(t, server.URL)
}

func kubeconfigOf(t *testing.T, url string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "kubeconfig")
	config := fmt.Sprintf(`{"apiVersion": "v1", "kind": "Config", "current-context": "c",
		"clusters": [{"name": "c", "cluster": {"server": %q}}], "users": [{"name": "c", "user": {}}],
		"contexts": [{"name": "c", "context": {"cluster": "c", "user": "c", "namespace": "tenant-a"}}]}`, url)
	must.Succeed(t, os.WriteFile(path, []byte(config), 0o600))
	return path
}

func (f *fakeIssuer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	defer f.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	status, answer := f.answer(r)
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(answer)
}

func (f *fakeIssuer) answer(r *http.Request) (int, any) {
	version := object{"groupVersion": "identity.lanyard.dev/v1alpha1", "version": "v1alpha1"}
	toolkit := object{"groupVersion": "toolkit.lanyard.dev/v1alpha1", "version": "v1alpha1"}
	app := object{
		"apiVersion": "identity.lanyard.dev/v1alpha1", "kind": "WorkloadIdentity",
		"metadata": object{"name": "app", "namespace": "tenant-a"},
		"spec":     object{"audiences": []string{"sts.amazonaws.com", "vault"}, "targetSystem": object{"type": "aws"}},
		"status":   object{"conditions": []any{f.ready}},
	}
	own := object{
		"apiVersion": "identity.lanyard.dev/v1alpha1", "kind": "WorkloadIdentity",
		"metadata": object{"name": "own", "namespace": "tenant-a"},
		"spec":     object{"audiences": []string{"registry.example.com"}, "targetSystem": object{"type": "registry"}},
	}
	switch path := r.URL.Path; {
	case path == "/api":
		return http.StatusOK, object{"kind": "APIVersions", "versions": []string{"v1"}}
	case path == "/apis":
		return http.StatusOK, object{"kind": "APIGroupList", "groups": []any{
			object{"name": "identity.lanyard.dev", "versions": []any{version}, "preferredVersion": version},
			object{"name": "toolkit.lanyard.dev", "versions": []any{toolkit}, "preferredVersion": toolkit},
		}}
	case path == "/api/v1":
		return http.StatusOK, object{"kind": "APIResourceList", "groupVersion": "v1", "resources": []any{
			object{"name": "serviceaccounts", "singularName": "serviceaccount", "namespaced": true, "kind": "ServiceAccount", "verbs": []string{"get"}},
		}}
	case path == "/apis/toolkit.lanyard.dev/v1alpha1":
		return http.StatusOK, object{"kind": "APIResourceList", "groupVersion": "toolkit.lanyard.dev/v1alpha1", "resources": []any{
			object{"name": "ocirepositories", "singularName": "ocirepository", "namespaced": true, "kind": "OCIRepository", "verbs": []string{"get"}},
			object{"name": "imagerepositories", "singularName": "imagerepository", "namespaced": true, "kind": "ImageRepository", "verbs": []string{"get"}},
		}}
	case path == "/api/v1/namespaces/tenant-a/serviceaccounts/puller":
		return http.StatusOK, object{"kind": "ServiceAccount", "apiVersion": "v1", "metadata": object{
			"name": "puller", "namespace": "tenant-a", "annotations": object{"lanyard.dev/registry-username": "robot"},
		}}
	case path == "/api/v1/namespaces/tenant-a/serviceaccounts/malformed":
		return http.StatusOK, object{"kind": "ServiceAccount", "apiVersion": "v1", "metadata": object{
			"name": "malformed", "namespace": "tenant-a", "annotations": object{"lanyard.dev/registry-username": "a:b"},
		}}
	case strings.HasSuffix(path, "/token") || strings.HasSuffix(path, "/svid"):
		return f.mint(r)
	case strings.HasSuffix(path, "/selfsubjectreviews") && !f.opens:
		return failure(http.StatusUnauthorized, "Unauthorized")
	case strings.HasSuffix(path, "/selfsubjectreviews"):
		return http.StatusCreated, object{"kind": "SelfSubjectReview", "apiVersion": "authentication.k8s.io/v1"}
	case strings.HasPrefix(path, "/apis/toolkit.lanyard.dev/v1alpha1/namespaces/tenant-a/"):
		return f.shows(filepath.Base(path))
	case path == identities:
		return http.StatusOK, object{"kind": "APIResourceList", "groupVersion": "identity.lanyard.dev/v1alpha1", "resources": []any{
			object{"name": "workloadidentities", "singularName": "workloadidentity", "namespaced": true, "kind": "WorkloadIdentity", "verbs": []string{"list"}},
			object{"name": "keyrings", "singularName": "keyring", "namespaced": true, "kind": "KeyRing", "verbs": []string{"list"}},
		}}
	case path == identities+"/namespaces/tenant-a/workloadidentities":
		return http.StatusOK, object{"kind": "WorkloadIdentityList", "apiVersion": "identity.lanyard.dev/v1alpha1", "items": []any{app}}
	case path == identities+"/namespaces/tenant-a/workloadidentities/app":
		return http.StatusOK, app
	case path == identities+"/namespaces/tenant-a/workloadidentities/own":
		return http.StatusOK, own
	case path == identities+"/namespaces/lanyard-system/keyrings":
		return http.StatusOK, object{"kind": "KeyRingList", "apiVersion": "identity.lanyard.dev/v1alpha1", "items": []any{f.ring}}
	case path == ringPath:
		return f.answerRing(r)
	}
	return failure(http.StatusNotFound, "NotFound")
}

// shows returns the API server's answer to a GET of an OCIRepository. The object's name selects its
// credential and other fields.
func (f *fakeIssuer) shows(name string) (int, any) {
	types := map[string]string{
		"user": "ServiceAccountToken", "cloud": "ServiceAccountToken", "cloud-identity": "WorkloadIdentityToken", "cloud-target": "WorkloadIdentityToken",
		"two-subjects": "WorkloadIdentityToken", "lends": "SpiffeJWT", "plain": "SpiffeJWT", "unknown": "ClientCertificate", "authorities": "SpiffeJWT", "proxy": "SpiffeJWT", "nobody": "ServiceAccountToken",
		"account": "ServiceAccountToken", "identity": "WorkloadIdentityToken", "jwt": "SpiffeJWT", "certificate": "SpiffeCertificate",
	}
	spec := object{"url": "oci://registry.example.com/app", "image": "registry.example.com/app", "interval": "5m"}
	audience := "registry.example.com"
	switch name {
	case "account":
		spec["serviceAccountName"] = "puller"
	case "identity":
		spec["workloadIdentityName"] = "own"
	case "user":
		spec["serviceAccountName"] = "malformed"
	case "cloud":
		spec["serviceAccountName"], audience = "puller", "sts.amazonaws.com"
	case "cloud-identity":
		spec["workloadIdentityName"], audience = "own", "sts.amazonaws.com"
	case "cloud-target":
		spec["workloadIdentityName"] = "app"
	case "two-subjects":
		spec["workloadIdentityName"], spec["serviceAccountName"] = "own", "puller"
	case "lends":
		spec["provider"] = "aws"
	case "plain":
		spec["insecure"] = true
	case "authorities":
		spec["certSecretRef"] = object{"name": "../other"}
	case "proxy":
		spec["proxySecretRef"] = object{"name": ""}
	case "missing":
		return failure(http.StatusNotFound, "NotFound")
	}
	if types[name] != "" {
		credential := object{"type": types[name]}
		if name != "certificate" {
			credential["audiences"] = []string{audience}
		}
		spec["credential"] = credential
	}
	return http.StatusOK, object{
		"apiVersion": "toolkit.lanyard.dev/v1alpha1", "kind": "OCIRepository", "metadata": object{"name": name, "namespace": "tenant-a", "uid": "11aa"}, "spec": spec,
	}
}

func (f *fakeIssuer) answerRing(r *http.Request) (int, any) {
	if r.Method != http.MethodPut {
		if f.read >= 0 {
			f.read++
			if f.server != nil {
				f.server(f.ring, f.read)
			}
		}
		return http.StatusOK, f.ring
	}
	if f.interrupt != nil {
		_, _ = io.Copy(io.Discard, r.Body) // else net/http does not notice that the client is gone
		f.interrupt()
		<-r.Context().Done() // no answer
	}
	if f.conflicts > 0 {
		f.conflicts--
		return failure(http.StatusConflict, "Conflict")
	}
	var update object
	if err := json.NewDecoder(r.Body).Decode(&update); err != nil {
		return failure(http.StatusBadRequest, "BadRequest")
	}
	f.ring["spec"] = update["spec"]
	f.ring["metadata"].(object)["generation"] = 4
	f.read = 0
	return http.StatusOK, f.ring
}

// mint answers a request for a token. The token's text has the number of the request.
func (f *fakeIssuer) mint(r *http.Request) (int, any) {
	var request object
	if err := json.NewDecoder(r.Body).Decode(&request); err != nil {
		return failure(http.StatusBadRequest, "BadRequest")
	}
	f.requests = append(f.requests, request)
	if f.refuse != nil {
		if status, answer := f.refuse(); status != 0 {
			return status, answer
		}
	}
	expires := time.Date(2099, 1, 2, 3, 4, 5, 0, time.UTC)
	if f.life != time.Hour {
		expires = time.Now().Add(f.life)
	}
	status := object{"token": "token-" + strconv.Itoa(len(f.requests)), "expirationTimestamp": expires.Format(time.RFC3339)}
	if spec, _ := request["spec"].(object); spec["publicKey"] != nil {
		delete(status, "token")
		status["certificateChain"] = "-----BEGIN CERTIFICATE-----\nMA==\n-----END CERTIFICATE-----\n"
	}
	request["status"] = status
	request["metadata"] = object{"name": "app", "namespace": "tenant-a"}
	return http.StatusCreated, request
}

// keyNumber returns the kid of the ring's key with the index i.
func (f *fakeIssuer) keyNumber(i int) string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return ringKey(f.ring, i)["kid"].(string)
}

func ringKey(ring object, i int) object {
	return ring["status"].(object)["keys"].([]any)[i].(object)
}

// observe records in the ring's status that the token server has seen the spec.
func observe(ring object) {
	ring["status"].(object)["observedGeneration"] = ring["metadata"].(object)["generation"]
}

// problem returns a function that answers with an API server's error and its details.
func problem(status int, reason, message string, details object) func() (int, any) {
	return func() (int, any) {
		return status, object{"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": reason, "message": message, "code": status, "details": details}
	}
}

// TestToken checks the output of the command token, and its errors if there is no token.
func TestToken(t *testing.T) {
	details := object{"group": "identity.lanyard.dev", "kind": "workloadidentities", "name": "app"}
	notPublished := condition("Ready", "False", "IssuerNotPublished", "no service can read https://issuer.example.com yet")
	for name, tt := range map[string]struct {
		args   string
		env    string
		refuse func() (int, any)
		ready  object
		status int
	}{
		"raw":             {args: "token workloadidentity/app"},
		"not-published":   {args: "token workloadidentity/app", ready: notPublished},
		"json":            {args: "token lwi/app --audience vault --duration 30m --format=json"},
		"exec":            {args: "token workloadidentities.identity.lanyard.dev/app --format=exec-credential"},
		"exec-v1beta1":    {args: "token workloadidentity/app --format=exec-credential", env: `{"apiVersion": "client.authentication.k8s.io/v1beta1"}`},
		"exec-unknown":    {args: "token workloadidentity/app --format=exec-credential", env: `{"apiVersion": "client.authentication.k8s.io/v9"}`, status: frame.Failed},
		"env":             {args: "token workloadidentity/app --format=env"},
		"docker":          {args: "token serviceaccount/puller --audience registry.example.com --format=docker --registry registry.example.com"},
		"docker-nowhere":  {args: "token workloadidentity/app --format=docker", status: frame.Failed},
		"account":         {args: "token serviceaccount/puller --audience vault"},
		"account-open":    {args: "token sa/puller", status: frame.Failed},
		"object":          {args: "token ocirepository/account --format=docker"},
		"object-identity": {args: "token ocirepository/identity"},
		"object-jwt":      {args: "token ocirepositories.toolkit.lanyard.dev/jwt --format=env"},
		"object-audience": {args: "token ocirepository/jwt --audience x", status: frame.Failed},
		"object-nobody":   {args: "token ocirepository/nobody", status: frame.Failed},
		"object-none":     {args: "token ocirepository/none", status: frame.Failed},
		"object-missing":  {args: "token ocirepository/missing", status: frame.Failed},
		"object-docker":   {args: "token ocirepository/certificate --format=docker", status: frame.Failed},
		"no-spiffe":       {args: "token ocirepository/jwt", refuse: func() (int, any) { return http.StatusNotFound, "404 page not found" }, status: frame.Failed},
		"no-right":        {args: "token ocirepository/jwt", refuse: problem(http.StatusForbidden, "Forbidden", "user dev cannot create ocirepositories/svid", nil), status: frame.Failed},
		"no-server":       {args: "token workloadidentity/app", refuse: func() (int, any) { return http.StatusNotFound, "404 page not found" }, status: frame.Failed},
		"missing":         {args: "token workloadidentity/app", refuse: problem(http.StatusNotFound, "NotFound", "not found", details), status: frame.Failed},
		"forbidden":       {args: "token workloadidentity/app", refuse: problem(http.StatusForbidden, "Forbidden", "user dev cannot create workloadidentities/token", details), status: frame.Failed},
		"audience":        {args: "token workloadidentity/app --audience x", refuse: problem(http.StatusUnprocessableEntity, "Invalid", "spec.audiences[0]: not one of the identity's", object{"causes": []any{object{"field": "spec.audiences[0]", "message": "no"}}}), status: frame.Failed},
		"unavailable":     {args: "token workloadidentity/app", refuse: problem(http.StatusServiceUnavailable, "ServiceUnavailable", "the token server cannot make tokens now", nil), status: frame.Failed},
		"unavailable-why": {args: "token workloadidentity/app", ready: notPublished, refuse: problem(http.StatusServiceUnavailable, "ServiceUnavailable", "the token server cannot make tokens now", nil), status: frame.Failed},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f, kubeconfig := newFakeIssuer(t)
			f.refuse = tt.refuse
			if tt.ready != nil {
				f.ready = tt.ready
			}
			c := command{env: map[string]string{"KUBECONFIG": kubeconfig, "KUBERNETES_EXEC_INFO": tt.env}}
			if status := c.run(t.Context(), strings.Fields(tt.args)...); status != tt.status {
				t.Errorf("status %d", status)
			}
			said := strings.ReplaceAll(c.err.String(), hostOf(t, kubeconfig), "http://cluster")
			golden.Compare(t, "testdata/token-"+name+".golden", fmt.Appendf(nil, "$ lanyard %s\n%s%s", tt.args, said, c.out.String()))
		})
	}
}

// TestTokenOfAHostileObject asserts that the command prints no token that the object's registry
// could use elsewhere. The author of the object chooses the registry and the audiences.
func TestTokenOfAHostileObject(t *testing.T) {
	for name, want := range map[string]string{
		"cloud": "AWS STS", "cloud-identity": "AWS STS", "account": "opens the cluster", "cloud-target": "spec.targetSystem.type",
		"two-subjects": "exclude", "lends": "provider", "plain": "insecure", "unknown": "spec.credential.type", "user": "not a user name",
		"authorities": "spec.certSecretRef.name", "proxy": "spec.proxySecretRef.name",
	} {
		f, kubeconfig := newFakeIssuer(t)
		f.opens = true
		c := command{env: map[string]string{"KUBECONFIG": kubeconfig}}
		status := c.run(t.Context(), "token", "ocirepository/"+name, "--format=docker")
		if status != frame.Failed || !strings.Contains(c.err.String(), want) || strings.Contains(c.err.String()+c.out.String(), "token-1") || c.out.Len() > 0 {
			t.Errorf("%s: status %d: %s%s", name, status, c.out.String(), c.err.String())
		}
	}
}

// TestTokenRequest checks what the command asks of the token server and of the cluster.
func TestTokenRequest(t *testing.T) {
	f, kubeconfig := newFakeIssuer(t)
	c := command{env: map[string]string{"KUBECONFIG": kubeconfig}}
	c.run(t.Context(), "token", "workloadidentity/app")
	c.run(t.Context(), "token", "workloadidentity/app", "--audience=vault", "--audience=x", "--duration=30m")
	c.run(t.Context(), "token", "sa/puller", "--audience=vault", "--duration=30m")
	for _, object := range []string{"account", "identity", "jwt", "certificate"} {
		c.run(t.Context(), "token", "ocirepository/"+object)
	}
	if spec, _ := f.requests[len(f.requests)-1]["spec"].(object); spec != nil {
		spec["publicKey"] = len(spec["publicKey"].(string)) // only the length: the key is new each time
	}
	var got []string
	for _, request := range f.requests {
		data, err := json.Marshal(request["spec"])
		must.Succeed(t, err)
		got = append(got, string(data))
	}
	if want := []string{
		`{}`, `{"audiences":["vault","x"],"expirationSeconds":1800}`, `{"audiences":["vault"],"boundObjectRef":null,"expirationSeconds":1800}`,
		`{"audiences":["registry.example.com"],"boundObjectRef":null,"expirationSeconds":3600}`,
		`{"audiences":["registry.example.com"],"contextObject":{"apiVersion":"toolkit.lanyard.dev/v1alpha1","kind":"OCIRepository","name":"identity","namespace":"tenant-a","uid":"11aa"},"expirationSeconds":3600}`,
		`{"type":"SpiffeJWT","uid":"11aa"}`, `{"publicKey":124,"type":"SpiffeCertificate","uid":"11aa"}`,
	}; !slices.Equal(got, want) {
		t.Errorf("asks for %q, want %q: %s", got, want, c.err.String())
	}
}

// TestTokenCertificate checks that the output for an X.509-SVID also has the private key, in each
// format that is allowed for a certificate.
func TestTokenCertificate(t *testing.T) {
	_, kubeconfig := newFakeIssuer(t)
	for _, format := range []string{"raw", "json", "exec-credential"} {
		c := command{env: map[string]string{"KUBECONFIG": kubeconfig}}
		status := c.run(t.Context(), "token", "ocirepository/certificate", "--format="+format)
		if out := c.out.String(); status != 0 || !strings.Contains(out, "BEGIN CERTIFICATE") || !strings.Contains(out, "BEGIN PRIVATE KEY") {
			t.Errorf("%s: status %d, %s%s", format, status, c.err.String(), out)
		}
	}
}

// TestTokenFile checks a token's file. The file must have nothing but the token, and only the
// file's owner may read it. This must also hold if the file replaces one that all users could read.
func TestTokenFile(t *testing.T) {
	_, kubeconfig := newFakeIssuer(t)
	path := filepath.Join(t.TempDir(), "token")
	must.Succeed(t, os.WriteFile(path, []byte("a longer text of somebody else"), 0o644))
	c := command{env: map[string]string{"KUBECONFIG": kubeconfig}}
	if status := c.run(t.Context(), "token", "workloadidentity/app", "-o", path); status != 0 || c.out.Len() > 0 {
		t.Fatalf("status %d, prints %q: %s", status, c.out.String(), c.err.String())
	}
	data, err := os.ReadFile(path)
	info, statErr := os.Stat(path)
	if err != nil || statErr != nil || string(data) != "token-1" || info.Mode() != 0o600 {
		t.Errorf("the file has %q and the mode %v: %v", data, info.Mode(), err)
	}
	if want := "workloadidentity/app: the token in " + path + " expires at 2099-01-02T03:04:05Z\n"; c.err.String() != want {
		t.Errorf("says %q", c.err.String())
	}
	if status := c.run(t.Context(), "token", "workloadidentity/app", "-o", filepath.Join(path, "x")); status != frame.Failed {
		t.Errorf("status %d for a file in a file", status)
	}
	if left, err := filepath.Glob(filepath.Join(filepath.Dir(path), ".*")); len(left) > 0 || err != nil {
		t.Errorf("leaves %q: %v", left, err)
	}
}

// TestTokenRefresh checks that the file gets a new token at half of the token's life. While no new
// token is issued, the file keeps the old token. Ctrl-C ends the command with status 0.
func TestTokenRefresh(t *testing.T) {
	f, kubeconfig := newFakeIssuer(t)
	f.life = 2 * time.Second
	ctx, stop := context.WithTimeout(t.Context(), time.Minute)
	defer stop()
	path := filepath.Join(t.TempDir(), "token")
	f.refuse = func() (int, any) {
		if len(f.requests) < 3 {
			return 0, nil
		}
		return failure(http.StatusServiceUnavailable, "ServiceUnavailable")
	}
	c := command{env: map[string]string{"KUBECONFIG": kubeconfig}}
	c.afterMessage = func() {
		if strings.Contains(c.err.String(), "it is ServiceUnavailable") {
			stop()
		}
	}
	if status := c.run(ctx, "token", "workloadidentity/app", "-o", path, "--refresh"); status != 0 {
		t.Errorf("status %d: %s", status, c.err.String())
	}
	if data, err := os.ReadFile(path); err != nil || string(data) != "token-2" {
		t.Errorf("the file has %q: %v", data, err)
	}
	if !strings.Contains(c.err.String(), "it is ServiceUnavailable") {
		t.Errorf("says %q", c.err.String())
	}
}

// TestKeys checks the output and the exit status of the commands about keys.
func TestKeys(t *testing.T) {
	retires := func(ring object, read int) {
		switch read {
		case 1: // the token server has not seen the update
		case 2:
			observe(ring)
		default:
			ringKey(ring, 2)["state"] = "Retiring"
			ringKey(ring, 3)["state"] = "Active"
			ringKey(ring, 3)["rotation"] = ring["spec"].(object)["rotate"]
		}
	}
	publishes := func(ring object, read int) {
		if read > 1 {
			observe(ring)
			ringKey(ring, 4)["state"] = "Published"
		}
	}
	revokes := func(ring object, read int) {
		if read > 1 {
			observe(ring)
			ringKey(ring, 2)["state"] = "Revoked"
			ringKey(ring, 3)["state"] = "Active"
		}
	}
	waits := func(ring object, _ int) { observe(ring) }
	f, _ := newFakeIssuer(t)
	retiring, active, published, pending := f.keyNumber(0), f.keyNumber(2), f.keyNumber(3), f.keyNumber(4)
	now := regexp.MustCompile(`until \S+ at the latest`)
	for name, tt := range map[string]struct {
		args      string
		server    func(object, int)
		conflicts int
		status    int
	}{
		"list":             {args: "keys list"},
		"list-json":        {args: "keys list -o json"},
		"list-yaml":        {args: "keys list -o yaml"},
		"list-missing":     {args: "keys list --ring spiffe", status: frame.Failed},
		"rotate":           {args: "keys rotate", server: retires},
		"rotate-conflict":  {args: "keys rotate", server: retires, conflicts: 2},
		"rotate-no-wait":   {args: "keys rotate --timeout 0"},
		"rotate-not-seen":  {args: "keys rotate --timeout 100ms", status: frame.Failed},
		"rotate-timeout":   {args: "keys rotate --timeout 100ms", server: waits, status: frame.Failed},
		"confirm":          {args: "keys confirm " + pending + " --skip-delay", server: publishes},
		"confirm-active":   {args: "keys confirm " + active, status: frame.Failed},
		"confirm-dash":     {args: "keys confirm " + published + " --timeout 0"}, // the kid begins with a dash
		"confirm-unknown":  {args: "keys confirm nosuch", status: frame.Failed},
		"revoke-asks":      {args: "keys revoke " + active, status: frame.Failed},
		"revoke":           {args: "keys revoke " + active + " --yes", server: revokes},
		"revoke-retiring":  {args: "keys revoke " + retiring, status: frame.Failed},
		"revoke-unknown":   {args: "keys revoke nosuch --yes", status: frame.Failed},
		"other-namespaces": {args: "keys list -n tenant-a", status: frame.Failed},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f, kubeconfig := newFakeIssuer(t)
			f.server, f.conflicts = tt.server, tt.conflicts
			c := command{env: map[string]string{"KUBECONFIG": kubeconfig}}
			if status := c.run(t.Context(), strings.Fields(tt.args)...); status != tt.status {
				t.Errorf("status %d", status)
			}
			said := strings.ReplaceAll(c.err.String(), hostOf(t, kubeconfig), "http://cluster")
			printed := now.ReplaceAllString(c.out.String(), "until <time> at the latest")
			golden.Compare(t, "testdata/keys-"+name+".golden", fmt.Appendf(nil, "$ lanyard %s\n%s%s", tt.args, said, printed))
		})
	}
}

// TestKeysAskNothing checks that a revocation without --yes changes nothing.
func TestKeysAskNothing(t *testing.T) {
	f, kubeconfig := newFakeIssuer(t)
	c := command{env: map[string]string{"KUBECONFIG": kubeconfig}}
	c.run(t.Context(), "keys", "revoke", f.keyNumber(2))
	if f.read != -1 {
		t.Error("the ring was updated")
	}
}

// TestKeysInterrupted checks that a revocation fails if its update of the ring is interrupted.
func TestKeysInterrupted(t *testing.T) {
	f, kubeconfig := newFakeIssuer(t)
	ctx, interrupt := context.WithCancel(t.Context())
	f.interrupt = interrupt
	c := command{env: map[string]string{"KUBECONFIG": kubeconfig}}
	if status := c.run(ctx, "keys", "revoke", f.keyNumber(2), "--yes", "--timeout", "0"); status == 0 {
		t.Errorf("says %q", c.err.String()+c.out.String())
	}
}

// TestDiscoveryExport checks the documents that discovery export writes into a folder. If there are
// no keys to publish, it must write no folder.
func TestDiscoveryExport(t *testing.T) {
	f, kubeconfig := newFakeIssuer(t)
	dir := t.TempDir()
	c := command{env: map[string]string{"KUBECONFIG": kubeconfig}}
	if status := c.run(t.Context(), "discovery", "export", dir); status != 0 {
		t.Fatalf("status %d: %s", status, c.err.String())
	}
	said := strings.ReplaceAll(c.err.String()+c.out.String(), dir, "DIR")
	for _, name := range []string{"jwks", ".well-known/openid-configuration"} {
		data, err := os.ReadFile(filepath.Join(dir, filepath.FromSlash(name)))
		must.Succeed(t, err)
		said += fmt.Sprintf("$ cat %s\n%s\n", name, data)
	}
	golden.Compare(t, "testdata/discovery-export.golden", []byte("$ lanyard discovery export DIR\n"+said))

	f.ring["status"].(object)["keys"] = []any{}
	none := filepath.Join(t.TempDir(), "none")
	if status := c.run(t.Context(), "discovery", "export", none); status != frame.Failed || !strings.Contains(c.err.String(), "lanyard keys list") {
		t.Errorf("status %d: %s", status, c.err.String())
	}
	if _, err := os.Stat(none); err == nil {
		t.Error("writes a folder without documents")
	}
}

// TestTenant compares the printed permissions of a tenant's namespace with a golden file.
func TestTenant(t *testing.T) {
	var all bytes.Buffer
	for _, args := range [][]string{
		{"tenant-d"},
		{"{{request.object.metadata.name}}"},
		{"tenant-d", "--fullname", "l2", "--release-namespace", "platform", "--service-account", "fetcher"},
		{"tenant-d", "--identity-controller"},
		{"tenant-d", "--fullname", "l2", "--identity-controller", "--identity-service-account", "lender"},
	} {
		var c command
		if status := c.run(t.Context(), append([]string{"tenant"}, args...)...); status != 0 || c.err.Len() > 0 {
			t.Fatalf("status %d: %s", status, c.err.String())
		}
		fmt.Fprintf(&all, "$ lanyard tenant %s\n%s", strings.Join(args, " "), c.out.String())
	}
	golden.Compare(t, "testdata/tenant.golden", all.Bytes())
}

// TestIssuerCompletion checks the words that the shell offers for identities and keys.
func TestIssuerCompletion(t *testing.T) {
	_, kubeconfig := newFakeIssuer(t)
	var all bytes.Buffer
	for _, words := range [][]string{
		{"token", ""},
		{"token", "workloadidentity/app", ""},
		{"token", "workloadidentity/app", "--audience", "v"},
		{"token", "--audiences", ""},
		{"token", "--format", ""},
		{"keys", "confirm", ""},
		{"keys", "revoke", ""},
		{"keys", "list", "--ring", ""},
		{"tenant", ""},
	} {
		c := command{env: map[string]string{"KUBECONFIG": kubeconfig}}
		if status := c.run(t.Context(), append([]string{"__complete"}, words...)...); status != 0 {
			t.Errorf("%q: status %d: %s", words, status, c.err.String())
		}
		fmt.Fprintf(&all, "$ lanyard %s<TAB>\n%s", strings.Join(words, " "), c.out.String())
	}
	golden.Compare(t, "testdata/completion-issuer.golden", all.Bytes())
}

// TestHubGrant compares the objects and the advice of hub grant with a golden file.
func TestHubGrant(t *testing.T) {
	var all bytes.Buffer
	for _, args := range [][]string{
		{"eu-1", "-n", "eu-1-team-a", "-n", "eu-1-team-b"},
		{"eu-1", "--namespace", "shared", "--identity", "backup", "--identity", "dns", "--release-namespace", "platform", "--spoke-namespace", "spokes"},
		{"eu-1", "-n", "eu-1-team-a", "--user", "spoke:eu-1"},
	} {
		var c command
		if status := c.run(t.Context(), append([]string{"hub", "grant"}, args...)...); status != 0 {
			t.Fatalf("%q: %s", args, c.err.String())
		}
		fmt.Fprintf(&all, "$ lanyard hub grant %s\n%s%s", strings.Join(args, " "), c.out.String(), c.err.String())
	}
	golden.Compare(t, "testdata/hub-grant.golden", all.Bytes())
}
