package aws_test

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sts"

	"github.com/lanyard-dev/lanyard/auth"
	"github.com/lanyard-dev/lanyard/auth/aws"
	"github.com/lanyard-dev/lanyard/auth/cache"
	"github.com/lanyard-dev/lanyard/auth/endpoint"
	"github.com/lanyard-dev/lanyard/auth/internal/rig"
	"github.com/lanyard-dev/lanyard/cloudtest/fault"
	"github.com/lanyard-dev/lanyard/cloudtest/journal"
)

func TestTenantProxy(t *testing.T) {
	w := newWorld(t)
	a := w.tenantA(t)
	// There is no administrator's proxy, so that only the tenant's proxy can reach the local cloud.
	w.Base.Proxy = nil
	provider := w.provider(t, aws.Config{Region: region, AllowedEndpointHosts: w.Allow})
	token, err := auth.GetToken(t.Context(), provider, w.As(a, auth.WithProxyURL(w.Proxy), auth.WithImageRepository(imageA))...)
	rig.Must(t, err)
	if _, ok := token.(*auth.RegistryCredentials); !ok {
		t.Errorf("a %T", token)
	}
	// The proxy must also be used for an STS endpoint that the tenant names.
	_, err = auth.GetToken(t.Context(), provider, w.As(a, auth.WithProxyURL(w.Proxy), auth.WithSTSEndpoint("https://sts.us-west-2.amazonaws.com"))...)
	rig.Must(t, err)
	if calls := w.Calls("sts"); len(calls) != 2 || calls[1].Host != "sts.us-west-2.amazonaws.com" {
		t.Errorf("%+v", calls)
	}
}

func TestTenantProxies(t *testing.T) {
	w := newWorld(t)
	a := w.tenantA(t)
	w.TenantProxies(t, func(t *testing.T, allow endpoint.Allowed, deny endpoint.CIDRs, opts ...auth.Option) error {
		t.Helper()
		provider := w.provider(t, aws.Config{Region: region, AllowedEndpointHosts: allow, DenyCIDRs: deny})
		_, err := auth.GetToken(t.Context(), provider, w.As(a, opts...)...)
		return err
	})
}

func TestTenantEndpoint(t *testing.T) {
	w := newWorld(t)
	a := w.tenantA(t)
	_, err := auth.GetToken(t.Context(), w.aws, w.As(a, auth.WithSTSEndpoint("https://sts.us-west-2.amazonaws.com"))...)
	rig.Must(t, err)
	if calls := w.Calls("sts"); len(calls) != 1 || calls[0].Host != "sts.us-west-2.amazonaws.com" || calls[0].Audience != "sts.amazonaws.com" {
		t.Errorf("%+v", calls)
	}

	// A host in AllowedEndpointHosts may be on loopback. The proof for the host has the host itself
	// as audience. The host's certificate must still be from a trusted authority.
	var audience, form string
	server := httptest.NewTLSServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		form = r.FormValue("RoleArn")
		answer(goodSession)(rw, r)
	}))
	defer server.Close()
	target, err := url.Parse(server.URL)
	rig.Must(t, err)
	subject := rig.Subject(a, func(account auth.Account, request auth.ProofRequest) (string, error) {
		audience = request.Audiences[0]
		return w.Sign(account, request)
	})
	options := []auth.Option{subject, auth.WithSTSEndpoint(server.URL)}
	w.Base = server.Client().Transport.(*http.Transport).Clone()
	w.Base.Proxy = nil
	w.Base.DialContext = func(context.Context, string, string) (net.Conn, error) {
		return nil, errors.New("dialled without the guard")
	}
	allow, err := endpoint.ParseAllowed(target.Host)
	rig.Must(t, err)
	_, err = auth.GetToken(t.Context(), w.provider(t, aws.Config{Region: region, AllowedEndpointHosts: allow}), options...)
	rig.Must(t, err)
	if audience != target.Host || form != a.Attributes[aws.RoleAnnotation] {
		t.Errorf("audience %q, role %q", audience, form)
	}
	w.Base.TLSClientConfig.RootCAs = nil
	_, err = auth.GetToken(t.Context(), w.provider(t, aws.Config{Region: region, AllowedEndpointHosts: allow}), options...)
	if auth.CodeOf(err) != auth.CodeUnreachable || !strings.Contains(err.Error(), "unknown authority") {
		t.Errorf("untrusted certificate: %v", err)
	}
	// If the host is not in AllowedEndpointHosts, GetToken fails before it asks for a proof. So the
	// audience stays empty.
	audience = ""
	_, err = auth.GetToken(t.Context(), w.provider(t, aws.Config{Region: region}), options...)
	if auth.CodeOf(err) != auth.CodeEndpointRefused || audience != "" {
		t.Errorf("not listed: %v, audience %q", err, audience)
	}
}

