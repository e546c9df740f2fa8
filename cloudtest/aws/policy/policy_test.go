package policy_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/lanyard-dev/lanyard/cloudtest/aws/policy"
	"github.com/lanyard-dev/lanyard/cloudtest/internal/must"
)

// wrap returns a document whose only statement has the given fields.
func wrap(statement string) string {
	return `{"Version":"2012-10-17","Statement":[{` + statement + `}]}`
}

const allowAll = `"Effect":"Allow","Action":"ecr:*","Resource":"*"`

func TestParseRefuses(t *testing.T) {
	const trust = `"Effect":"Allow","Principal":{"AWS":"123456789123"},"Action":"sts:AssumeRole"`
	tests := []struct {
		name string
		kind policy.Kind
		doc  string
		path string
	}{
		{"empty", policy.Permissions, ``, ""},
		{"not JSON", policy.Permissions, `{"Version"`, "Version"},
		{"two documents", policy.Permissions, wrap(allowAll) + `{}`, ""},
		{"list", policy.Permissions, `[]`, ""},
		{"null", policy.Permissions, `null`, ""},
		{"no version", policy.Permissions, `{"Statement":[{` + allowAll + `}]}`, "Version"},
		{"unknown version", policy.Permissions, strings.Replace(wrap(allowAll), "2012", "2013", 1), "Version"},
		{"no statement", policy.Permissions, `{"Version":"2012-10-17"}`, "Statement"},
		{"empty statements", policy.Permissions, `{"Version":"2012-10-17","Statement":[]}`, "Statement"},
		{"unknown element", policy.Permissions, `{"Version":"2012-10-17","Statement":[],"statement":[]}`, ""},
		{"version twice", policy.Permissions, `{"Version":"2012-10-17","Version":"2012-10-17","Statement":[{` + allowAll + `}]}`, ""},
		{"effect twice", policy.Permissions, wrap(allowAll + `,"Effect":"Deny"`), "Statement[0]"},
		{"effect twice by escape", policy.Permissions, wrap(allowAll + `,"\u0045ffect":"Deny"`), "Statement[0]"},
		{"effect in lower case", policy.Permissions, wrap(`"Effect":"allow","Action":"ecr:*","Resource":"*"`), "Statement[0].Effect"},
		{"key in lower case", policy.Permissions, wrap(`"effect":"Allow","Action":"ecr:*","Resource":"*"`), "Statement[0]"},
		{"no effect", policy.Permissions, wrap(`"Action":"ecr:*","Resource":"*"`), "Statement[0].Effect"},
		{"no action", policy.Permissions, wrap(`"Effect":"Allow","Resource":"*"`), "Statement[0].Action"},
		{"no resource", policy.Permissions, wrap(`"Effect":"Allow","Action":"ecr:*"`), "Statement[0].Resource"},
		{"empty action list", policy.Permissions, wrap(`"Effect":"Allow","Action":[],"Resource":"*"`), "Statement[0].Action"},
		{"action that is none", policy.Permissions, wrap(`"Effect":"Allow","Action":"BatchGetImage","Resource":"*"`), "Statement[0].Action"},
		{"number as action", policy.Permissions, wrap(`"Effect":"Allow","Action":[1],"Resource":"*"`), "Statement[0].Action"},
		{"resource that is none", policy.Permissions, wrap(`"Effect":"Allow","Action":"ecr:*","Resource":"repository/x"`), "Statement[0].Resource"},
		{"NotAction", policy.Permissions, wrap(`"Effect":"Allow","NotAction":"ecr:*","Resource":"*"`), "Statement[0]"},
		{"NotResource", policy.Permissions, wrap(`"Effect":"Allow","Action":"ecr:*","NotResource":"*"`), "Statement[0]"},
		{"principal in permissions", policy.Permissions, wrap(allowAll + `,"Principal":"*"`), "Statement[0]"},
		{"policy variable", policy.Permissions, wrap(`"Effect":"Allow","Action":"ecr:*","Resource":"arn:aws:ecr:*:*:repository/${aws:username}"`), "Statement[0].Resource"},
		{"Sid twice", policy.Permissions, `{"Version":"2012-10-17","Statement":[{"Sid":"a",` + allowAll + `},{"Sid":"a",` + allowAll + `}]}`, "Statement[1].Sid"},
		{"unknown operator", policy.Permissions, wrap(allowAll + `,"Condition":{"StringMatches":{"a:b":"c"}}`), "Statement[0].Condition.StringMatches"},
		{"operator in another case", policy.Permissions, wrap(allowAll + `,"Condition":{"stringEquals":{"a:b":"c"}}`), "Statement[0].Condition.stringEquals"},
		{"unknown set operator", policy.Permissions, wrap(allowAll + `,"Condition":{"ForNoValue:StringEquals":{"a:b":"c"}}`), "Statement[0].Condition.ForNoValue:StringEquals"},
		{"null condition", policy.Permissions, wrap(allowAll + `,"Condition":null`), "Statement[0].Condition"},
		{"operator without keys", policy.Permissions, wrap(allowAll + `,"Condition":{"StringEquals":{}}`), "Statement[0].Condition.StringEquals"},
		{"key without prefix", policy.Permissions, wrap(allowAll + `,"Condition":{"StringEquals":{"sub":"c"}}`), "Statement[0].Condition.StringEquals"},
		{"key without values", policy.Permissions, wrap(allowAll + `,"Condition":{"StringEquals":{"a:b":[]}}`), "Statement[0].Condition.StringEquals.a:b"},
		{"Bool that is none", policy.Permissions, wrap(allowAll + `,"Condition":{"Bool":{"a:b":"yes"}}`), "Statement[0].Condition.Bool.a:b"},
		{"date that is none", policy.Permissions, wrap(allowAll + `,"Condition":{"DateLessThan":{"a:b":"tomorrow"}}`), "Statement[0].Condition.DateLessThan.a:b"},
		{"global key that is not evaluated", policy.Permissions, wrap(allowAll + `,"Condition":{"StringNotEquals":{"aws:SourceIp":"10.0.0.1"}}`), "Statement[0].Condition.StringNotEquals.aws:SourceIp"},
		{"STS's key that is not evaluated", policy.Trust, wrap(trust + `,"Condition":{"StringEqualsIfExists":{"STS:AWSServiceName":"x"}}`), "Statement[0].Condition.StringEqualsIfExists.STS:AWSServiceName"},
		{"ECR's key that is not evaluated", policy.Permissions, wrap(allowAll + `,"Condition":{"StringNotLike":{"ecr:ResourceTag/a":"b"}}`), "Statement[0].Condition.StringNotLike.ecr:ResourceTag/a"},
		{"trust with resource", policy.Trust, wrap(trust + `,"Resource":"*"`), "Statement[0]"},
		{"trust without principal", policy.Trust, wrap(`"Effect":"Allow","Action":"sts:AssumeRole"`), "Statement[0].Principal"},
		{"trust for another service", policy.Trust, wrap(`"Effect":"Allow","Principal":"*","Action":"ecr:*"`), "Statement[0].Action"},
		{"trust for everything", policy.Trust, wrap(`"Effect":"Allow","Principal":"*","Action":"*"`), "Statement[0].Action"},
		{"bucket without principal", policy.Bucket, wrap(`"Effect":"Allow","Action":"s3:*","Resource":"*"`), "Statement[0].Principal"},
		{"bucket without resource", policy.Bucket, wrap(`"Effect":"Allow","Principal":"*","Action":"s3:*"`), "Statement[0].Resource"},
		{"bucket of another service", policy.Bucket, wrap(`"Effect":"Allow","Principal":"*","Action":"ecr:*","Resource":"*"`), "Statement[0].Action"},
		{"key without resource", policy.Key, wrap(`"Effect":"Allow","Principal":"*","Action":"kms:*"`), "Statement[0].Resource"},
		{"key of another service", policy.Key, wrap(`"Effect":"Allow","Principal":"*","Action":"s3:*","Resource":"*"`), "Statement[0].Action"},
		{"KMS's key that is not evaluated", policy.Permissions, wrap(allowAll + `,"Condition":{"StringNotLike":{"kms:ViaService":"b"}}`), "Statement[0].Condition.StringNotLike.kms:ViaService"},
		{"S3's key that is not evaluated", policy.Permissions, wrap(allowAll + `,"Condition":{"StringNotEquals":{"s3:ExistingObjectTag/a":"b"}}`), "Statement[0].Condition.StringNotEquals.s3:ExistingObjectTag/a"},
		{"NotPrincipal", policy.Trust, wrap(`"Effect":"Allow","NotPrincipal":"*","Action":"sts:AssumeRole"`), "Statement[0]"},
		{"principal of unknown type", policy.Trust, wrap(`"Effect":"Allow","Principal":{"Everyone":"*"},"Action":"sts:AssumeRole"`), "Statement[0].Principal"},
		{"no principal at all", policy.Trust, wrap(`"Effect":"Allow","Principal":{},"Action":"sts:AssumeRole"`), "Statement[0].Principal"},
		{"principal with a wildcard", policy.Trust, wrap(`"Effect":"Allow","Principal":{"AWS":"arn:aws:iam::123456789123:role/*"},"Action":"sts:AssumeRole"`), "Statement[0].Principal.AWS"},
		{"any federated principal", policy.Trust, wrap(`"Effect":"Allow","Principal":{"Federated":"*"},"Action":"sts:AssumeRole"`), "Statement[0].Principal.Federated"},
		{"principal that is none", policy.Trust, wrap(`"Effect":"Allow","Principal":{"AWS":"bob"},"Action":"sts:AssumeRole"`), "Statement[0].Principal.AWS"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := policy.Parse(tt.kind, []byte(tt.doc))
			var refusal *policy.Error
			if !errors.As(err, &refusal) {
				t.Fatalf("got %v, want a *policy.Error", err)
			}
			if refusal.Path != tt.path || refusal.Fix == "" {
				t.Errorf("at %q: %s; want path %q", refusal.Path, refusal.Fix, tt.path)
			}
		})
	}
}

