package cloudtest_test

import (
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lanyard-dev/lanyard/cloudtest"
	"github.com/lanyard-dev/lanyard/cloudtest/alibaba"
	"github.com/lanyard-dev/lanyard/cloudtest/aws"
	"github.com/lanyard-dev/lanyard/cloudtest/azure"
	"github.com/lanyard-dev/lanyard/cloudtest/fault"
	"github.com/lanyard-dev/lanyard/cloudtest/gcp"
	"github.com/lanyard-dev/lanyard/cloudtest/internal/must"
	"github.com/lanyard-dev/lanyard/cloudtest/internal/rig"
	"github.com/lanyard-dev/lanyard/cloudtest/journal"
	"github.com/lanyard-dev/lanyard/cloudtest/oidc"
)

// serviceCall is a request to a service. The service may refuse it.
type serviceCall struct {
	service, operation string
	method, target     string
	header             []string
}

// serviceCalls returns calls to all services of all clouds. The calls cover every kind of host and
// every protocol of each service.
func serviceCalls() []serviceCall {
	const form = "application/x-www-form-urlencoded"
	calls := []serviceCall{
		{aws.ServiceIAM, "GetRole", "POST", "https://iam.amazonaws.com/?Action=GetRole&Version=2010-05-08", []string{"Content-Type", form}},
		{aws.ServiceSTS, "GetCallerIdentity", "POST", "https://sts.amazonaws.com/?Action=GetCallerIdentity&Version=2011-06-15", []string{"Content-Type", form}},
		{aws.ServiceECR, "GetAuthorizationToken", "POST", "https://api.ecr." + region + ".amazonaws.com/", []string{
			"Content-Type", "application/x-amz-json-1.1", "X-Amz-Target", "AmazonEC2ContainerRegistry_V20150921.GetAuthorizationToken",
		}},
		{aws.ServiceECRPublic, "GetAuthorizationToken", "POST", "https://api.ecr-public.us-east-1.amazonaws.com/", []string{
			"Content-Type", "application/x-amz-json-1.1", "X-Amz-Target", "SpencerFrontendService.GetAuthorizationToken",
		}},
		{aws.ServiceRegistry, "Ping", "GET", "https://" + registryHost + "/v2/", nil},
		{aws.ServicePublicRegistry, "Ping", "GET", "https://public.ecr.aws/v2/", nil},
		{aws.ServiceS3, "GetObject", "GET", "https://s3.eu-west-1.amazonaws.com/some-bucket/key", nil},
		{aws.ServiceKMS, "Sign", "POST", "https://kms.eu-west-1.amazonaws.com/", []string{"Content-Type", "application/x-amz-json-1.1", "X-Amz-Target", "TrentService.Sign"}},
		{azure.ServiceEntra, "Token", "POST", "https://login.microsoftonline.com/common/oauth2/v2.0/token", []string{"Content-Type", form}},
		{azure.ServiceResourceManager, "ListSubscriptions", "GET", "https://management.azure.com/subscriptions?api-version=2019-11-01", nil},
		{azure.ServiceGraph, "ListApplications", "GET", "https://graph.microsoft.com/v1.0/applications", nil},
		{azure.ServiceRegistryTokens, "Exchange", "POST", "https://contoso.azurecr.io/oauth2/exchange", []string{"Content-Type", form}},
		{azure.ServiceRegistry, "Ping", "GET", "https://contoso.azurecr.io/v2/", nil},
		{azure.ServiceRegistry, "PullBlob", "GET", "https://contoso.westeurope.data.azurecr.io/v2/a/blobs/sha256:0", nil},
		{azure.ServiceBlob, "ReadBlob", "GET", "https://artifacts.blob.core.windows.net/tenant-a/b", nil},
		{azure.ServiceKeyVault, "Decrypt", "POST", "https://tenant-keys.vault.azure.net/keys/sops/decrypt?api-version=7.4", nil},
		{azure.ServiceIMDS, "ManagedIdentityToken", "GET", "http://169.254.169.254/metadata/identity/oauth2/token", nil},
		{gcp.ServiceSTS, "ExchangeToken", "POST", "https://sts.googleapis.com/v1/token", []string{"Content-Type", form}},
		{gcp.ServiceIAMCredentials, "GenerateAccessToken", "POST", "https://iamcredentials.googleapis.com/v1/projects/-/serviceAccounts/x:generateAccessToken", nil},
		{gcp.ServiceIAM, "CreateServiceAccount", "POST", "https://iam.googleapis.com/v1/projects/x/serviceAccounts", nil},
		{gcp.ServiceResourceManager, "GetProject", "GET", "https://cloudresourcemanager.googleapis.com/v1/projects/x", nil},
		{gcp.ServiceUsage, "BatchEnableServices", "POST", "https://serviceusage.googleapis.com/v1/projects/x/services:batchEnable", nil},
		{gcp.ServiceRegistryAPI, "GetIamPolicy", "GET", "https://artifactregistry.googleapis.com/v1/projects/x/locations/us/repositories/x:getIamPolicy", nil},
		{gcp.ServiceKMS, "Decrypt", "POST", "https://cloudkms.googleapis.com/v1/projects/x/locations/global/keyRings/x/cryptoKeys/x:decrypt", nil},
		{gcp.ServiceMetadata, "project/project-id", "GET", "http://metadata.google.internal/computeMetadata/v1/project/project-id", nil},
		{gcp.ServiceAccounts, "GetDocument", "GET", "https://accounts.google.com/.well-known/openid-configuration", nil},
		{gcp.ServiceRegistry, "Ping", "GET", "https://" + dockerHost + "/v2/", nil},
		{gcp.ServiceStorage, "storage.objects.list", "GET", "https://storage.googleapis.com/storage/v1/b/some-bucket/o", nil},
		{gcp.ServiceStorage, "storage.objects.get", "GET", "https://storage.googleapis.com/some-bucket/key", nil},
		{alibaba.ServiceSTS, "AssumeRoleWithOIDC", "POST", "https://sts.aliyuncs.com/?Action=AssumeRoleWithOIDC&Version=2015-04-01&Format=JSON", []string{"Content-Type", form}},
		{journal.ServiceHandler, "GET", "GET", clusterIssuer + "/keys", nil},
	}
	for _, name := range []string{"autoscaling", "ec2", "elasticloadbalancing"} {
		calls = append(calls, serviceCall{name, "DescribeTags", "POST", "https://" + name + "." + region + ".amazonaws.com/?Action=DescribeTags&Version=2011-01-01", []string{"Content-Type", form}})
	}
	for _, name := range []string{"events", "secretsmanager", "ssm", "tagging"} {
		calls = append(calls, serviceCall{name, "ListTags", "POST", "https://" + name + "." + region + ".amazonaws.com/", []string{
			"Content-Type", "application/x-amz-json-1.1", "X-Amz-Target", "Service_2011.ListTags",
		}})
	}
	return calls
}

