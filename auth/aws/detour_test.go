package aws_test

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sts"
	"github.com/lanyard-dev/lanyard/cloudtest/fault"
	"github.com/lanyard-dev/lanyard/cloudtest/journal"

	"github.com/lanyard-dev/lanyard/auth"
	"github.com/lanyard-dev/lanyard/auth/aws"
	"github.com/lanyard-dev/lanyard/auth/cache"
	"github.com/lanyard-dev/lanyard/auth/endpoint"
)

func TestTenantProxy(t *testing.T) {
	w := newWorld(t)
	a := w.tenantA(t)
	// The administrator has no proxy here, so that only the tenant's leads to the cloud.
	w.base.Proxy = nil
	provider := w.provider(t, aws.Config{Region: region, AllowedEndpointHosts: w.allow})
	token, err := auth.GetToken(t.Context(), provider, w.as(a, auth.WithProxyURL(w.proxy), auth.WithImageRepository(imageA))...)
	must(t, err)
	if _, ok := token.(*auth.RegistryCredentials); !ok {
		t.Errorf("a %T", token)
	}
	// Through the same proxy again: the connections are kept. An endpoint of the tenant's is reached through it as well.
	_, err = auth.GetToken(t.Context(), provider, w.as(a, auth.WithProxyURL(w.proxy), auth.WithSTSEndpoint("https://sts.us-west-2.amazonaws.com"))...)
	must(t, err)
	if calls := w.calls("sts"); len(calls) != 2 || calls[1].Host != "sts.us-west-2.amazonaws.com" {
		t.Errorf("%+v", calls)
	}

	// A proxy inside the cluster is none, whatever it is called.
	for name, config := range map[string]aws.Config{"loopback": {Region: region}, "denied": {Region: region, DenyCIDRs: endpoint.CIDRs{netip.MustParsePrefix("127.0.0.0/8")}}} {
		_, err = auth.GetToken(t.Context(), w.provider(t, config), w.as(a, auth.WithProxyURL(w.proxy))...)
		e, ok := errors.AsType[*auth.Error](err)
		if !ok || e.Code != auth.CodeEndpointRefused || e.Temporary() || !strings.Contains(e.Fix, "--allowed-endpoint-hosts") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestTenantProxyThatLies(t *testing.T) {
	w := newWorld(t)
	a := w.tenantA(t)
	var proofs atomic.Int32
	// It terminates TLS with a certificate of its own.
	impostor := httptest.NewTLSServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { proofs.Add(1) }))
	defer impostor.Close()
	target, err := url.Parse(impostor.URL)
	must(t, err)
	proxy := connectTo(t, target.Host)
	allow, err := endpoint.ParseAllowed(proxy.Host)
	must(t, err)
	provider := w.provider(t, aws.Config{Region: region, AllowedEndpointHosts: allow})
	_, err = auth.GetToken(t.Context(), provider, w.as(a, auth.WithProxyURL(proxy))...)
	if auth.CodeOf(err) != auth.CodeUnreachable || !strings.Contains(err.Error(), "the certificate is") {
		t.Errorf("%v", err)
	}
	if proofs.Load() != 0 {
		t.Error("the proof reached the impostor")
	}
}

// The controller's own settings decide about its endpoint; a tenant's STS endpoint is dialled with the guard.
func TestTenantEndpoint(t *testing.T) {
	w := newWorld(t)
	a := w.tenantA(t)
	_, err := auth.GetToken(t.Context(), w.aws, w.as(a, auth.WithSTSEndpoint("https://sts.us-west-2.amazonaws.com"))...)
	must(t, err)
	if calls := w.calls("sts"); len(calls) != 1 || calls[0].Host != "sts.us-west-2.amazonaws.com" || calls[0].Audience != "sts.amazonaws.com" {
		t.Errorf("%+v", calls)
	}

	// A listed host may be on loopback, gets a proof for itself, and must be trusted by certificate all the same.
	var audience, form string
	server := httptest.NewTLSServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		form = r.FormValue("RoleArn")
		answer(goodSession)(rw, r)
	}))
	defer server.Close()
	target, err := url.Parse(server.URL)
	must(t, err)
	accounts := only{a, func(account auth.Account, request auth.ProofRequest) (string, error) {
		audience = request.Audience
		return w.sign(account, request)
	}}
	options := []auth.Option{auth.WithSubject(a.Subject, accounts, accounts), auth.WithSTSEndpoint(server.URL)}
	w.base = server.Client().Transport.(*http.Transport).Clone()
	w.base.Proxy = nil
	w.base.DialContext = func(context.Context, string, string) (net.Conn, error) {
		return nil, errors.New("dialled without the guard")
	}
	allow, err := endpoint.ParseAllowed(target.Host)
	must(t, err)
	_, err = auth.GetToken(t.Context(), w.provider(t, aws.Config{Region: region, AllowedEndpointHosts: allow}), options...)
	must(t, err)
	if audience != "127.0.0.1" || form != a.Attributes[aws.RoleAnnotation] {
		t.Errorf("audience %q, role %q", audience, form)
	}
	w.base.TLSClientConfig.RootCAs = nil
	_, err = auth.GetToken(t.Context(), w.provider(t, aws.Config{Region: region, AllowedEndpointHosts: allow}), options...)
	if auth.CodeOf(err) != auth.CodeUnreachable || !strings.Contains(err.Error(), "unknown authority") {
		t.Errorf("untrusted certificate: %v", err)
	}
	// Not listed: no proof is made.
	audience = ""
	_, err = auth.GetToken(t.Context(), w.provider(t, aws.Config{Region: region}), options...)
	if auth.CodeOf(err) != auth.CodeEndpointRefused || audience != "" {
		t.Errorf("not listed: %v, audience %q", err, audience)
	}
}

