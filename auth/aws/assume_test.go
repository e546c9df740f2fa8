package aws_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lanyard-dev/lanyard/auth"
	"github.com/lanyard-dev/lanyard/auth/aws"
	"github.com/lanyard-dev/lanyard/auth/internal/rig"
	cloudaws "github.com/lanyard-dev/lanyard/cloudtest/aws"
	"github.com/lanyard-dev/lanyard/cloudtest/fault"
)

const (
	rootKey    = "AKIAROOTROOTROOTROOT"
	rootSecret = "root-secret-root-secret"
)

// lender is a Prover of one account. Its proofs come from source() and are sessions or keys.
type lender struct {
	account auth.Account
	source  func(region string) (auth.Proof, error)
}

func (l lender) Lookup(context.Context, auth.Subject) (auth.Account, error) { return l.account, nil }
func (l lender) Subscribe(func(auth.Subject))                               {}
func (l lender) Read(context.Context, auth.Subject) (auth.Account, error)   { return l.account, nil }

func (l lender) Prove(_ context.Context, _ auth.Account, request auth.ProofRequest) (auth.Proof, error) {
	if request.Form != auth.FormToken || len(request.Audiences) > 0 {
		return nil, errors.New("asked for another form")
	}
	return l.source(request.STSRegion)
}

// identityOf returns a cluster identity that requests a session with the parameters in request.
func identityOf(t *testing.T, name string, request aws.SessionRequest) auth.Account {
	t.Helper()
	subject, err := auth.ClusterIdentity("AWSClusterRoleIdentity", name)
	rig.Must(t, err)
	attributes, err := request.Attributes()
	rig.Must(t, err)
	return auth.Account{Subject: subject, UID: "uid-of-" + name, Attributes: attributes, Fingerprint: auth.Fingerprint(attributes)}
}

func keys(string) (auth.Proof, error) {
	return aws.StaticToken(auth.NewSecret(rootKey), auth.NewSecret(rootSecret), auth.Secret{}), nil
}

func assume(t *testing.T, w *world, account auth.Account, source func(string) (auth.Proof, error), more ...auth.Option) (*aws.Token, error) {
	t.Helper()
	l := lender{account, source}
	token, err := auth.GetToken(t.Context(), w.aws, append([]auth.Option{auth.WithSubject(account.Subject, l)}, more...)...)
	if err != nil {
		return nil, err
	}
	return token.(*aws.Token), nil
}

// chainWorld returns a world with the user root and a role. The role trusts its account, so root
// and the role itself may assume the role.
func chainWorld(t *testing.T) (w *world, roleARN string) {
	t.Helper()
	w = newWorld(t)
	rig.Must(t, w.Cloud.AWS().PutUser(accountID, cloudaws.User{
		Name: "root", AccessKeys: []cloudaws.AccessKey{{ID: rootKey, Secret: rootSecret}},
		Policies: policiesOf(map[string]any{"Effect": "Allow", "Action": "sts:AssumeRole", "Resource": "*"}),
	}))
	rig.Must(t, w.Cloud.AWS().PutRole(accountID, cloudaws.Role{
		Name: "target", MaxSessionDuration: 43200,
		TrustPolicy: policy(map[string]any{"Effect": "Allow", "Principal": map[string]any{"AWS": accountID}, "Action": "sts:AssumeRole"}),
		Policies:    policiesOf(map[string]any{"Effect": "Allow", "Action": "sts:AssumeRole", "Resource": "*"}),
	}))
	return w, "arn:aws:iam::" + accountID + ":role/target"
}

func policiesOf(statement map[string]any) map[string]json.RawMessage {
	return map[string]json.RawMessage{"all": policy(statement)}
}

