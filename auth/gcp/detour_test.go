package gcp_test

import (
	"context"
	"errors"
	"net/http"
	"testing"
	"time"

	"golang.org/x/oauth2"

	"github.com/lanyard-dev/lanyard/auth"
	"github.com/lanyard-dev/lanyard/auth/cache"
	"github.com/lanyard-dev/lanyard/auth/endpoint"
	"github.com/lanyard-dev/lanyard/auth/gcp"
	"github.com/lanyard-dev/lanyard/auth/internal/rig"
	"github.com/lanyard-dev/lanyard/cloudtest/fault"
	cloudgcp "github.com/lanyard-dev/lanyard/cloudtest/gcp"
	"github.com/lanyard-dev/lanyard/cloudtest/journal"
)

func TestTenantProxy(t *testing.T) {
	w := newWorld(t)
	a := w.tenantA(t)
	// Without an administrator's proxy, only the tenant's proxy can reach the local cloud.
	w.Base.Proxy = nil
	provider := w.provider(t, gcp.Config{AllowedEndpointHosts: w.Allow})
	token, err := auth.GetToken(t.Context(), provider, w.As(a, auth.WithProxyURL(w.Proxy), auth.WithImageRepository(imageA))...)
	rig.Must(t, err)
	if _, ok := token.(*auth.RegistryCredentials); !ok {
		t.Errorf("a %T", token)
	}
	if w.exchanges() != 1 || w.Count(cloudgcp.ServiceIAMCredentials, opImpersonate) != 1 {
		t.Errorf("%d exchanges, %d impersonations", w.exchanges(), w.Count(cloudgcp.ServiceIAMCredentials, opImpersonate))
	}
}

func TestTenantProxies(t *testing.T) {
	w := newWorld(t)
	a := w.tenantA(t)
	w.TenantProxies(t, func(t *testing.T, allow endpoint.Allowed, deny endpoint.CIDRs, opts ...auth.Option) error {
		t.Helper()
		_, err := auth.GetToken(t.Context(), w.provider(t, gcp.Config{AllowedEndpointHosts: allow, DenyCIDRs: deny}), w.As(a, opts...)...)
		return err
	})
}

func TestTokenSource(t *testing.T) {
	w := newWorld(t)
	a := w.tenantA(t)
	tokens := cache.New(cache.Options{MaxSize: 10})
	source := gcp.NewTokenSource(t.Context(), w.gcp, w.As(a, auth.WithCache(tokens, auth.InvolvedObject{}))...)
	client := oauth2.NewClient(context.WithValue(t.Context(), oauth2.HTTPClient, &http.Client{Transport: w.Base}), source)
	for range 3 {
		response, err := client.Get("https://storage.googleapis.com/storage/v1/b/some-bucket/o")
		rig.Must(t, err)
		rig.Must(t, response.Body.Close())
	}
	calls := w.Calls(cloudgcp.ServiceStorage)
	if len(calls) != 3 || calls[2].Principal != "serviceAccount:"+emailA {
		t.Errorf("%+v", calls)
	}
	if n := w.exchanges(); n != 1 {
		t.Errorf("%d exchanges, want 1", n)
	}
	// The source itself stores no token, so the first call after Invalidate makes a new exchange.
	tokens.Invalidate(a.Subject)
	kept, err := source.Token()
	rig.Must(t, err)
	// The reported expiry is at most a minute ahead, although the token lives longer. oauth2's
	// wrapper therefore asks again within a minute.
	if left := time.Until(kept.Expiry); left > time.Minute || left < 50*time.Second {
		t.Errorf("to be asked for again in %s", left)
	}
	if n := w.exchanges(); n != 2 {
		t.Errorf("%d exchanges, want 2", n)
	}

	end := w.Fault(t, fault.Fault{Service: cloudgcp.ServiceSTS, Kind: fault.Latency, Delay: time.Minute})
	defer end()
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	started := time.Now()
	if _, err := gcp.NewTokenSource(ctx, w.gcp, w.As(a)...).Token(); !errors.Is(err, context.DeadlineExceeded) || time.Since(started) > 30*time.Second {
		t.Errorf("%v after %s", err, time.Since(started))
	}
	if _, err := gcp.NewTokenSource(t.Context(), w.gcp).Token(); auth.CodeOf(err) != auth.CodeSubjectInvalid {
		t.Errorf("for nobody: %v", err)
	}
	end()
	if _, err := gcp.NewTokenSource(t.Context(), w.gcp, w.As(a, auth.WithImageRepository(imageA))...).Token(); auth.CodeOf(err) != auth.CodeOptionUnsupported {
		t.Errorf("with an image repository: %v", err)
	}
}

func TestRegistryCredentials(t *testing.T) {
	w := newWorld(t)
	a := w.tenantA(t)
	token, err := auth.GetToken(t.Context(), w.gcp, w.As(a, auth.WithImageRepository(imageA))...)
	rig.Must(t, err)
	c := token.(*auth.RegistryCredentials)
	if c.Username != "oauth2accesstoken" || c.GetDuration() < 50*time.Minute || c.GetDuration() > time.Hour {
		t.Errorf("%s, valid for %s", c.Username, c.GetDuration())
	}
	if whose, err := w.whose(t.Context(), &gcp.Token{Secret: c.Password, ExpiresAt: c.ExpiresAt}); err != nil || whose != "serviceAccount:"+emailA {
		t.Errorf("%s, %v", whose, err)
	}
}

func TestOnlyItsOwnTokens(t *testing.T) {
	w := newWorld(t)
	for _, token := range []auth.Token{nil, (*gcp.Token)(nil), &auth.RegistryCredentials{}} {
		if _, err := w.gcp.NewRegistryToken(t.Context(), token, &auth.Request{ImageRepository: imageA}); auth.CodeOf(err) != auth.CodeResponseInvalid {
			t.Errorf("%T: %v", token, err)
		}
	}
	token := &gcp.Token{Secret: auth.NewSecret("a"), ExpiresAt: time.Now().Add(time.Hour)}
	for _, host := range []string{"gcr.io.evil.example/a", "u-france-east1-docker.s3nsregistry.fr/a", ""} {
		if _, err := w.gcp.NewRegistryToken(t.Context(), token, &auth.Request{ImageRepository: host}); auth.CodeOf(err) != auth.CodeEndpointRefused {
			t.Errorf("%q: %v", host, err)
		}
	}
	if calls := w.Cloud.Journal().Calls(journal.Filter{}); len(calls) != 0 {
		t.Errorf("%d calls", len(calls))
	}
}