// TestPartition checks that a document with an ARN of another partition is refused, as at AWS. A
// Deny statement with such an ARN would have no effect.
func TestPartition(t *testing.T) {
	tests := []struct {
		kind            policy.Kind
		statement, path string
	}{
		{policy.Trust, `"Principal":{"AWS":"arn:aws-cn:iam::123456789123:root"}`, "Statement[0].Principal.AWS"},
		{policy.Trust, `"Principal":{"AWS":["123456789123","arn:aws-us-gov:sts::123456789123:assumed-role/a/b"]}`, "Statement[0].Principal.AWS"},
		{policy.Trust, `"Principal":{"Federated":"arn:aws-cn:iam::123456789123:oidc-provider/issuer.example"}`, "Statement[0].Principal.Federated"},
		{policy.Permissions, `"Resource":["*","arn:aws-cn:ecr:*:*:*"]`, "Statement[0].Resource"},
		{policy.Permissions, `"Resource":["*","arn:aws*:ecr:*:*:*","arn:*:ecr:*:*:*","arn:aws:ecr:*:*:*"]`, ""},
		{policy.Resource, `"Principal":{"AWS":"arn:aws:iam::123456789123:root"}`, ""},
		{policy.Trust, `"Principal":"*"`, ""},
	}
	for _, tt := range tests {
		doc, err := policy.Parse(tt.kind, []byte(wrap(`"Effect":"Deny","Action":"sts:*",`+tt.statement)))
		must.Succeed(t, err)
		var refusal *policy.Error
		if err := doc.CheckPartition("aws"); errors.As(err, &refusal) != (tt.path != "") || refusal != nil && refusal.Path != tt.path {
			t.Errorf("%s: %v, want path %q", tt.statement, err, tt.path)
		}
	}
}

