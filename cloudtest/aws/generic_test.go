package aws_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"encoding/xml"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	awsmiddleware "github.com/aws/aws-sdk-go-v2/aws/middleware"
	"github.com/aws/aws-sdk-go-v2/aws/protocol/ec2query"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"
	"github.com/aws/aws-sdk-go-v2/credentials"
	elb "github.com/aws/aws-sdk-go-v2/service/elasticloadbalancing"
	elbv2 "github.com/aws/aws-sdk-go-v2/service/elasticloadbalancingv2"
	tagging "github.com/aws/aws-sdk-go-v2/service/resourcegroupstaggingapi"
	"github.com/aws/aws-sdk-go-v2/service/secretsmanager"
	"github.com/aws/aws-sdk-go-v2/service/sts"
	"github.com/aws/smithy-go"
	"github.com/aws/smithy-go/middleware"
	smithyhttp "github.com/aws/smithy-go/transport/http"
	"github.com/google/go-cmp/cmp"

	"github.com/lanyard-dev/lanyard/cloudtest/aws"
	"github.com/lanyard-dev/lanyard/cloudtest/fault"
	"github.com/lanyard-dev/lanyard/cloudtest/internal/must"
	"github.com/lanyard-dev/lanyard/cloudtest/internal/rig"
	"github.com/lanyard-dev/lanyard/cloudtest/journal"
)

// genericCall is a call to a generic service with the official client. The function do makes the
// call, and returns the header of the answer.
type genericCall struct {
	client, service, action string
	do                      func(context.Context, awssdk.Config) (http.Header, error)
}

func genericCalls() []genericCall {
	return []genericCall{
		{"EC2", "ec2", "ec2:DescribeRegions", describeRegions},
		{"ELB", "elasticloadbalancing", "elasticloadbalancing:DescribeLoadBalancers", func(ctx context.Context, config awssdk.Config) (http.Header, error) {
			out, err := elb.NewFromConfig(config).DescribeLoadBalancers(ctx, nil)
			return headerOf(valueOf(out).ResultMetadata), err
		}},
		{"ELBv2", "elasticloadbalancing", "elasticloadbalancing:DescribeLoadBalancers", func(ctx context.Context, config awssdk.Config) (http.Header, error) {
			out, err := elbv2.NewFromConfig(config).DescribeLoadBalancers(ctx, nil)
			return headerOf(valueOf(out).ResultMetadata), err
		}},
		{"Secrets Manager", "secretsmanager", "secretsmanager:ListSecrets", func(ctx context.Context, config awssdk.Config) (http.Header, error) {
			out, err := secretsmanager.NewFromConfig(config).ListSecrets(ctx, nil)
			return headerOf(valueOf(out).ResultMetadata), err
		}},
		{"Resource Groups Tagging", "tagging", "tag:GetResources", func(ctx context.Context, config awssdk.Config) (http.Header, error) {
			out, err := tagging.NewFromConfig(config).GetResources(ctx, nil)
			return headerOf(valueOf(out).ResultMetadata), err
		}},
	}
}

// valueOf returns the value that p points to, or the zero value for nil.
func valueOf[T any](p *T) (value T) {
	if p != nil {
		value = *p
	}
	return value
}

// headerOf returns the header of an answer, from the metadata of an SDK's result.
func headerOf(of middleware.Metadata) http.Header {
	if answer, ok := awsmiddleware.GetRawResponse(of).(*smithyhttp.Response); ok {
		return answer.Header
	}
	return nil
}