func TestPermissionDenied(t *testing.T) {
	w := newWorld(t)
	a := w.tenantA(t)
	rig.Must(t, w.Cloud.AWS().PutRole(accountID, roleWithoutPermissions("tenant-a-ecr", trust(a.Subject.String()))))
	_, err := auth.GetToken(t.Context(), w.aws, w.As(a, auth.WithImageRepository(imageA))...)
	e, ok := errors.AsType[*auth.Error](err)
	if !ok || e.Stage != auth.StageRegistry || e.Code != auth.CodePermissionDenied ||
		e.Fix != "allow ecr:GetAuthorizationToken on resource * in the permission policy of role "+a.Attributes[aws.RoleAnnotation] {
		t.Errorf("%v", err)
	}
	_, err = auth.GetToken(t.Context(), w.aws, w.As(a, auth.WithImageRepository("public.ecr.aws/lanyard/app"))...)
	if e, ok := errors.AsType[*auth.Error](err); !ok || e.Code != auth.CodePermissionDenied || !strings.Contains(e.Fix, "sts:GetServiceBearerToken") {
		t.Errorf("public: %v", err)
	}
}

func TestPublicRegistry(t *testing.T) {
	w := newWorld(t)
	token, err := auth.GetToken(t.Context(), w.aws, w.As(w.tenantA(t), auth.WithImageRepository("public.ecr.aws/lanyard/app"))...)
	rig.Must(t, err)
	if c := token.(*auth.RegistryCredentials); c.Username != "AWS" || c.Password.IsZero() || c.GetDuration() < time.Hour {
		t.Errorf("%v", c)
	}
	if calls := w.Calls("ecr-public"); len(calls) != 1 || calls[0].Host != "api.ecr-public.us-east-1.amazonaws.com" {
		t.Errorf("%+v", calls)
	}
	if calls := w.Calls("sts"); calls[0].Host != "sts.eu-west-1.amazonaws.com" {
		t.Errorf("STS in another region than the controller's: %+v", calls)
	}
}

func TestJournalTellsWho(t *testing.T) {
	w := newWorld(t)
	a := w.tenantA(t)
	_, err := auth.GetToken(t.Context(), w.aws, w.As(a, auth.WithImageRepository(imageA))...)
	rig.Must(t, err)
	const principal = "arn:aws:sts::123456789123:assumed-role/tenant-a-ecr/tenant-a-ecr-sa.tenant-a"
	for _, service := range []string{"sts", "ecr"} {
		if calls := w.Calls(service); len(calls) != 1 || calls[0].Principal != principal {
			t.Errorf("%s: %+v", service, calls)
		}
	}
}

func TestCredentialsProvider(t *testing.T) {
	w := newWorld(t)
	a := w.tenantA(t)
	options := w.As(a, auth.WithCache(cache.New(cache.Options{MaxSize: 10}), auth.InvolvedObject{}))
	client := sts.New(sts.Options{Region: region, HTTPClient: &http.Client{Transport: w.Base}, Credentials: aws.NewCredentialsProvider(w.aws, options...)})
	for range 3 {
		answer, err := client.GetCallerIdentity(t.Context(), &sts.GetCallerIdentityInput{})
		if err != nil || !strings.HasSuffix(awssdk.ToString(answer.Arn), "assumed-role/tenant-a-ecr/tenant-a-ecr-sa.tenant-a") {
			t.Fatalf("%+v, %v", answer, err)
		}
	}
	if n := w.exchanges(); n != 1 {
		t.Errorf("%d exchanges, want 1", n)
	}

	// The SDK asks again soon, although the session lives longer.
	kept, err := aws.NewCredentialsProvider(w.aws, options...).Retrieve(t.Context())
	if left := time.Until(kept.Expires); err != nil || !kept.CanExpire || left > time.Minute || left < 50*time.Second {
		t.Errorf("%v, to be asked for again in %s", err, left)
	}

	// The caller's context applies, not the context in which the provider was made.
	end := w.Fault(t, fault.Fault{Service: "sts", Operation: opSTS, Kind: fault.Latency, Delay: time.Minute})
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	started := time.Now()
	_, err = aws.NewCredentialsProvider(w.aws, w.As(a)...).Retrieve(ctx)
	if !errors.Is(err, context.DeadlineExceeded) || time.Since(started) > 30*time.Second {
		t.Errorf("%v after %s", err, time.Since(started))
	}
	end()
	if _, err := aws.NewCredentialsProvider(w.aws, w.As(a, auth.WithImageRepository(imageA))...).Retrieve(t.Context()); auth.CodeOf(err) != auth.CodeOptionUnsupported {
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
	if calls := w.Cloud.Journal().Calls(journal.Filter{}); len(calls) != 0 {
		t.Errorf("%d calls", len(calls))
	}
}