// connectTo is a proxy that leads every CONNECT to one address.
func connectTo(t *testing.T, address string) *url.URL {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodConnect {
			http.Error(rw, "CONNECT only", http.StatusMethodNotAllowed)
			return
		}
		splice(r.Context(), rw, address)
	}))
	t.Cleanup(server.Close)
	proxy, err := url.Parse(server.URL)
	must(t, err)
	return proxy
}

func TestPermissionDenied(t *testing.T) {
	w := newWorld(t)
	a := w.tenantA(t)
	must(t, w.cloud.AWS().PutRole(accountID, roleWithoutPermissions("tenant-a-ecr", trust(a.Subject.String()))))
	_, err := auth.GetToken(t.Context(), w.aws, w.as(a, auth.WithImageRepository(imageA))...)
	e, ok := errors.AsType[*auth.Error](err)
	if !ok || e.Stage != auth.StageRegistry || e.Code != auth.CodePermissionDenied ||
		e.Fix != "allow ecr:GetAuthorizationToken on resource * in the permission policy of role "+a.Attributes[aws.RoleAnnotation] {
		t.Errorf("%v", err)
	}
	_, err = auth.GetToken(t.Context(), w.aws, w.as(a, auth.WithImageRepository("public.ecr.aws/lanyard/app"))...)
	if e, ok := errors.AsType[*auth.Error](err); !ok || e.Code != auth.CodePermissionDenied || !strings.Contains(e.Fix, "sts:GetServiceBearerToken") {
		t.Errorf("public: %v", err)
	}
}

func TestPublicRegistry(t *testing.T) {
	w := newWorld(t)
	token, err := auth.GetToken(t.Context(), w.aws, w.as(w.tenantA(t), auth.WithImageRepository("public.ecr.aws/lanyard/app"))...)
	must(t, err)
	if c := token.(*auth.RegistryCredentials); c.Username != "AWS" || c.Password.IsZero() || c.GetDuration() < time.Hour {
		t.Errorf("%v", c)
	}
	if calls := w.calls("ecr-public"); len(calls) != 1 || calls[0].Host != "api.ecr-public.us-east-1.amazonaws.com" {
		t.Errorf("%+v", calls)
	}
	if calls := w.calls("sts"); calls[0].Host != "sts.eu-west-1.amazonaws.com" {
		t.Errorf("STS in another region than the controller's: %+v", calls)
	}
}

func TestJournalTellsWho(t *testing.T) {
	w := newWorld(t)
	a := w.tenantA(t)
	_, err := auth.GetToken(t.Context(), w.aws, w.as(a, auth.WithImageRepository(imageA))...)
	must(t, err)
	const principal = "arn:aws:sts::123456789123:assumed-role/tenant-a-ecr/tenant-a-ecr-sa.tenant-a"
	for _, service := range []string{"sts", "ecr"} {
		if calls := w.calls(service); len(calls) != 1 || calls[0].Principal != principal {
			t.Errorf("%s: %+v", service, calls)
		}
	}
}

func TestCredentialsProvider(t *testing.T) {
	w := newWorld(t)
	a := w.tenantA(t)
	options := w.as(a, auth.WithCache(cache.New(cache.Options{MaxSize: 10}), auth.InvolvedObject{}))
	client := sts.New(sts.Options{Region: region, HTTPClient: &http.Client{Transport: w.base}, Credentials: aws.NewCredentialsProvider(w.aws, options...)})
	for range 3 {
		answer, err := client.GetCallerIdentity(t.Context(), &sts.GetCallerIdentityInput{})
		if err != nil || !strings.HasSuffix(awssdk.ToString(answer.Arn), "assumed-role/tenant-a-ecr/tenant-a-ecr-sa.tenant-a") {
			t.Fatalf("%+v, %v", answer, err)
		}
	}
	if n := w.exchanges(); n != 1 {
		t.Errorf("%d exchanges, want 1", n)
	}

	// It is the caller's context that counts, not that of whoever made it.
	end := w.fault(t, fault.Fault{Service: "sts", Operation: opSTS, Kind: fault.Latency, Delay: 2 * time.Second})
	defer end()
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	started := time.Now()
	_, err := aws.NewCredentialsProvider(w.aws, w.as(a)...).Retrieve(ctx)
	if !errors.Is(err, context.DeadlineExceeded) || time.Since(started) > time.Second {
		t.Errorf("%v after %s", err, time.Since(started))
	}
	if _, err := aws.NewCredentialsProvider(w.aws, w.as(a, auth.WithImageRepository(imageA))...).Retrieve(t.Context()); auth.CodeOf(err) != auth.CodeOptionUnsupported {
		t.Errorf("with an image repository: %v", err)
	}
	if _, err := aws.NewCredentialsProvider(w.aws).Retrieve(t.Context()); auth.CodeOf(err) != auth.CodeSubjectInvalid {
		t.Errorf("for nobody: %v", err)
	}
}

func TestOnlyItsOwnTokens(t *testing.T) {
	w := newWorld(t)
	request := &auth.Request{ImageRepository: imageA}
	for _, token := range []auth.Token{nil, (*aws.Token)(nil), &auth.RegistryCredentials{}} {
		if _, err := w.aws.NewRegistryToken(t.Context(), token, request); auth.CodeOf(err) != auth.CodeResponseInvalid {
			t.Errorf("%T: %v", token, err)
		}
	}
	if calls := w.cloud.Journal().Calls(journal.Filter{}); len(calls) != 0 {
		t.Errorf("%d calls", len(calls))
	}
}