// describeRegions calls EC2 with the SDK's signer and the SDK's parser of EC2's errors. It avoids
// the SDK's client of EC2, which takes minutes and gigabytes to compile.
func describeRegions(ctx context.Context, config awssdk.Config) (http.Header, error) {
	const form = "Action=DescribeRegions&Version=2016-11-15"
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, "https://ec2."+config.Region+".amazonaws.com/", strings.NewReader(form))
	if err != nil {
		return nil, err
	}
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	if _, anonymous := config.Credentials.(awssdk.AnonymousCredentials); !anonymous {
		creds, err := config.Credentials.Retrieve(ctx)
		if err != nil {
			return nil, err
		}
		sum := sha256.Sum256([]byte(form))
		if err := v4.NewSigner().SignHTTP(ctx, creds, r, hex.EncodeToString(sum[:]), "ec2", config.Region, time.Now()); err != nil {
			return nil, err
		}
	}
	res, err := config.HTTPClient.Do(r)
	if err != nil {
		return nil, err
	}
	defer func() { _ = res.Body.Close() }()
	if res.StatusCode != http.StatusOK {
		refusal, err := ec2query.GetErrorResponseComponents(res.Body)
		if err == nil {
			err = &smithy.GenericAPIError{Code: refusal.Code, Message: refusal.Message}
		}
		return nil, &smithyhttp.ResponseError{Response: &smithyhttp.Response{Response: res}, Err: err}
	}
	var answer struct {
		XMLName   xml.Name `xml:"http://ec2.amazonaws.com/doc/2016-11-15/ DescribeRegionsResponse"`
		RequestID string   `xml:"requestId"`
	}
	if err := xml.NewDecoder(res.Body).Decode(&answer); err != nil || answer.RequestID == "" {
		return nil, fmt.Errorf("answer %+v: %w", answer, err)
	}
	return res.Header, nil
}

// clientConfig returns the configuration of a client for any service.
func clientConfig(transport http.RoundTripper, creds awssdk.CredentialsProvider) awssdk.Config {
	return awssdk.Config{
		Region: region, Credentials: creds, HTTPClient: &http.Client{Transport: transport},
		Retryer: func() awssdk.Retryer { return awssdk.NopRetryer{} },
	}
}

// genericRole makes a role that may call all of genericCalls, and assumes it as tenant A.
func genericRole(t *testing.T, w *world) awssdk.CredentialsProvider {
	t.Helper()
	var actions []string
	for _, call := range genericCalls() {
		actions = append(actions, call.action)
	}
	list, err := json.Marshal(actions)
	must.Succeed(t, err)
	return roleWith(t, w, `{"Effect":"Allow","Action":`+string(list)+`,"Resource":"*"},{"Effect":"Allow","Action":"sts:AssumeRole","Resource":"*"}`)
}

// TestGenericServices: the answers to the clients of all protocols name the caller. The journal
// names the same caller.
func TestGenericServices(t *testing.T) {
	w := newWorld(t)
	creds := genericRole(t, w)
	for _, call := range genericCalls() {
		for name, transport := range map[string]http.RoundTripper{"in process": w.Transport(), "through the proxy": rig.Proxied(t, w.Cloud)} {
			for arn, creds := range map[string]awssdk.CredentialsProvider{
				"arn:aws:sts::" + account + ":assumed-role/keys/test": creds,
				"arn:aws:iam::" + account + ":user/pusher":            pusher(),
			} {
				got, err := call.do(t.Context(), clientConfig(transport, creds))
				if err != nil {
					t.Fatalf("%s, %s: %v", call.client, name, err)
				}
				if got.Get(aws.HeaderCallerARN) != arn || got.Get(aws.HeaderCallerAccount) != account {
					t.Errorf("%s, %s: answer %+v", call.client, name, got)
				}
				last := w.Journal().Calls(journal.Filter{Service: call.service})
				_, operation, _ := strings.Cut(call.action, ":")
				if made := last[len(last)-1]; made.Principal != arn || made.Operation != operation || !made.Granted() {
					t.Errorf("%s, %s: journal %+v", call.client, name, made)
				}
			}
		}
	}
}

// inEachProtocol returns the expected outcome of each service, given the outcome in each protocol.
func inEachProtocol(ec2, query, inJSON outcome) map[string]outcome {
	return map[string]outcome{"ec2": ec2, "elasticloadbalancing": query, "secretsmanager": inJSON, "tagging": inJSON}
}