const repo = "arn:aws:ecr:eu-west-1:123456789123:repository/tenant-a/app"

func TestPermissions(t *testing.T) {
	statement := func(effect, action, resource string) string {
		return fmt.Sprintf(`{"Effect":%q,"Action":%q,"Resource":%q}`, effect, action, resource)
	}
	allow := func(action, resource string) string { return statement("Allow", action, resource) }
	tests := []struct {
		name       string
		statements []string
		want       policy.Effect
	}{
		{"exact", []string{allow("ecr:BatchGetImage", repo)}, policy.Allow},
		{"service in another case", []string{allow("ECR:BatchGetImage", repo)}, policy.Allow},
		{"operation in another case", []string{allow("ecr:batchgetimage", repo)}, policy.Allow},
		{"any action", []string{allow("*", repo)}, policy.Allow},
		{"prefix of action", []string{allow("ecr:Batch*", repo)}, policy.Allow},
		{"other action", []string{allow("ecr:PutImage", repo)}, policy.NoMatch},
		{"action without its wildcard", []string{allow("ecr:Batch", repo)}, policy.NoMatch},
		{"resource prefix without wildcard", []string{allow("ecr:*", strings.TrimSuffix(repo, "/app"))}, policy.NoMatch},
		{"resource with wildcard", []string{allow("ecr:*", strings.TrimSuffix(repo, "app")+"*")}, policy.Allow},
		{"question mark", []string{allow("ecr:*", strings.TrimSuffix(repo, "app")+"ap?")}, policy.Allow},
		{"question mark is one character", []string{allow("ecr:*", repo+"?")}, policy.NoMatch},
		{"star spans slashes", []string{allow("ecr:*", "arn:aws:ecr:eu-west-1:123456789123:repository/*")}, policy.Allow},
		{"star does not span segments", []string{allow("ecr:*", "arn:aws:*:*:repository/tenant-a/app:x"), allow("ecr:*", "arn:aws:ecr:*:123456789123:x*app")}, policy.NoMatch},
		{"other account", []string{allow("ecr:*", strings.Replace(repo, "123456789123", "210987654321", 1))}, policy.NoMatch},
		{"resources are case-sensitive", []string{allow("ecr:*", strings.Replace(repo, "tenant", "Tenant", 1))}, policy.NoMatch},
		{"deny wins, before", []string{statement("Deny", "ecr:*", "*"), allow("ecr:*", "*")}, policy.Deny},
		{"deny wins, after", []string{allow("ecr:*", "*"), statement("Deny", "ecr:*", "*")}, policy.Deny},
		{"deny of something else", []string{allow("ecr:*", "*"), statement("Deny", "ecr:PutImage", "*")}, policy.Allow},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			doc, err := policy.Parse(policy.Permissions, []byte(`{"Version":"2012-10-17","Statement":[`+strings.Join(tt.statements, ",")+`]}`))
			must.Succeed(t, err)
			if got := doc.Evaluate(policy.Request{Action: "ecr:BatchGetImage", Resource: repo}); got.Effect != tt.want {
				t.Errorf("%s (%s), want %s", got.Effect, got.Reason, tt.want)
			}
		})
	}
}

