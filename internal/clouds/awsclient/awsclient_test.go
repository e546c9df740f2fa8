package awsclient_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	awsmiddleware "github.com/aws/aws-sdk-go-v2/aws/middleware"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"
	elb "github.com/aws/aws-sdk-go-v2/service/elasticloadbalancing"
	elbv2 "github.com/aws/aws-sdk-go-v2/service/elasticloadbalancingv2"
	tagging "github.com/aws/aws-sdk-go-v2/service/resourcegroupstaggingapi"
	"github.com/aws/aws-sdk-go-v2/service/secretsmanager"
	"github.com/aws/smithy-go/middleware"
	smithyhttp "github.com/aws/smithy-go/transport/http"

	"github.com/lanyard-dev/lanyard/auth"
	"github.com/lanyard-dev/lanyard/auth/endpoint"
	cloudaws "github.com/lanyard-dev/lanyard/cloudtest/aws"
	"github.com/lanyard-dev/lanyard/cloudtest/journal"
	"github.com/lanyard-dev/lanyard/internal/clouds/awsclient"
	"github.com/lanyard-dev/lanyard/internal/identity/identitytest"
	"github.com/lanyard-dev/lanyard/internal/must"
)

// region differs from the provider's region, so a client can have this region only from the scope.
const region = "eu-central-1"

// clients are the AWS clients that a controller of clusters needs. For EC2, the field is a function
// that makes one call.
type clients struct {
	ec2     func(context.Context) (http.Header, error)
	elb     *elb.Client
	elbv2   *elbv2.Client
	secrets *secretsmanager.Client
	tagging *tagging.Client
}

func newClients(config awssdk.Config) clients {
	return clients{
		ec2: describeRegions(config), elb: elb.NewFromConfig(config), elbv2: elbv2.NewFromConfig(config),
		secrets: secretsmanager.NewFromConfig(config), tagging: tagging.NewFromConfig(config),
	}
}

// calls returns a function for each client, by the name of the service. The function makes one
// call, and returns the header of the answer.
func (c clients) calls() map[string]func(context.Context) (http.Header, error) {
	return map[string]func(context.Context) (http.Header, error){
		"EC2": c.ec2,
		"ELB": func(ctx context.Context) (http.Header, error) {
			out, err := c.elb.DescribeLoadBalancers(ctx, nil)
			return headerOf(valueOf(out).ResultMetadata), err
		},
		"ELBv2": func(ctx context.Context) (http.Header, error) {
			out, err := c.elbv2.DescribeLoadBalancers(ctx, nil)
			return headerOf(valueOf(out).ResultMetadata), err
		},
		"Secrets Manager": func(ctx context.Context) (http.Header, error) {
			out, err := c.secrets.ListSecrets(ctx, nil)
			return headerOf(valueOf(out).ResultMetadata), err
		},
		"Resource Groups Tagging": func(ctx context.Context) (http.Header, error) {
			out, err := c.tagging.GetResources(ctx, nil)
			return headerOf(valueOf(out).ResultMetadata), err
		},
	}
}

// describeRegions returns a function that calls DescribeRegions of EC2. The function signs its
// request as the SDK's clients do. It replaces the SDK's client of EC2, which takes minutes and
// gigabytes to compile.
func describeRegions(config awssdk.Config) func(context.Context) (http.Header, error) {
	return func(ctx context.Context) (http.Header, error) {
		creds, err := config.Credentials.Retrieve(ctx)
		if err != nil {
			return nil, err
		}
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://ec2."+config.Region+".amazonaws.com/?Action=DescribeRegions&Version=2016-11-15", nil)
		if err != nil {
			return nil, err
		}
		sum := sha256.Sum256(nil)
		if err := v4.NewSigner().SignHTTP(ctx, creds, r, hex.EncodeToString(sum[:]), "ec2", config.Region, time.Now()); err != nil {
			return nil, err
		}
		res, err := config.HTTPClient.Do(r)
		if err != nil {
			return nil, err
		}
		defer func() { _ = res.Body.Close() }()
		if res.StatusCode != http.StatusOK {
			return nil, errors.New(res.Status)
		}
		return res.Header, nil
	}
}

// headerOf returns the header of an answer, from the metadata that a client of the SDK returns.
func headerOf(of middleware.Metadata) http.Header {
	if answer, ok := awsmiddleware.GetRawResponse(of).(*smithyhttp.Response); ok {
		return answer.Header
	}
	return nil
}

// valueOf returns what p points to, or the zero value if p is nil.
func valueOf[T any](p *T) (value T) {
	if p != nil {
		value = *p
	}
	return value
}