// TestGenericRefusals: generic services refuse what AWS refuses, with the codes of each protocol.
func TestGenericRefusals(t *testing.T) {
	unproved := outcome{"AuthFailure", 401}
	mismatch := inEachProtocol(unproved, outcome{"SignatureDoesNotMatch", 403}, outcome{"InvalidSignatureException", 400})
	unknown := inEachProtocol(unproved, outcome{"InvalidClientTokenId", 403}, outcome{"UnrecognizedClientException", 400})
	denied := inEachProtocol(outcome{"UnauthorizedOperation", 403}, outcome{"AccessDenied", 403}, outcome{"AccessDeniedException", 400})
	session := func(change func(*awssdk.Credentials)) func(*testing.T, *world, awssdk.CredentialsProvider) awssdk.CredentialsProvider {
		return func(t *testing.T, _ *world, of awssdk.CredentialsProvider) awssdk.CredentialsProvider {
			t.Helper()
			c, err := of.Retrieve(t.Context())
			must.Succeed(t, err)
			change(&c)
			return credentials.StaticCredentialsProvider{Value: c}
		}
	}
	for _, tt := range []struct {
		name   string
		creds  func(*testing.T, *world, awssdk.CredentialsProvider) awssdk.CredentialsProvider // nil for the role's own credentials
		change func(*http.Request)                                                             // changes the signed request
		fault  fault.Fault
		want   map[string]outcome
		reason string
	}{
		{name: "wrong secret", creds: session(func(c *awssdk.Credentials) { c.SecretAccessKey += "x" }), want: mismatch, reason: "another secret"},
		{name: "unknown session", creds: session(func(c *awssdk.Credentials) { c.AccessKeyID = "ASIANOBODYNOBODYNOBO" }), want: unknown, reason: "no such access key"},
		{name: "no session token", creds: session(func(c *awssdk.Credentials) { c.SessionToken = "" }), want: unknown, reason: "session token is missing"},
		{name: "another session's token", creds: session(func(c *awssdk.Credentials) { c.SessionToken += "x" }), want: unknown, reason: "not the access key's"},
		{
			name: "no signature", want: inEachProtocol(outcome{"MissingAuthenticationToken", 403}, outcome{"MissingAuthenticationToken", 403}, outcome{"MissingAuthenticationTokenException", 400}),
			creds: func(*testing.T, *world, awssdk.CredentialsProvider) awssdk.CredentialsProvider {
				return awssdk.AnonymousCredentials{}
			},
		},
		{name: "signed for another region", change: func(r *http.Request) {
			r.URL.Host, r.Host = strings.Replace(r.URL.Host, region, "eu-central-1", 1), ""
		}, want: mismatch, reason: "signature is for region eu-west-1"},
		{name: "signed for another service", change: func(r *http.Request) {
			name, _, _ := strings.Cut(r.URL.Host, ".")
			r.Header.Set("Authorization", strings.Replace(r.Header.Get("Authorization"), "/"+name+"/", "/sts/", 1))
		}, want: mismatch, reason: "signature is for service sts"},
		{name: "another body", change: func(r *http.Request) {
			r.Body, r.ContentLength = readCloser{strings.NewReader("{}       ")}, 9
			if strings.HasPrefix(r.Header.Get("Content-Type"), "application/x-www") {
				r.Body, r.ContentLength = readCloser{strings.NewReader("Action=DescribeX&Version=2016-11-15")}, 35
			}
		}, want: mismatch},
		{name: "late", fault: fault.Fault{Kind: fault.Skew, Skew: 16 * time.Minute}, want: mismatch, reason: "Signature expired"},
		{name: "early", fault: fault.Fault{Kind: fault.Skew, Skew: -6 * time.Minute}, want: mismatch, reason: "not yet current"},
		{name: "role without the permission", creds: func(t *testing.T, w *world, _ awssdk.CredentialsProvider) awssdk.CredentialsProvider {
			t.Helper()
			return w.assume(t, roleA, subjectA)
		}, want: denied, reason: "no statement"},
		{name: "session policy that permits something else", creds: func(t *testing.T, w *world, _ awssdk.CredentialsProvider) awssdk.CredentialsProvider {
			t.Helper()
			role, token := "arn:aws:iam::"+account+":role/keys", w.Mint(t, subjectA)
			out, err := stsClient(w.Transport(), nil).AssumeRoleWithWebIdentity(t.Context(), &sts.AssumeRoleWithWebIdentityInput{
				RoleArn: &role, RoleSessionName: awssdk.String("test"), WebIdentityToken: &token,
				Policy: awssdk.String(`{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Action":"s3:*","Resource":"*"}]}`),
			})
			must.Succeed(t, err)
			return static(out.Credentials)
		}, want: denied, reason: "session policy"},
		{name: "role that was deleted", creds: func(t *testing.T, w *world, of awssdk.CredentialsProvider) awssdk.CredentialsProvider {
			t.Helper()
			must.Succeed(t, w.AWS().DeleteRole(account, "keys"))
			return of
		}, want: unknown, reason: "role was deleted"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t)
			creds := genericRole(t, w)
			if tt.creds != nil {
				creds = tt.creds(t, w, creds)
			}
			transport := http.RoundTripper(w.Transport())
			if tt.change != nil {
				transport = tamper{transport, tt.change}
			}
			if tt.fault.Kind != fault.None {
				if _, err := w.Faults().Add(tt.fault); err != nil {
					t.Fatal(err)
				}
			}
			for _, call := range genericCalls() {
				_, err := call.do(t.Context(), clientConfig(transport, creds))
				if diff := cmp.Diff(tt.want[call.service], outcomeOf(err)); diff != "" {
					t.Errorf("%s (-want +got):\n%s\n%v", call.client, diff, err)
				}
				calls := w.Journal().Calls(journal.Filter{Service: call.service})
				if last := calls[len(calls)-1]; last.Granted() || !strings.Contains(last.Reason, tt.reason) {
					t.Errorf("%s: journal %+v, want reason %q", call.client, last, tt.reason)
				}
			}
		})
	}
}