func TestConditions(t *testing.T) {
	tests := []struct {
		condition string   // operator, key and values as JSON
		values    []string // values of the key in the request; nil: the key is absent
		want      bool
	}{
		{`{"StringEquals":{"k:v":"a"}}`, []string{"a"}, true},
		{`{"StringEquals":{"K:V":"a"}}`, []string{"a"}, true},
		{`{"StringEquals":{"k:v":"a"}}`, []string{"A"}, false},
		{`{"StringEquals":{"k:v":"a*"}}`, []string{"ab"}, false},
		{`{"StringEquals":{"k:v":"a*"}}`, []string{"a*"}, true},
		{`{"StringEquals":{"k:v":["a","b"]}}`, []string{"b"}, true},
		{`{"StringEquals":{"k:v":"a"}}`, nil, false},
		{`{"StringEquals":{"k:v":"a","k:w":"a"}}`, []string{"a"}, false},
		{`{"StringEquals":{"k:v":"a"},"StringLike":{"k:v":"b"}}`, []string{"a"}, false},
		{`{"StringEqualsIfExists":{"k:v":"a"}}`, nil, true},
		{`{"StringEqualsIfExists":{"k:v":"a"}}`, []string{"b"}, false},
		{`{"StringEqualsIgnoreCase":{"k:v":"a"}}`, []string{"A"}, true},
		{`{"StringNotEquals":{"k:v":"a"}}`, []string{"b"}, true},
		{`{"StringNotEquals":{"k:v":["a","b"]}}`, []string{"b"}, false},
		{`{"StringNotEquals":{"k:v":"a"}}`, []string{"b", "a"}, false},
		{`{"StringNotEquals":{"k:v":"a"}}`, nil, true},
		{`{"StringLike":{"k:v":"system:serviceaccount:tenant-a:*"}}`, []string{"system:serviceaccount:tenant-a:x"}, true},
		{`{"StringLike":{"k:v":"system:serviceaccount:tenant-a:*"}}`, []string{"system:serviceaccount:tenant-ab:x"}, false},
		{`{"StringNotLike":{"k:v":"a*"}}`, []string{"ab"}, false},
		{`{"ForAnyValue:StringEquals":{"k:v":["a","b"]}}`, []string{"c", "b"}, true},
		{`{"ForAnyValue:StringEquals":{"k:v":["a","b"]}}`, []string{"c"}, false},
		{`{"ForAnyValue:StringEquals":{"k:v":"a"}}`, nil, false},
		{`{"ForAnyValue:StringNotEquals":{"k:v":"a"}}`, nil, false},
		{`{"ForAllValues:StringEquals":{"k:v":["a","b"]}}`, []string{"a", "b"}, true},
		{`{"ForAllValues:StringEquals":{"k:v":["a","b"]}}`, []string{"a", "c"}, false},
		{`{"ForAllValues:StringEquals":{"k:v":"a"}}`, nil, true},
		{`{"ArnLike":{"k:v":"arn:aws:iam::*:role/x"}}`, []string{"arn:aws:iam::1:role/x"}, true},
		{`{"ArnLike":{"k:v":"arn:aws:iam::*:role/x"}}`, []string{"arn:aws:iam::1:role/y:role/x"}, false},
		{`{"Bool":{"k:v":true}}`, []string{"true"}, true},
		{`{"Bool":{"k:v":"true"}}`, []string{"false"}, false},
		{`{"Null":{"k:v":"true"}}`, nil, true},
		{`{"Null":{"k:v":"true"}}`, []string{"a"}, false},
		{`{"Null":{"k:v":"false"}}`, []string{"a"}, true},
		{`{"DateLessThan":{"k:v":"2026-01-02T00:00:00Z"}}`, []string{"2026-01-01T00:00:00Z"}, true},
		{`{"DateLessThan":{"k:v":"2026-01-02T00:00:00Z"}}`, []string{"2026-01-03T00:00:00Z"}, false},
		{`{"DateGreaterThanEquals":{"k:v":1767225600}}`, []string{"2026-01-01T00:00:00Z"}, true},
		{`{"DateLessThan":{"k:v":"2026-01-02T00:00:00Z"}}`, []string{"soon"}, false},
	}
	for _, tt := range tests {
		t.Run(fmt.Sprintf("%s with %q", tt.condition, tt.values), func(t *testing.T) {
			doc, err := policy.Parse(policy.Permissions, []byte(wrap(allowAll+`,"Condition":`+tt.condition)))
			must.Succeed(t, err)
			ctx := policy.Context{}
			ctx.Set("k:V", tt.values...)
			got := doc.Evaluate(policy.Request{Action: "ecr:BatchGetImage", Resource: repo, Context: ctx})
			if (got.Effect == policy.Allow) != tt.want {
				t.Errorf("%s (%s), want %t", got.Effect, got.Reason, tt.want)
			}
			if got.Effect != policy.Allow && !strings.Contains(got.Reason, "condition") {
				t.Errorf("the reason %q names no condition", got.Reason)
			}
		})
	}
}

