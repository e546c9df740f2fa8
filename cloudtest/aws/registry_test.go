package aws_test

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ecrpublic"
	"github.com/google/go-cmp/cmp"

	"github.com/lanyard-dev/lanyard/cloudtest"
	"github.com/lanyard-dev/lanyard/cloudtest/aws"
	"github.com/lanyard-dev/lanyard/cloudtest/internal/must"
	"github.com/lanyard-dev/lanyard/cloudtest/internal/rig"
	"github.com/lanyard-dev/lanyard/cloudtest/journal"
	"github.com/lanyard-dev/lanyard/cloudtest/service"
)

// answer is a registry's answer.
type answer struct {
	status int
	header http.Header
	body   string
}

// message returns the code and message of the answer's OCI error. If the body does not have exactly
// one OCI error, message returns the body.
func (a answer) message() string {
	var e struct {
		Errors []struct{ Code, Message string }
	}
	if json.Unmarshal([]byte(a.body), &e) != nil || len(e.Errors) != 1 {
		return strings.TrimSpace(a.body)
	}
	return e.Errors[0].Code + ": " + e.Errors[0].Message
}

func (w *world) request(t *testing.T, client *http.Client, method, target, authorization, body string) answer {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, target, strings.NewReader(body))
	must.Succeed(t, err)
	if authorization != "" {
		req.Header.Set("Authorization", authorization)
	}
	res, err := client.Do(req)
	must.Succeed(t, err)
	defer func() { _ = res.Body.Close() }()
	content, err := io.ReadAll(res.Body)
	must.Succeed(t, err)
	return answer{res.StatusCode, res.Header, string(content)}
}

func (w *world) login(t *testing.T, creds awssdk.CredentialsProvider) string {
	t.Helper()
	transport := w.Transport()
	defer transport.CloseIdleConnections()
	out, err := ecrClient(transport, creds).GetAuthorizationToken(t.Context(), nil)
	must.Succeed(t, err)
	return "Basic " + *out.AuthorizationData[0].AuthorizationToken
}

// push pushes a manifest whose content names the repository.
func (w *world) push(t *testing.T, client *http.Client, host, repository string) {
	t.Helper()
	a := w.request(t, client, http.MethodPut, "https://"+host+"/v2/"+repository+"/manifests/1.0.0", w.login(t, pusher()), "manifest of "+repository)
	if a.status != http.StatusCreated {
		t.Fatalf("push: HTTP %d %s", a.status, a.body)
	}
}

