package providers_test

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lanyard-dev/lanyard/auth"
	"github.com/lanyard-dev/lanyard/auth/aws"
	"github.com/lanyard-dev/lanyard/auth/azure"
	"github.com/lanyard-dev/lanyard/auth/endpoint"
	"github.com/lanyard-dev/lanyard/auth/gcp"
	"github.com/lanyard-dev/lanyard/auth/internal/must"
	"github.com/lanyard-dev/lanyard/auth/providers"
)

// open makes providers and closes them when the test ends.
func open(t *testing.T, config providers.Config) *providers.Set {
	t.Helper()
	set, err := providers.New(config)
	must.Succeed(t, err)
	t.Cleanup(set.Close)
	return set
}

func TestWhatTheEnvironmentSays(t *testing.T) {
	write := func(name, content string) string {
		file := filepath.Join(t.TempDir(), name)
		must.Succeed(t, os.WriteFile(file, []byte(content), 0o600))
		return file
	}
	const (
		public  = "https://login.microsoftonline.com/"
		central = "googleapis.com"
		stack   = `{"activeDirectoryEndpoint":"https://login.stack.example.com/","resourceManagerEndpoint":"https://management.stack.example.com/"}`
	)
	type environment = map[string]string
	for name, c := range map[string]struct {
		env       environment
		region    string // the expected region of AWS
		own       string // Config.AWSRegion
		authority string // the expected authority of Azure's cloud
		universe  string // the expected universe of Google Cloud
		says      string // a part of the expected error
	}{
		"nothing is set": {authority: public, universe: central},
		"everything is set": {
			env: environment{
				"AZURE_TENANT_ID": "11111111-2222-3333-4444-555555555555", "AZURE_AUTHORITY_HOST": "https://login.microsoftonline.us/",
				"GCE_METADATA_HOST": "127.0.0.1:8080", "GOOGLE_CLOUD_UNIVERSE_DOMAIN": "apis-berlin-build0.goog",
				"AWS_REGION": "eu-west-1",
			},
			region: "eu-west-1", authority: "https://login.microsoftonline.us/", universe: "apis-berlin-build0.goog",
		},
		"the program's own region comes first": {
			env: environment{"AWS_REGION": "eu-west-1"}, own: "eu-north-1", region: "eu-north-1", authority: public, universe: central,
		},
		// AZURE_ENVIRONMENT_FILEPATH takes precedence over AZURE_AUTHORITY_HOST.
		"a cloud of one's own": {
			env:       environment{"AZURE_ENVIRONMENT_FILEPATH": write("stack.json", stack), "AZURE_AUTHORITY_HOST": "https://login.microsoftonline.us/"},
			authority: "https://login.stack.example.com/", universe: central,
		},
		"no authorities":       {env: environment{"AWS_CA_BUNDLE": write("ca.pem", "")}, says: "AWS_CA_BUNDLE"},
		"no file":              {env: environment{"AWS_CA_BUNDLE": "/nonexistent/ca.pem"}, says: "AWS_CA_BUNDLE"},
		"no region":            {env: environment{"AWS_REGION": "nowhere"}, says: "AWS_REGION"},
		"no region of its own": {own: "nowhere", says: "AWS_REGION"},
		"no tenant":            {env: environment{"AZURE_TENANT_ID": "contoso"}, says: "AZURE_TENANT_ID"},
		"no authority":         {env: environment{"AZURE_AUTHORITY_HOST": "https://login.microsoftonline.com.evil.example/"}, says: "AZURE_AUTHORITY_HOST"},
		"no environment":       {env: environment{"AZURE_ENVIRONMENT_FILEPATH": write("empty.json", "{}")}, says: "AZURE_ENVIRONMENT_FILEPATH"},
		"no environment file":  {env: environment{"AZURE_ENVIRONMENT_FILEPATH": "/nonexistent/cloud.json"}, says: "AZURE_ENVIRONMENT_FILEPATH"},
		"no universe":          {env: environment{"GOOGLE_CLOUD_UNIVERSE_DOMAIN": "https://evil.example"}, says: "GOOGLE_CLOUD_UNIVERSE_DOMAIN"},
		"no metadata host":     {env: environment{"GCE_METADATA_HOST": "http://169.254.169.254/x"}, says: "GCE_METADATA_HOST"},
	} {
		t.Run(name, func(t *testing.T) {
			config := providers.Config{AWSRegion: c.own, Env: func(name string) string { return c.env[name] }}
			if c.says != "" {
				if _, err := providers.New(config); err == nil || !strings.Contains(err.Error(), c.says) {
					t.Errorf("error %v, want one that names %s", err, c.says)
				}
				return
			}
			set := open(t, config)
			if got := set.Azure.Cloud().Authority; strings.TrimSuffix(got, "/") != strings.TrimSuffix(c.authority, "/") {
				t.Errorf("Azure's authority is %s", got)
			}
			if got := set.GCP.Universe().Domain; got != c.universe {
				t.Errorf("Google's universe is %s", got)
			}
			if got := set.AWS.Region().Name; got != c.region {
				t.Errorf("the region of AWS is %q", got)
			}
			// A call without a region uses the program's region, or is an error if the program has
			// no region.
			target, err := set.AWS.GetTarget(&auth.Options{})
			if target.STSRegion != c.region || (err == nil) != (c.region != "") {
				t.Errorf("the region of AWS is %q, %v", target.STSRegion, err)
			}
		})
	}
}