func TestPrincipals(t *testing.T) {
	const provider = "arn:aws:iam::123456789123:oidc-provider/issuer.example"
	session := policy.Principal{Account: "123456789123", ARNs: []string{
		"arn:aws:sts::123456789123:assumed-role/a/s", "arn:aws:iam::123456789123:role/a",
	}}
	federated := policy.Principal{Federated: provider}
	tests := []struct {
		name, principal string
		who             policy.Principal
		want            policy.Effect
		byAccount       bool
	}{
		{"role", `{"AWS":"arn:aws:iam::123456789123:role/a"}`, session, policy.Allow, false},
		{"session", `{"AWS":"arn:aws:sts::123456789123:assumed-role/a/s"}`, session, policy.Allow, false},
		{"other session", `{"AWS":"arn:aws:sts::123456789123:assumed-role/a/t"}`, session, policy.NoMatch, false},
		{"one of several", `{"AWS":["210987654321","arn:aws:iam::123456789123:role/a"]}`, session, policy.Allow, false},
		{"account", `{"AWS":"123456789123"}`, session, policy.Allow, true},
		{"root", `{"AWS":"arn:aws:iam::123456789123:root"}`, session, policy.Allow, true},
		{"other account", `{"AWS":"210987654321"}`, session, policy.NoMatch, false},
		{"everybody", `"*"`, session, policy.Allow, true},
		{"every AWS principal", `{"AWS":"*"}`, session, policy.Allow, true},
		{"service", `{"Service":"ec2.amazonaws.com"}`, session, policy.NoMatch, false},
		{"provider, for a session", `{"Federated":"` + provider + `"}`, session, policy.NoMatch, false},
		{"provider", `{"Federated":"` + provider + `"}`, federated, policy.Allow, false},
		{"other provider", `{"Federated":"` + provider + `x"}`, federated, policy.NoMatch, false},
		{"everybody does not mean tokens", `"*"`, federated, policy.NoMatch, false},
		{"nobody", `{"AWS":"123456789123"}`, policy.Principal{}, policy.NoMatch, false},
		{"everybody, for nobody", `"*"`, policy.Principal{}, policy.NoMatch, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			doc, err := policy.Parse(policy.Trust, []byte(wrap(`"Effect":"Allow","Action":"sts:*","Principal":`+tt.principal)))
			must.Succeed(t, err)
			got := doc.Evaluate(policy.Request{Action: "sts:AssumeRole", Principal: tt.who})
			if got.Effect != tt.want || got.ByAccount != tt.byAccount {
				t.Errorf("%s, by account %t (%s); want %s, %t", got.Effect, got.ByAccount, got.Reason, tt.want, tt.byAccount)
			}
		})
	}
	deny, err := policy.Parse(policy.Trust, []byte(wrap(`"Effect":"Deny","Action":"sts:*","Principal":"*"`)))
	must.Succeed(t, err)
	for _, who := range []policy.Principal{session, federated} {
		if got := deny.Evaluate(policy.Request{Action: "sts:AssumeRole", Principal: who}); got.Effect != policy.Deny {
			t.Errorf("deny everybody: %s for %+v", got.Effect, who)
		}
	}
}