func TestRegistry(t *testing.T) {
	w := newWorld(t)
	client := w.Client()
	w.push(t, client, registryHost, "tenant-a/app")
	w.push(t, client, registryHost, "tenant-b/app")
	a := w.login(t, w.assume(t, roleA, subjectA))
	base := "https://" + registryHost + "/v2/"
	const me = "User: arn:aws:sts::123456789123:assumed-role/tenant-a-ecr/test is not authorized to perform: "
	blob := "sha256:" + strings.Repeat("0", 64)
	tests := []struct {
		name, method, url, authorization string
		status                           int
		message                          string
	}{
		{"ping", "GET", base, a, 200, "{}"},
		{"ping without credentials", "GET", base, "", 401, "Not Authorized"},
		{"without credentials", "GET", base + "tenant-a/app/manifests/1.0.0", "", 401, "Not Authorized"},
		{"another user name", "GET", base, "Basic " + base64.StdEncoding.EncodeToString([]byte("me:x")), 401, "Not Authorized"},
		{"another scheme", "GET", base, "Bearer x", 401, "Not Authorized"},
		{"token that was not issued", "GET", base, "Basic " + base64.StdEncoding.EncodeToString([]byte("AWS:x")), 400, "DENIED: Your Authorization Token is invalid."},
		{"own manifest", "GET", base + "tenant-a/app/manifests/1.0.0", a, 200, "manifest of tenant-a/app"},
		{"own manifest through the dual-stack host", "GET", "https://" + account + ".dkr-ecr." + region + ".on.aws/v2/tenant-a/app/manifests/1.0.0", a, 200, "manifest of tenant-a/app"},
		{"own manifest's head", "HEAD", base + "tenant-a/app/manifests/1.0.0", a, 200, ""},
		{"own tag that does not exist", "GET", base + "tenant-a/app/manifests/2.0.0", a, 404, "MANIFEST_UNKNOWN: unknown"},
		{"own tags", "GET", base + "tenant-a/app/tags/list", a, 200, `{"tags":["1.0.0"]}`},
		{"own repository that does not exist", "GET", base + "tenant-a/none/manifests/1.0.0", a, 404, "NAME_UNKNOWN: The repository with name 'tenant-a/none' does not exist in the registry with id '123456789123'"},
		{"other's manifest", "GET", base + "tenant-b/app/manifests/1.0.0", a, 403, "DENIED: " + me + "ecr:BatchGetImage on resource: arn:aws:ecr:eu-west-1:123456789123:repository/tenant-b/app because no identity-based policy allows the ecr:BatchGetImage action"},
		{"other's blob", "GET", base + "tenant-b/app/blobs/" + blob, a, 403, "DENIED: " + me + "ecr:GetDownloadUrlForLayer on resource: arn:aws:ecr:eu-west-1:123456789123:repository/tenant-b/app because no identity-based policy allows the ecr:GetDownloadUrlForLayer action"},
		{"other's repository that does not exist", "GET", base + "tenant-b/none/manifests/1.0.0", a, 403, "DENIED: " + me + "ecr:BatchGetImage on resource: arn:aws:ecr:eu-west-1:123456789123:repository/tenant-b/none because no identity-based policy allows the ecr:BatchGetImage action"},
		{"push to own", "PUT", base + "tenant-a/app/manifests/1.0.0", a, 403, "DENIED: " + me + "ecr:PutImage on resource: arn:aws:ecr:eu-west-1:123456789123:repository/tenant-a/app because no identity-based policy allows the ecr:PutImage action"},
		{"upload to own", "POST", base + "tenant-a/app/blobs/uploads/", a, 403, "DENIED: " + me + "ecr:InitiateLayerUpload on resource: arn:aws:ecr:eu-west-1:123456789123:repository/tenant-a/app because no identity-based policy allows the ecr:InitiateLayerUpload action"},
		{"path with ..", "GET", base + "tenant-a/app/../../tenant-b/app/manifests/1.0.0", a, 405, "UNSUPPORTED: The operation is unsupported."},
		{"path with an escaped slash", "GET", base + "tenant-a%2fapp/manifests/1.0.0", a, 405, "UNSUPPORTED: The operation is unsupported."},
		{"path with a double slash", "GET", base + "/tenant-b/app/manifests/1.0.0", a, 405, "UNSUPPORTED: The operation is unsupported."},
		{"catalog", "GET", base + "_catalog", a, 405, "UNSUPPORTED: The operation is unsupported."},
		{"other account", "GET", strings.Replace(base, account, otherAccount, 1) + "tenant-a/app/manifests/1.0.0", a, 403, "DENIED: " + me + "ecr:BatchGetImage on resource: arn:aws:ecr:eu-west-1:210987654321:repository/tenant-a/app because no resource-based policy allows the ecr:BatchGetImage action"},
		{"other region", "GET", strings.Replace(base, region, "eu-west-2", 1) + "tenant-a/app/manifests/1.0.0", a, 400, "DENIED: Your Authorization Token is invalid."},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := w.request(t, client, tt.method, tt.url, tt.authorization, "")
			if got.status != tt.status || got.message() != tt.message {
				t.Errorf("HTTP %d %s\nwant %d %s", got.status, got.message(), tt.status, tt.message)
			}
			challenge := `Basic realm="https://` + registryHost + `/",service="ecr.amazonaws.com"`
			if tt.status == 401 && got.header.Get("Www-Authenticate") != challenge {
				t.Errorf("challenge %q", got.header.Get("Www-Authenticate"))
			}
		})
	}
}

func TestUpload(t *testing.T) {
	w := newWorld(t)
	client := w.Client()
	admin := w.login(t, pusher())
	base := "https://" + registryHost + "/v2/tenant-a/app/"
	// A mount would read tenant B's blob, with only the permission to push to tenant A's
	// repository. So the registry must start an upload instead.
	a := w.request(t, client, http.MethodPost, base+"blobs/uploads/?mount=sha256:0&from=tenant-b/app", admin, "")
	location := a.header.Get("Location")
	if a.status != http.StatusAccepted || !strings.HasPrefix(location, base+"blobs/uploads/") {
		t.Fatalf("HTTP %d, location %q", a.status, location)
	}
	sum := sha256.Sum256([]byte("layer"))
	digest := "sha256:" + hex.EncodeToString(sum[:])
	if a = w.request(t, client, http.MethodPut, location+"?digest="+digest, admin, "layer"); a.status != http.StatusCreated {
		t.Fatalf("HTTP %d %s", a.status, a.body)
	}
	reader := w.login(t, w.assume(t, roleA, subjectA))
	if a = w.request(t, client, http.MethodGet, base+"blobs/"+digest, reader, ""); a.body != "layer" {
		t.Errorf("HTTP %d %s", a.status, a.body)
	}
}