// TestAssumeRoleWithASession gets a session with static keys, and then another session with the
// first session. It checks the identity and the lifetime of each token.
func TestAssumeRoleWithASession(t *testing.T) {
	w, arn := chainWorld(t)
	own, err := assume(t, w, identityOf(t, "root", aws.SessionRequest{Source: "Secret keys"}), keys)
	if err != nil || own.ARN != "arn:aws:iam::"+accountID+":user/root" || own.AccountID != accountID || !own.SessionToken.IsZero() {
		t.Fatalf("%s of %s, %v", own.ARN, own.AccountID, err)
	}
	first, err := assume(t, w, identityOf(t, "first", aws.SessionRequest{Source: "root", RoleARN: arn, Duration: 12 * time.Hour}), keys)
	if err != nil || first.GetDuration() < 11*time.Hour || first.AccountID != accountID {
		t.Fatalf("%v, %v", first, err)
	}
	var region string
	second, err := assume(t, w, identityOf(t, "second", aws.SessionRequest{Source: "first", RoleARN: arn, Name: "its-name", Duration: 12 * time.Hour}),
		func(of string) (auth.Proof, error) { region = of; return first, nil }, auth.WithSTSRegion("eu-central-1"))
	if err != nil || second.GetDuration() > time.Hour || !strings.HasSuffix(second.ARN, ":assumed-role/target/its-name") {
		t.Fatalf("%v, %v", second, err)
	}
	if region != "eu-central-1" {
		t.Errorf("the source was asked for region %q", region)
	}
}

// TestChainsThatAWSRefuses checks the code and the text of each error. No error may contain a
// secret key.
func TestChainsThatAWSRefuses(t *testing.T) {
	w, arn := chainWorld(t)
	lost := func(string) (auth.Proof, error) {
		return aws.StaticToken(auth.NewSecret("AKIALOSTLOSTLOSTLOST"), auth.NewSecret("lost-secret-lost-secret"), auth.Secret{}), nil
	}
	wrong := func(string) (auth.Proof, error) {
		return aws.StaticToken(auth.NewSecret(rootKey), auth.NewSecret("wrong-secret-wrong-secret"), auth.Secret{}), nil
	}
	for name, c := range map[string]struct {
		request aws.SessionRequest
		source  func(string) (auth.Proof, error)
		code    auth.Code
		says    string
	}{
		"a role that does not exist":     {aws.SessionRequest{RoleARN: "arn:aws:iam::" + accountID + ":role/nobody"}, keys, auth.CodeTrustRefused, "let the trust policy of role"},
		"tags that the role forbids":     {aws.SessionRequest{RoleARN: arn, Tags: map[string]string{"a": "b"}}, keys, auth.CodeTrustRefused, "sts:TagSession"},
		"a source identity":              {aws.SessionRequest{RoleARN: arn, SourceIdentity: "someone"}, keys, auth.CodeTrustRefused, "sts:SetSourceIdentity"},
		"a policy that is not JSON":      {aws.SessionRequest{RoleARN: arn, Policy: "no"}, keys, auth.CodeRefused, "inlinePolicy"},
		"a policy that does not exist":   {aws.SessionRequest{RoleARN: arn, PolicyARNs: []string{"arn:aws:iam::" + accountID + ":policy/no"}}, keys, auth.CodeRefused, "session policies"},
		"keys that are gone":             {aws.SessionRequest{RoleARN: arn}, lost, auth.CodeProofInvalid, "check that AWS knows the keys of Secret keys"},
		"keys that are gone, by itself":  {aws.SessionRequest{}, lost, auth.CodeProofInvalid, "check that AWS knows the keys of Secret keys"},
		"a wrong secret key":             {aws.SessionRequest{RoleARN: arn}, wrong, auth.CodeProofInvalid, "Secret keys"},
		"a role of another partition":    {aws.SessionRequest{RoleARN: "arn:aws-cn:iam::" + accountID + ":role/a"}, keys, auth.CodeIdentityInvalid, "partition"},
		"a role that is none":            {aws.SessionRequest{RoleARN: "role"}, keys, auth.CodeIdentityInvalid, "spec.roleARN of AWSClusterRoleIdentity target"},
		"a proof that is not a session":  {aws.SessionRequest{RoleARN: arn}, func(string) (auth.Proof, error) { return &auth.JWT{}, nil }, auth.CodeProofInvalid, "not a session of AWS"},
		"a session policy for the world": {aws.SessionRequest{RoleARN: arn, Name: strings.Repeat("n", 100), Policy: strings.Repeat(" ", 2049)}, keys, auth.CodeRefused, ""},
	} {
		t.Run(name, func(t *testing.T) {
			c.request.Source = "Secret keys"
			_, err := assume(t, w, identityOf(t, "target", c.request), c.source)
			if auth.CodeOf(err) != c.code || !strings.Contains(err.Error(), c.says) {
				t.Errorf("code %s: %v", auth.CodeOf(err), err)
			}
			for _, secret := range []string{rootSecret, "lost-secret", "wrong-secret"} {
				if strings.Contains(err.Error(), secret) {
					t.Errorf("a secret is in %v", err)
				}
			}
		})
	}
}