func TestZeroValuesGrantNothing(t *testing.T) {
	var zero policy.Document
	if got := zero.Evaluate(policy.Request{Action: "ecr:BatchGetImage", Resource: repo}); got.Effect != policy.NoMatch {
		t.Errorf("zero document: %s", got.Effect)
	}
	all, err := policy.Parse(policy.Permissions, []byte(wrap(`"Effect":"Allow","Action":"*","Resource":"*"`)))
	must.Succeed(t, err)
	if got := all.Evaluate(policy.Request{}); got.Effect != policy.NoMatch {
		t.Errorf("zero request: %s", got.Effect)
	}
	if got := policy.EvaluateAll(nil, policy.Request{Action: "ecr:BatchGetImage", Resource: repo}); got.Effect != policy.NoMatch {
		t.Errorf("no documents: %s", got.Effect)
	}
}

// TestBucketPolicies checks that a bucket's policy allows a request only if both the principal and
// the resource match.
func TestBucketPolicies(t *testing.T) {
	const object = "arn:aws:s3:::my-bucket/a"
	doc, err := policy.Parse(policy.Bucket, []byte(wrap(`"Effect":"Allow","Principal":{"AWS":"arn:aws:iam::123456789123:role/a"},"Action":"s3:GetObject","Resource":"arn:aws:s3:::my-bucket/*"`)))
	must.Succeed(t, err)
	role := func(name string) policy.Principal {
		return policy.Principal{Account: "123456789123", ARNs: []string{"arn:aws:iam::123456789123:role/" + name}}
	}
	for name, tt := range map[string]struct {
		request policy.Request
		want    policy.Effect
	}{
		"both":             {policy.Request{Principal: role("a"), Action: "s3:GetObject", Resource: object}, policy.Allow},
		"another role":     {policy.Request{Principal: role("b"), Action: "s3:GetObject", Resource: object}, policy.NoMatch},
		"the bucket":       {policy.Request{Principal: role("a"), Action: "s3:GetObject", Resource: "arn:aws:s3:::my-bucket"}, policy.NoMatch},
		"another bucket":   {policy.Request{Principal: role("a"), Action: "s3:GetObject", Resource: "arn:aws:s3:::my-bucketb/a"}, policy.NoMatch},
		"another action":   {policy.Request{Principal: role("a"), Action: "s3:PutObject", Resource: object}, policy.NoMatch},
		"without resource": {policy.Request{Principal: role("a"), Action: "s3:GetObject"}, policy.NoMatch},
	} {
		if got := doc.Evaluate(tt.request); got.Effect != tt.want {
			t.Errorf("%s: %s (%s), want %s", name, got.Effect, got.Reason, tt.want)
		}
	}
	for bucket, want := range map[string]bool{"my-bucket": true, "my-bucke": false, "my-bucketb": false} {
		if err := doc.CheckBucket("arn:aws:s3:::" + bucket); (err == nil) != want {
			t.Errorf("policy of %s: %v", bucket, err)
		}
	}
}