// TestGenericSessionEnds: a session that has ended is refused.
func TestGenericSessionEnds(t *testing.T) {
	want := inEachProtocol(outcome{"RequestExpired", 400}, outcome{"ExpiredToken", 403}, outcome{"ExpiredTokenException", 400})
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		transport := w.Transport()
		defer transport.CloseIdleConnections()
		c, err := genericRole(t, w).Retrieve(t.Context())
		must.Succeed(t, err)
		config := clientConfig(transport, credentials.NewStaticCredentialsProvider(c.AccessKeyID, c.SecretAccessKey, c.SessionToken))
		time.Sleep(time.Hour - time.Minute)
		for _, call := range genericCalls() {
			if _, err := call.do(t.Context(), config); err != nil {
				t.Errorf("%s, a minute before its end: %v", call.client, err)
			}
		}
		time.Sleep(time.Minute)
		for _, call := range genericCalls() {
			_, err := call.do(t.Context(), config)
			if diff := cmp.Diff(want[call.service], outcomeOf(err)); diff != "" {
				t.Errorf("%s (-want +got):\n%s", call.client, diff)
			}
		}
	})
}

// TestGenericRequests: malformed requests are refused before the caller is authenticated.
func TestGenericRequests(t *testing.T) {
	const form, inJSON = "application/x-www-form-urlencoded", "application/x-amz-json-1.1"
	w := newWorld(t)
	for _, tt := range []struct{ url, media, target, body, code string }{
		{"https://ec2.eu-west-1.amazonaws.com/", form, "", "Version=2016-11-15", "<Code>MissingAction</Code>"},
		{"https://ec2.eu-west-1.amazonaws.com/", form, "", "Action=Describe%3CRegions&Version=2016-11-15", "<Code>InvalidAction</Code>"},
		{"https://ec2.eu-west-1.amazonaws.com/", form, "", "Action=DescribeRegions&Version=1", "<Code>InvalidAction</Code>"},
		{"https://ec2.eu-west-1.amazonaws.com/", form, "", "Action=DescribeRegions&Version=2016-11-15", "<Code>MissingAuthenticationToken</Code>"},
		{"https://elasticloadbalancing.eu-west-1.amazonaws.com/x", form, "", "Action=DescribeTags&Version=2015-12-01", "<Code>UnknownOperationException</Code>"},
		{"https://ssm.eu-west-1.amazonaws.com/", inJSON, "GetParameter", "{}", `"UnknownOperationException"`},
		{"https://ssm.eu-west-1.amazonaws.com/", form, "AmazonSSM.GetParameter", "{}", `"UnknownOperationException"`},
		{"https://ssm.eu-west-1.amazonaws.com/", inJSON, "AmazonSSM.GetParameter", "{", `"SerializationException"`},
		{"https://events.eu-west-1.amazonaws.com/", inJSON, "AWSEvents.PutEvents", "{}", `"MissingAuthenticationTokenException"`},
	} {
		r := rig.NewRequest(t, http.MethodPost, tt.url, tt.media, tt.body)
		if tt.target != "" {
			r.Header.Set("X-Amz-Target", tt.target)
		}
		res, err := w.Client().Do(r)
		must.Succeed(t, err)
		if body := rig.ReadAll(t, res); !strings.Contains(body, tt.code) {
			t.Errorf("%s %s %s: %s", tt.url, tt.target, tt.body, body)
		}
	}
}