func TestRegistryFollowsPolicies(t *testing.T) {
	w := newWorld(t)
	client := w.Client()
	w.push(t, client, registryHost, "tenant-a/app")
	token := w.login(t, w.assume(t, roleA, subjectA))
	get := func() int {
		return w.request(t, client, http.MethodGet, "https://"+registryHost+"/v2/tenant-a/app/manifests/1.0.0", token, "").status
	}
	put := func(change func(*aws.Role)) {
		t.Helper()
		role := rig.TenantRole("tenant-a", subjectA)
		change(&role)
		must.Succeed(t, w.AWS().PutRole(account, role))
	}
	var got []int
	got = append(got, get())
	put(func(r *aws.Role) { r.Policies = nil })
	got = append(got, get())
	put(func(*aws.Role) {})
	got = append(got, get())
	put(func(r *aws.Role) { // as IAM's "revoke active sessions" does
		r.Policies["revoke"] = json.RawMessage(`{"Version":"2012-10-17","Statement":[{"Effect":"Deny","Action":"*","Resource":"*",
			"Condition":{"DateLessThan":{"aws:TokenIssueTime":"` + time.Now().Add(time.Minute).UTC().Format(time.RFC3339) + `"}}}]}`)
	})
	got = append(got, get())
	put(func(*aws.Role) {})
	got = append(got, get())
	must.Succeed(t, w.AWS().DeleteRole(account, "tenant-a-ecr"))
	got = append(got, get())
	put(func(*aws.Role) {})
	got = append(got, get())
	want := []int{200, 403, 200, 403, 200, 403, 403}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("granted, policy gone, back, sessions revoked, back, role gone, re-created (-want +got):\n%s", diff)
	}
}

func TestRegistryTokenEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		client := w.Client()
		defer client.CloseIdleConnections()
		transport := w.Transport()
		defer transport.CloseIdleConnections()
		out, err := assume(t.Context(), stsClient(transport, nil), roleA, w.Mint(t, subjectA))
		must.Succeed(t, err)
		token := w.login(t, static(out.Credentials))
		ping := func() answer {
			return w.request(t, client, http.MethodGet, "https://"+registryHost+"/v2/", token, "")
		}
		time.Sleep(12*time.Hour - 3*time.Second)
		// The authorization token stays valid after the caller's session has ended, as at AWS.
		if a := ping(); a.status != http.StatusOK {
			t.Errorf("before its end: HTTP %d %s", a.status, a.body)
		}
		time.Sleep(3 * time.Second)
		if a := ping(); a.status != http.StatusForbidden || a.message() != "DENIED: Your authorization token has expired. Reauthenticate and try again." {
			t.Errorf("at its end: HTTP %d %s", a.status, a.body)
		}
	})
}

func TestCrossAccountRepository(t *testing.T) {
	w := newWorld(t)
	client := w.Client()
	grant := func(principal string) json.RawMessage {
		return json.RawMessage(`{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Principal":{"AWS":"` + principal + `"},"Action":["ecr:BatchGetImage","ecr:PutImage"]}]}`)
	}
	host := otherAccount + ".dkr.ecr." + region + ".amazonaws.com"
	url := "https://" + host + "/v2/tenant-a/app/manifests/1.0.0"
	admin, tenant := w.login(t, pusher()), w.login(t, w.assume(t, roleA, subjectA))
	put := func(policy json.RawMessage) {
		t.Helper()
		must.Succeed(t, w.AWS().PutRepository(otherAccount, aws.Repository{Region: region, Name: "tenant-a/app", Policy: policy}))
	}
	put(grant("arn:aws:iam::" + account + ":root"))
	if a := w.request(t, client, http.MethodPut, url, admin, "theirs"); a.status != http.StatusCreated {
		t.Errorf("both sides allow: HTTP %d %s", a.status, a.body)
	}
	if a := w.request(t, client, http.MethodGet, url, tenant, ""); a.status != http.StatusForbidden {
		t.Errorf("only the repository allows: HTTP %d", a.status)
	}
	put(nil)
	if a := w.request(t, client, http.MethodGet, url, admin, ""); a.status != http.StatusForbidden {
		t.Errorf("only the caller's policy allows: HTTP %d", a.status)
	}
	if a := w.request(t, client, http.MethodGet, strings.Replace(url, otherAccount, account, 1), tenant, ""); a.status != http.StatusNotFound {
		t.Errorf("the same name in the own account is another repository: HTTP %d %s", a.status, a.body)
	}
}