func newFaultyCloud(t *testing.T) *cloudtest.Cloud {
	t.Helper()
	config := rig.AWSConfig()
	const directory, client = "72f988bf-86f1-41af-91ab-2d7cd011db47", "d6e4fc00-c5b2-4a72-9f84-6a92e3f06b08"
	config.Azure = azure.Config{
		Tenants: []azure.Tenant{{
			ID: directory, Applications: []azure.Application{{ClientID: client}},
			Registries: []azure.RegistryConfig{{Name: "contoso", DataEndpoints: []string{"westeurope"}}}, StorageAccounts: []azure.StorageAccountConfig{{Name: "artifacts"}},
			KeyVaults: []azure.KeyVaultConfig{{Name: "tenant-keys"}},
		}},
		ManagedIdentity: &azure.ManagedIdentity{Tenant: directory, ClientIDs: []string{client}},
	}
	config.GCP = gcp.Config{Projects: []gcp.Project{{ID: projectID, Number: projectNumber}}, Metadata: &gcp.Metadata{Project: projectID}}
	c, err := cloudtest.New(config)
	must.Succeed(t, err)
	t.Cleanup(func() { _ = c.Close() })
	issuer, err := oidc.NewIssuer(clusterIssuer, oidc.ES256)
	must.Succeed(t, err)
	must.Succeed(t, c.HandleIssuer(issuer))
	return c
}

// do makes the call over a new connection. The returned status is 0 if no answer came.
func (s serviceCall) do(t *testing.T, c *cloudtest.Cloud) (status int, header http.Header, body string) {
	t.Helper()
	transport := c.Transport()
	defer transport.CloseIdleConnections()
	r := rig.NewRequest(t, s.method, s.target, "", "")
	for i := 0; i < len(s.header); i += 2 {
		r.Header.Set(s.header[i], s.header[i+1])
	}
	res, err := transport.RoundTrip(r)
	if err != nil {
		return 0, http.Header{}, err.Error()
	}
	return res.StatusCode, res.Header, rig.ReadAll(t, res)
}