// world is a local AWS. Objects in team-a may use the AWSClusterRoleIdentity named target. The
// AWS role of this identity has all permissions.
type world struct {
	*identitytest.World

	subject auth.Subject
	arn     string
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{World: identitytest.New(t)}
	w.Static("root", identitytest.Admits())
	w.arn = w.CloudRole(identitytest.Workload, "target", identitytest.Root, nil)
	err := w.Cloud.AWS().PutRole(identitytest.Workload, cloudaws.Role{
		Name:        "target",
		TrustPolicy: identitytest.Policy(map[string]any{"Effect": "Allow", "Principal": map[string]string{"AWS": identitytest.Root}, "Action": "sts:AssumeRole"}),
		Policies:    map[string]json.RawMessage{"all": identitytest.Policy(map[string]any{"Effect": "Allow", "Action": "*", "Resource": "*"})},
	})
	must.Succeed(t, err)
	w.subject = w.admit("team-a")
	return w
}

// admit lets only objects in the given namespace use the identity.
func (w *world) admit(namespace string) auth.Subject {
	return w.Role("target", identitytest.RoleSpec(w.arn, "root", identitytest.Admits(namespace)))
}

// scope returns the Scope of an object in team-a.
func (w *world) scope(t *testing.T, accountID string) awsclient.Scope {
	t.Helper()
	in, err := endpoint.ParseAWSRegion(region)
	must.Succeed(t, err)
	view := w.Identities.For("team-a")
	return awsclient.Scope{
		Provider: w.Provider, Region: in, AccountID: accountID, HTTPClient: &http.Client{Transport: w.Cloud.Transport()},
		Options: []auth.Option{auth.WithSubject(w.subject, view), auth.WithTenant("team-a"), auth.WithCache(w.Tokens, auth.InvolvedObject{})},
	}
}

// requests returns the number of requests that AWS got, without those for sessions.
func (w *world) requests() int {
	n := 0
	for _, call := range w.Cloud.Journal().Calls(journal.Filter{}) {
		if call.Service != cloudaws.ServiceSTS && call.Service != journal.ServiceProxy {
			n++
		}
	}
	return n
}

// TestClientsActAsTheIdentity checks that every client uses the scope's account, role and region,
// whatever the environment says. All clients share one session.
func TestClientsActAsTheIdentity(t *testing.T) {
	for name, value := range map[string]string{
		"AWS_ACCESS_KEY_ID": identitytest.KeyID, "AWS_SECRET_ACCESS_KEY": identitytest.SecretKey, "AWS_SESSION_TOKEN": "",
		"AWS_REGION": "us-east-1", "AWS_ENDPOINT_URL": "https://attacker.example", "AWS_PROFILE": "other",
	} {
		t.Setenv(name, value)
	}
	w := newWorld(t)
	config := w.scope(t, identitytest.Workload).Config()
	for name, call := range newClients(config).calls() {
		got, err := call(t.Context())
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if got.Get(cloudaws.HeaderCallerAccount) != identitytest.Workload || !strings.Contains(got.Get(cloudaws.HeaderCallerARN), ":assumed-role/target/") {
			t.Errorf("%s: %+v", name, got)
		}
	}
	calls := w.Cloud.Journal().Calls(journal.Filter{})
	if last := calls[len(calls)-1]; !strings.Contains(last.Host, "."+region+".") {
		t.Errorf("the last call went to %s", last.Host)
	}
	if n := w.Count("AssumeRole"); n != 1 {
		t.Errorf("%d sessions for five clients", n)
	}
}

// TestWithdrawnGrantStopsTheNextCall checks clients that have worked already. Once the grant is
// withdrawn, their calls fail without a request to AWS. When the grant is back, the calls succeed.
func TestWithdrawnGrantStopsTheNextCall(t *testing.T) {
	w := newWorld(t)
	calls := newClients(w.scope(t, identitytest.Workload).Config()).calls()
	for name, call := range calls {
		if _, err := call(t.Context()); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
	}
	before := w.requests()
	w.admit("team-b")
	for name, call := range calls {
		if _, err := call(t.Context()); auth.CodeOf(err) != auth.CodeNotGranted {
			t.Errorf("%s, without a grant: %v", name, err)
		}
	}
	if n := w.requests() - before; n != 0 {
		t.Errorf("AWS got %d requests without a grant", n)
	}
	w.admit("team-a")
	for name, call := range calls {
		if _, err := call(t.Context()); err != nil {
			t.Errorf("%s, with the grant again: %v", name, err)
		}
	}
}

// TestAnotherAccount checks that no request is signed with a session of an account other than the
// scope's account.
func TestAnotherAccount(t *testing.T) {
	w := newWorld(t)
	for name, call := range newClients(w.scope(t, identitytest.Management).Config()).calls() {
		_, err := call(t.Context())
		mismatch, ok := errors.AsType[*awsclient.AccountError](err)
		if !ok || mismatch.Want != identitytest.Management || mismatch.Got != identitytest.Workload {
			t.Errorf("%s: %v", name, err)
		}
	}
	if n := w.requests(); n != 0 {
		t.Errorf("AWS got %d requests", n)
	}
}