func TestPublicRegistry(t *testing.T) {
	w := newWorld(t)
	client := w.Client()
	const base = "https://public.ecr.aws"
	manifest := base + "/v2/lanyard/tools/manifests/1.0.0"
	a := w.request(t, client, http.MethodGet, manifest, "", "")
	if got := a.header.Get("Www-Authenticate"); a.status != 401 || got != `Bearer realm="https://public.ecr.aws/token/",service="public.ecr.aws",scope="aws"` {
		t.Errorf("HTTP %d, challenge %q", a.status, got)
	}
	bearer := func(authorization string) string {
		t.Helper()
		a := w.request(t, client, http.MethodGet, base+"/token/?service=public.ecr.aws&scope=aws", authorization, "")
		var token struct{ Token string }
		if err := json.Unmarshal([]byte(a.body), &token); err != nil || token.Token == "" {
			t.Fatalf("HTTP %d %s", a.status, a.body)
		}
		return "Bearer " + token.Token
	}
	public, err := ecrpublic.New(ecrpublic.Options{Region: "us-east-1", Credentials: pusher(), HTTPClient: client}).GetAuthorizationToken(t.Context(), nil)
	must.Succeed(t, err)
	owner := bearer("Basic " + *public.AuthorizationData.AuthorizationToken)
	if a := w.request(t, client, http.MethodPut, manifest, owner, "a tool"); a.status != http.StatusCreated {
		t.Errorf("the owner pushes: HTTP %d %s", a.status, a.body)
	}
	anonymous, private := bearer(""), w.login(t, pusher())
	if a := w.request(t, client, http.MethodGet, manifest, anonymous, ""); a.body != "a tool" {
		t.Errorf("anybody reads: HTTP %d %s", a.status, a.body)
	}
	for name, tt := range map[string]struct {
		method, url, authorization string
		status                     int
	}{
		"anonymous push":                       {http.MethodPut, manifest, anonymous, 403},
		"anonymous read of what is not there":  {http.MethodGet, manifest + "x", anonymous, 404},
		"private token's owner, as bearer":     {http.MethodPut, manifest, "Bearer " + strings.TrimPrefix(private, "Basic "), 400},
		"repository that does not exist":       {http.MethodGet, base + "/v2/lanyard/none/manifests/1", anonymous, 404},
		"basic credentials":                    {http.MethodGet, manifest, private, 400},
		"scheme in small letters":              {http.MethodGet, manifest, strings.Replace(anonymous, "Bearer", "bearer", 1), 200},
		"bearer with two tokens":               {http.MethodGet, manifest, anonymous + " x", 400},
		"bearer that was not issued":           {http.MethodGet, manifest, "Bearer x", 400},
		"private token at the token endpoint":  {http.MethodGet, base + "/token/", private, 400},
		"private token in place of the bearer": {http.MethodGet, manifest, strings.Replace(private, "Basic", "Bearer", 1), 400},
	} {
		if a := w.request(t, client, tt.method, tt.url, tt.authorization, ""); a.status != tt.status {
			t.Errorf("%s: HTTP %d %s, want %d", name, a.status, a.body, tt.status)
		}
	}
}

func TestJournalOfARead(t *testing.T) {
	w := newWorld(t)
	client := w.Client()
	w.push(t, client, registryHost, "tenant-a/app")
	token := w.login(t, w.assume(t, roleA, subjectA))
	w.Journal().Reset()
	_ = w.request(t, client, http.MethodGet, "https://"+registryHost+"/v2/tenant-a/app/manifests/1.0.0", token, "")
	calls := w.Journal().Calls(journal.Filter{})
	for i := range calls {
		calls[i].Seq, calls[i].Time = 0, time.Time{}
	}
	want := []journal.Call{{
		Host: registryHost, Service: aws.ServiceRegistry, Operation: "ecr:BatchGetImage",
		Principal: "arn:aws:sts::123456789123:assumed-role/tenant-a-ecr/test",
		Resource:  "arn:aws:ecr:eu-west-1:123456789123:repository/tenant-a/app", Status: 200,
	}}
	if diff := cmp.Diff(want, calls); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// BenchmarkRegistryRequest measures one request for a manifest. The registry checks the request and
// forwards it to an empty data plane.
func BenchmarkRegistryRequest(b *testing.B) {
	c, err := cloudtest.New(rig.AWSConfig())
	must.Succeed(b, err)
	defer func() { _ = c.Close() }()
	c.AWS().ServeRegistry(func(aws.Registry) http.Handler { return http.NotFoundHandler() })
	out, err := ecrClient(c.Transport(), pusher()).GetAuthorizationToken(b.Context(), nil)
	must.Succeed(b, err)
	r := httptest.NewRequestWithContext(b.Context(), http.MethodGet, "https://"+registryHost+"/v2/tenant-a/app/manifests/1.0.0", nil)
	r.Header.Set("Authorization", "Basic "+*out.AuthorizationData[0].AuthorizationToken)
	server := &service.Server{Faults: c.Faults(), Journal: c.Journal()}
	b.ReportAllocs()
	for b.Loop() {
		server.Serve(httptest.NewRecorder(), r, c.AWS().Service(registryHost))
	}
}