// TestFaultsOfAllServices checks every kind of fault at every service. A fault must affect only the
// operation that it names, and the journal must record it.
func TestFaultsOfAllServices(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newFaultyCloud(t)
		for _, s := range serviceCalls() {
			if status, _, body := s.do(t, c); status == 0 {
				t.Fatalf("%s %s, without a fault: %s", s.service, s.target, body)
			}
			for kind, statuses := range map[fault.Kind][]int{
				fault.Throttle: {400, 429, 503}, fault.Unavailable: {503}, fault.InternalFailure: {500}, fault.Malformed: {200}, fault.Drop: {0},
			} {
				f := fault.Fault{Service: s.service, Operation: s.operation, Kind: kind, Delay: time.Minute}
				if kind == fault.Throttle || kind == fault.Unavailable {
					f.RetryAfter = 7 * time.Second
				}
				id, err := c.Faults().Add(f)
				must.Succeed(t, err)
				start := time.Now()
				status, header, body := s.do(t, c)
				c.Faults().Remove(id)
				call := c.Journal().Calls(journal.Filter{After: c.Journal().Last() - 1})[0]
				if !slices.Contains(statuses, status) || time.Since(start) < time.Minute || (header.Get("Retry-After") == "7") != (f.RetryAfter != 0) {
					t.Errorf("%s %s, %s: HTTP %d %v %s", s.service, s.target, kind, status, header, body)
				}
				if kind == fault.Malformed && whole(header.Get("Content-Type"), body) {
					t.Errorf("%s %s, %s: %q", s.service, s.target, kind, body)
				}
				if call.Service != s.service || call.Operation != s.operation || call.Status != status || call.Fault != id || call.Granted() ||
					!strings.Contains(call.Reason, "an injected fault") {
					t.Errorf("%s %s, %s: journal %+v", s.service, s.target, kind, call)
				}
			}
			for _, f := range []fault.Fault{{Service: s.service, Kind: fault.Skew, Skew: 2 * time.Hour}, {Service: s.service, Operation: "Other", Kind: fault.Drop}} {
				if _, err := c.Faults().Add(f); err != nil {
					t.Fatal(err)
				}
			}
			status, header, body := s.do(t, c)
			if date, err := http.ParseTime(header.Get("Date")); err != nil || time.Until(date).Round(time.Minute) != 2*time.Hour {
				t.Errorf("%s %s, skewed: HTTP %d %v %s", s.service, s.target, status, header, body)
			}
			c.Faults().Clear()
			host := rig.NewRequest(t, http.MethodGet, s.target, "", "").URL.Hostname()
			if _, err := c.Faults().Add(fault.Fault{Host: host, Kind: fault.Refuse}); err != nil {
				t.Fatal(err)
			}
			if status, _, body := s.do(t, c); status != 0 || !strings.Contains(body, "an injected fault refuses connections") {
				t.Errorf("%s %s, refused: HTTP %d %s", s.service, s.target, status, body)
			}
			c.Faults().Clear()
		}
	})
}

// TestServices checks that serviceCalls has a call for every service except the proxy, and that all
// service names differ.
func TestServices(t *testing.T) {
	called := []string{journal.ServiceProxy}
	for _, s := range serviceCalls() {
		called = append(called, s.service)
	}
	slices.Sort(called)
	if names := slices.Sorted(slices.Values(cloudtest.Services())); !slices.Equal(names, slices.Compact(called)) {
		t.Errorf("services %q, called %q", names, slices.Compact(called))
	}
}

// TestFaultAnswers injects faults into each service and compares the answers with golden files.
func TestFaultAnswers(t *testing.T) {
	files := rig.Golden{Dir: filepath.Join("testdata", "faults"), Update: *update, Mask: func(s string) string { return changing.ReplaceAllString(s, "${2}…") }}
	synctest.Test(t, func(t *testing.T) {
		c := newFaultyCloud(t)
		transport := c.Transport()
		defer transport.CloseIdleConnections()
		for _, kind := range []fault.Kind{fault.Throttle, fault.Unavailable, fault.InternalFailure, fault.Malformed} {
			f := fault.Fault{Kind: kind}
			if kind == fault.Throttle {
				f.RetryAfter = 5 * time.Second
			}
			id, err := c.Faults().Add(f)
			must.Succeed(t, err)
			for _, s := range serviceCalls() {
				r := rig.NewRequest(t, s.method, s.target, "", "")
				for i := 0; i < len(s.header); i += 2 {
					r.Header.Set(s.header[i], s.header[i+1])
				}
				res, err := transport.RoundTrip(r)
				must.Succeed(t, err)
				files.Answer(t, fmt.Sprintf("%s-%s-%s", s.service, strings.NewReplacer("/", "-", ".", "-").Replace(s.operation), kind), res)
			}
			c.Faults().Remove(id)
		}
	})
	files.Complete(t)
}

// changing matches the parts that differ between answers: IDs and times.
var changing = regexp.MustCompile(`[0-9A-Fa-f]{8}(-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}|20[0-9-]{8}[T ][0-9:.]+Z|(<RequestId>|<HostId>)[^<]+`)

// whole reports whether the body of an answer is complete JSON or XML.
func whole(contentType, body string) bool {
	if strings.Contains(contentType, "json") {
		return json.Valid([]byte(body))
	}
	decoder := xml.NewDecoder(strings.NewReader(strings.TrimPrefix(body, "\uFEFF")))
	for {
		if _, err := decoder.Token(); err != nil {
			return errors.Is(err, io.EOF)
		}
	}
}