// TestByName checks that ByName accepts only the exact name of a provider, and that there is no
// default.
func TestByName(t *testing.T) {
	set := open(t, providers.Config{})
	if got := set.Names(); !slices.Equal(got, []string{"aws", "azure", "gcp"}) {
		t.Errorf("the names are %q", got)
	}
	for name, want := range map[string]auth.Provider{"aws": set.AWS, "azure": set.Azure, "gcp": set.GCP} {
		got, err := set.ByName(name)
		if err != nil || got != want || got.GetName() != name {
			t.Errorf("%s is %T, %v", name, got, err)
		}
	}
	for _, name := range []string{"", "generic", "AWS", " aws", "aws,azure", strings.Repeat("a", 1000)} {
		got, err := set.ByName(name)
		refused, ok := errors.AsType[*auth.Error](err)
		if got != nil || !ok || refused.Code != auth.CodeOptionInvalid || refused.Fix != "name one of aws, azure, gcp" || len(err.Error()) > 200 {
			t.Errorf("%.20q is %T, %v", name, got, err)
		}
	}
}

// TestDeniedAddressesAreRefused checks that no cloud's provider connects to a tenant's proxy whose
// address is in --deny-cidrs. A proxy in --allowed-endpoint-hosts must be allowed despite its
// address.
func TestDeniedAddressesAreRefused(t *testing.T) {
	// This address is in a documentation network (RFC 5737), where no host exists.
	proxy := &url.URL{Scheme: "http", Host: "192.0.2.1:3128"}
	listed, err := endpoint.ParseAllowed(proxy.Host)
	must.Succeed(t, err)
	subject, err := auth.ServiceAccount("tenant-a", "puller")
	must.Succeed(t, err)
	account := tenant{Subject: subject, UID: "uid", Attributes: map[string]string{
		aws.RoleAnnotation:           "arn:aws:iam::123456789123:role/puller",
		azure.ClientAnnotation:       "11111111-2222-3333-4444-555555555555",
		azure.TenantAnnotation:       "66666666-7777-8888-9999-000000000000",
		gcp.ProviderAnnotation:       "projects/123456789/locations/global/workloadIdentityPools/pool/providers/cluster",
		gcp.ServiceAccountAnnotation: "puller@project.iam.gserviceaccount.com",
	}}
	denied, err := endpoint.ParseCIDRs("192.0.2.0/24")
	must.Succeed(t, err)
	for _, name := range open(t, providers.Config{}).Names() {
		ask := func(config providers.Config) error {
			config.AWSRegion = "eu-west-1"
			// An allowed connection waits for an answer that never comes, so the deadline is short.
			ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
			defer cancel()
			provider, err := open(t, config).ByName(name)
			must.Succeed(t, err)
			_, err = auth.GetToken(ctx, provider, auth.WithSubject(subject, account), auth.WithProxyURL(proxy))
			return err
		}
		if err := ask(providers.Config{DenyCIDRs: denied}); auth.CodeOf(err) != auth.CodeEndpointRefused || !strings.Contains(err.Error(), "--deny-cidrs") {
			t.Errorf("%s, denied: %v", name, err)
		}
		if err := ask(providers.Config{DenyCIDRs: denied, AllowedEndpointHosts: listed}); err == nil || auth.CodeOf(err) == auth.CodeEndpointRefused {
			t.Errorf("%s, listed: %v", name, err)
		}
	}
}

// tenant is an [auth.Accounts] with one account, which never changes. No server receives its
// proofs, so they need no valid signature.
type tenant auth.Account

func (a tenant) Lookup(context.Context, auth.Subject) (auth.Account, error) {
	return auth.Account(a), nil
}

func (a tenant) Read(context.Context, auth.Subject) (auth.Account, error) {
	return auth.Account(a), nil
}

func (tenant) Subscribe(func(auth.Subject)) {}

func (a tenant) Prove(_ context.Context, account auth.Account, request auth.ProofRequest) (auth.Proof, error) {
	if account.Subject != a.Subject {
		return nil, errors.New("another account")
	}
	encode := base64.RawURLEncoding.EncodeToString
	claims := fmt.Sprintf(`{"sub":%q,"aud":[%q]}`, account.Subject, request.Audiences[0])
	return &auth.JWT{
		Token:     auth.NewSecret(encode([]byte(`{"alg":"ES256"}`)) + "." + encode([]byte(claims)) + "." + encode([]byte("no signature"))),
		ExpiresAt: time.Now().Add(request.Lifetime),
	}, nil
}