// FuzzPattern checks that a pattern without wildcards matches only itself. It also replaces a
// pattern's wildcards with text, and checks that the pattern matches the result.
func FuzzPattern(f *testing.F) {
	f.Add("system:serviceaccount:a:b", "system:serviceaccount:a:bb")
	f.Add("a*b", "axxb")
	f.Add("*a*a*a*a*b", "aaaaaaaaaaaaaaaaaaaaaaaaaaaa")
	f.Add("a?", "a")
	f.Fuzz(func(t *testing.T, pattern, value string) {
		encoded, err := json.Marshal(pattern)
		must.Succeed(t, err)
		doc, err := policy.Parse(policy.Permissions, []byte(wrap(allowAll+`,"Condition":{"StringLike":{"k:v":`+string(encoded)+`}}`)))
		if err != nil {
			return
		}
		// same is the pattern as it stands in the policy document doc. If pattern has invalid
		// UTF-8, same differs from pattern, because json.Marshal replaced the invalid bytes.
		var same string
		must.Succeed(t, json.Unmarshal(encoded, &same))
		matches := func(v string) bool {
			ctx := policy.Context{}
			ctx.Set("k:v", v)
			return doc.Evaluate(policy.Request{Action: "ecr:BatchGetImage", Resource: repo, Context: ctx}).Effect == policy.Allow
		}
		wild := strings.ContainsAny(same, "*?")
		if !wild && matches(value) != (value == same) {
			t.Errorf("%q matches %q: %t", same, value, matches(value))
		}
		if !matches(same) {
			t.Errorf("%q does not match itself", same)
		}
		if filled := strings.ReplaceAll(strings.ReplaceAll(same, "*", value), "?", "x"); !matches(filled) {
			t.Errorf("%q does not match %q", same, filled)
		}
	})
}

// FuzzParse checks that a parsed document can be written and parsed again, and then gives the same
// decisions. If Parse fails, its error must be a [*policy.Error].
func FuzzParse(f *testing.F) {
	f.Add([]byte(wrap(allowAll)))
	f.Add([]byte(wrap(allowAll + `,"Condition":{"StringEquals":{"a:b":["c"]}}`)))
	f.Add([]byte(wrap(allowAll + `,"Effect":"Deny"`)))
	f.Fuzz(func(t *testing.T, data []byte) {
		doc, err := policy.Parse(policy.Permissions, data)
		if err != nil {
			if _, ok := errors.AsType[*policy.Error](err); !ok {
				t.Fatalf("error of type %T", err)
			}
			return
		}
		written, err := json.Marshal(doc)
		must.Succeed(t, err)
		again, err := policy.Parse(policy.Permissions, written)
		if err != nil {
			t.Fatalf("%s: %v", written, err)
		}
		for _, action := range []string{"ecr:BatchGetImage", "sts:AssumeRole", ""} {
			r := policy.Request{Action: action, Resource: repo}
			if a, b := doc.Evaluate(r), again.Evaluate(r); a != b {
				t.Errorf("%+v became %+v", a, b)
			}
		}
	})
}