// TestThrottledAccount checks that a throttled account gets no further calls. Identities whose
// source session belongs to this account fail at once with a clear error. Identities whose source
// session belongs to another account are served.
func TestThrottledAccount(t *testing.T) {
	w, arn := chainWorld(t)
	const otherKey, otherSecret = "AKIAOTHEROTHEROTHERO", "other-secret-other-secret"
	everything := policiesOf(map[string]any{"Effect": "Allow", "Action": "sts:AssumeRole", "Resource": "*"})
	rig.Must(t, w.Cloud.AWS().PutUser(otherAccountID, cloudaws.User{Name: "other", AccessKeys: []cloudaws.AccessKey{{ID: otherKey, Secret: otherSecret}}, Policies: everything}))
	rig.Must(t, w.Cloud.AWS().PutTrustPolicy(accountID, "target", policy(map[string]any{
		"Effect": "Allow", "Principal": map[string]any{"AWS": []string{accountID, otherAccountID}}, "Action": "sts:AssumeRole",
	})))
	source := func(name, id, secret string) func(string) (auth.Proof, error) {
		token, err := assume(t, w, identityOf(t, name, aws.SessionRequest{Source: "Secret " + name}), func(string) (auth.Proof, error) {
			return aws.StaticToken(auth.NewSecret(id), auth.NewSecret(secret), auth.Secret{}), nil
		})
		rig.Must(t, err)
		return func(string) (auth.Proof, error) { return token, nil }
	}
	root, other := source("root", rootKey, rootSecret), source("other", otherKey, otherSecret)
	end := w.Fault(t, fault.Fault{Kind: fault.Throttle, Service: "sts", Operation: "AssumeRole", RetryAfter: 5 * time.Minute, Count: 1})
	defer end()
	for i, says := range []string{"Throttling: Rate exceeded", "STS throttles the account of root", "STS quota of account " + accountID} {
		before := w.Count("sts", "AssumeRole")
		_, err := assume(t, w, identityOf(t, fmt.Sprint("role-", i), aws.SessionRequest{Source: "root", RoleARN: arn}), root)
		reason, ok := errors.AsType[*auth.Error](err)
		if !ok || reason.Code != auth.CodeThrottled || reason.RetryAfter < 4*time.Minute || !strings.Contains(err.Error(), says) {
			t.Errorf("%v, want %q", err, says)
		}
		if n := w.Count("sts", "AssumeRole") - before; n != 0 && i > 0 {
			t.Errorf("%d calls during the pause", n)
		}
	}
	if _, err := assume(t, w, identityOf(t, "others", aws.SessionRequest{Source: "other", RoleARN: arn}), other); err != nil {
		t.Errorf("another account: %v", err)
	}
	if _, err := assume(t, w, identityOf(t, "elsewhere", aws.SessionRequest{Source: "root", RoleARN: arn}), root, auth.WithSTSRegion("eu-central-1")); err != nil {
		t.Errorf("another region, which has a quota of its own: %v", err)
	}
}

// TestFingerprintIsRequired checks that an account is refused if it has the attributes of an
// [aws.SessionRequest] but no Fingerprint. Without a Fingerprint, two different requests of one
// identity would share a session.
func TestFingerprintIsRequired(t *testing.T) {
	w, arn := chainWorld(t)
	account := identityOf(t, "target", aws.SessionRequest{Source: "Secret keys", RoleARN: arn})
	account.Fingerprint = ""
	if _, err := assume(t, w, account, keys); auth.CodeOf(err) != auth.CodeIdentityInvalid || !strings.Contains(err.Error(), "auth.Fingerprint") {
		t.Errorf("%v", err)
	}
}

// TestLentSessionsTakeNoDetour checks that GetToken refuses an STS endpoint or a proxy for a lent
// subject ([auth.Subject.Lent]). A tenant may have chosen the endpoint or the proxy.
func TestLentSessionsTakeNoDetour(t *testing.T) {
	w, arn := chainWorld(t)
	account := identityOf(t, "target", aws.SessionRequest{Source: "Secret keys", RoleARN: arn})
	for name, option := range map[string]auth.Option{
		"an endpoint": auth.WithSTSEndpoint("https://sts.eu-west-1.amazonaws.com"), "a proxy": auth.WithProxyURL(w.Proxy),
	} {
		if _, err := assume(t, w, account, keys, option); auth.CodeOf(err) != auth.CodeEndpointRefused {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestSessionRequestOfAnnotations checks that the annotations of a ServiceAccount can request only
// a role.
func TestSessionRequestOfAnnotations(t *testing.T) {
	w, arn := chainWorld(t)
	account := w.tenantA(t)
	request, err := aws.SessionRequest{Source: "a", RoleARN: arn, ExternalID: "agreed", Audiences: []string{"else"}}.Attributes()
	rig.Must(t, err)
	maps.Copy(request, account.Attributes)
	account.Attributes = request
	token, err := auth.GetToken(t.Context(), w.aws, w.As(account)...)
	rig.Must(t, err)
	if who, err := w.caller(t.Context(), token); err != nil || who != account.Attributes[aws.RoleAnnotation] {
		t.Errorf("%s, %v", who, err)
	}
}

// FuzzSessionRequest checks that any request can be read back from its attributes. So different
// requests never have the same attributes.
func FuzzSessionRequest(f *testing.F) {
	f.Add("source", "arn:aws:iam::123456789123:role/a", "name", 3600, `{"a":"b"}`, "agreed", "key", "value", "arn", "aud")
	f.Add("", "", "", 0, "", "", "", "", "", "")
	f.Add("source", "", strings.Repeat("name", 17), 0, "", "", "", "", "", "")
	f.Add("a&b", "%2C,", "=", 43200, "\n", "&=", "k&=%", "v&=%+ ", "x,y", "z=1")
	f.Fuzz(func(t *testing.T, source, role, name string, seconds int, policy, external, key, value, arn, audience string) {
		if seconds < 0 || seconds > 86400 {
			return
		}
		request := aws.SessionRequest{
			Source: source, RoleARN: role, Name: name, Duration: time.Duration(seconds) * time.Second, Policy: policy, ExternalID: external, SourceIdentity: name,
			ProofLifetime: time.Duration(seconds) * time.Second,
		}
		if key != "" || value != "" {
			request.Tags = map[string]string{key: value}
		}
		for into, one := range map[*[]string]string{&request.PolicyARNs: arn, &request.TransitiveTags: key, &request.Audiences: audience} {
			if one != "" {
				*into = []string{one, value + "x"}
			}
		}
		attributes, err := request.Attributes()
		rig.Must(t, err)
		subject, err := auth.ClusterIdentity("AWSClusterRoleIdentity", "a")
		rig.Must(t, err)
		got, err := aws.SessionRequestOf(auth.Account{Subject: subject, Attributes: attributes, Fingerprint: auth.Fingerprint(attributes)})
		request.Name = aws.FitSessionName(name) // shortened, because AWS accepts at most 64 characters
		if err != nil || !reflect.DeepEqual(got, request) {
			t.Errorf("%+v became %+v, %v", request, got, err)
		}
		if slices.Contains(slices.Collect(maps.Values(attributes)), "") {
			t.Errorf("an empty attribute in %q", attributes)
		}
	})
}
