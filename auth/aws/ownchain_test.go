package aws_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/lanyard-dev/lanyard/auth"
	"github.com/lanyard-dev/lanyard/auth/aws"
	"github.com/lanyard-dev/lanyard/auth/cache"
	"github.com/lanyard-dev/lanyard/auth/internal/rig"
	cloudaws "github.com/lanyard-dev/lanyard/cloudtest/aws"
)

const otherAccountID = "222233334444"

// ownChainWorld returns a world with two IAM roles: tenant A's role, and a role named "reader" in
// another AWS account. The second role trusts the first one if the request has the external ID
// "agreed". The result reader is the ARN of the second role.
func ownChainWorld(t *testing.T) (w *world, account auth.Account, reader string) {
	t.Helper()
	w = newWorld(t)
	account = w.tenantA(t)
	first := account.Attributes[aws.RoleAnnotation]
	rig.Must(t, w.Cloud.AWS().PutRole(accountID, cloudaws.Role{
		Name: strings.TrimPrefix(first, "arn:aws:iam::"+accountID+":role/"), TrustPolicy: trust(account.Subject.String()),
		Policies: policiesOf(map[string]any{"Effect": "Allow", "Action": "sts:AssumeRole", "Resource": "*"}),
	}))
	rig.Must(t, w.Cloud.AWS().PutRole(otherAccountID, cloudaws.Role{
		Name: "reader", TrustPolicy: policy(map[string]any{
			"Effect": "Allow", "Principal": map[string]any{"AWS": first}, "Action": "sts:AssumeRole",
			"Condition": map[string]any{"StringEquals": map[string]string{"sts:ExternalId": "agreed"}},
		}),
		Policies: map[string]json.RawMessage{"login": policy(map[string]any{"Effect": "Allow", "Action": "ecr:GetAuthorizationToken", "Resource": "*"})},
	}))
	return w, account, "arn:aws:iam::" + otherAccountID + ":role/reader"
}

// assuming returns the account with a second role to assume. Like package auth/kube, it also sets
// the Fingerprint.
func assuming(account auth.Account, value string) auth.Account {
	account = rig.WithAttribute(account, aws.AssumeRoleAnnotation, value)
	account.Fingerprint = auth.Fingerprint(account.Attributes)
	return account
}

// TestOwnChain checks that a ServiceAccount can assume a second role, in another AWS account, with
// the session of its first role. Each parameter in the annotation, such as sessionName=other, must
// change the token's [auth.Key].
func TestOwnChain(t *testing.T) {
	w, account, reader := ownChainWorld(t)
	get := func(value string, more ...auth.Option) (auth.Token, auth.Key, error) {
		return auth.GetTokenAndKey(t.Context(), w.aws, append([]auth.Option{rig.Subject(assuming(account, value), w.Sign)}, more...)...)
	}
	got, key, err := get(reader + " externalID=agreed sessionName=the-app durationSeconds=900")
	rig.Must(t, err)
	session := got.(*aws.Token)
	if session.AccountID != otherAccountID || !strings.HasSuffix(session.ARN, ":assumed-role/reader/the-app") || key.Identity != reader {
		t.Errorf("%s in account %s, for %s", session.ARN, session.AccountID, key.Identity)
	}
	if left := session.GetDuration(); left > 15*time.Minute || left < 14*time.Minute {
		t.Errorf("the session lives %s", left)
	}
	keys := map[auth.Key]bool{key: true}
	for _, value := range []string{reader + " externalID=agreed", reader + " externalID=agreed sessionName=other", reader + " externalID=agreed durationSeconds=1000"} {
		_, key, err := get(value)
		rig.Must(t, err)
		keys[key] = true
	}
	if len(keys) != 4 {
		t.Errorf("%d keys for 4 chains", len(keys))
	}
	for name, option := range map[string]auth.Option{"a registry": auth.WithImageRepository(imageA)} {
		if token, _, err := get(reader+" externalID=agreed", option); err != nil || token.(*auth.RegistryCredentials).Username != "AWS" {
			t.Errorf("%s: %v, %v", name, token, err)
		}
	}
}

// TestOwnChainOfBinding checks the session name that a program sets for a WorkloadIdentity. The
// last session of the chain, which GetToken returns, has this name. A sessionName in the
// WorkloadIdentity's assumeRole field wins over this name.
func TestOwnChainOfBinding(t *testing.T) {
	const named = "cloudidentity.tenant-a@WorkloadIdentityBinding"
	w, tenant, reader := ownChainWorld(t)
	subject, err := auth.WorkloadIdentity("tenant-a", "app")
	rig.Must(t, err)
	account := auth.Account{Subject: subject, UID: "uid-of-app"}
	rig.Must(t, w.Cloud.AWS().PutTrustPolicy(accountID, "tenant-a-ecr", trust(rig.SubjectClaim(account))))
	for words, want := range map[string]string{"": named, " sessionName=the-app": "the-app"} {
		account.Attributes = map[string]string{
			aws.RoleField: tenant.Attributes[aws.RoleAnnotation], aws.AssumeRoleField: reader + " externalID=agreed" + words, aws.SessionNameAttribute: named,
		}
		account.Fingerprint = auth.Fingerprint(account.Attributes)
		got, err := auth.GetToken(t.Context(), w.aws, rig.Subject(account, w.Sign))
		rig.Must(t, err)
		if arn := got.(*aws.Token).ARN; !strings.HasSuffix(arn, ":assumed-role/reader/"+want) {
			t.Errorf("%q: %s, want %s", words, arn, want)
		}
	}
}

// TestOwnChainRefusals checks that the trust policy of either role can refuse the chain, and that
// no part of the annotation is ignored.
func TestOwnChainRefusals(t *testing.T) {
	w, account, reader := ownChainWorld(t)
	other := rig.ServiceAccount("tenant-b", "thief", map[string]string{aws.RoleAnnotation: w.roleFor(t, "tenant-b", "system:serviceaccount:tenant-b:thief")})
	without := rig.WithAttribute(account, aws.RoleAnnotation, "")
	store := rig.WithAttribute(account, aws.RoleAnnotation, "arn:minio:iam:::role/reader")
	for name, c := range map[string]struct {
		account auth.Account
		code    auth.Code
		says    string
	}{
		"no external ID":     {assuming(account, reader), auth.CodeTrustRefused, "external ID"},
		"another's chain":    {assuming(other, reader+" externalID=agreed"), auth.CodeTrustRefused, "tenant-b-ecr"},
		"another's own role": {assuming(rig.WithAttribute(other, aws.RoleAnnotation, account.Attributes[aws.RoleAnnotation]), reader+" externalID=agreed"), auth.CodeTrustRefused, "AssumeRoleWithWebIdentity"},
		"no role":            {assuming(without, reader), auth.CodeIdentityMissing, aws.RoleAnnotation},
		"a store's role":     {assuming(store, reader), auth.CodeIdentityInvalid, aws.RoleAnnotation},
		"no ARN":             {assuming(account, "reader"), auth.CodeIdentityInvalid, "annotation " + aws.AssumeRoleAnnotation},
		"empty":              {assuming(account, " "), auth.CodeIdentityInvalid, aws.AssumeRoleAnnotation},
		"unknown word":       {assuming(account, reader+" policy=all"), auth.CodeIdentityInvalid, `"policy" is unknown`},
		"another partition":  {assuming(account, "arn:aws-cn:iam::"+otherAccountID+":role/reader"), auth.CodeIdentityInvalid, "partition"},
		"no fingerprint":     {rig.WithAttribute(account, aws.AssumeRoleAnnotation, reader), auth.CodeIdentityInvalid, "fingerprint"},
	} {
		token, err := auth.GetToken(t.Context(), w.aws, rig.Subject(c.account, w.Sign))
		if token != nil || auth.CodeOf(err) != c.code || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v; want %s, %q", name, err, c.code, c.says)
		}
		if err != nil && strings.Contains(err.Error(), "agreed") {
			t.Errorf("%s: the external ID is in the error: %v", name, err)
		}
	}
}

// TestOwnChainKeepsTheFirstSession checks that retries reuse the first session while the second
// role refuses. A change of the account drops the session.
func TestOwnChainKeepsTheFirstSession(t *testing.T) {
	w, account, reader := ownChainWorld(t)
	tokens := cache.New(cache.Options{})
	get := func(value string, more ...auth.Option) (auth.Token, error) {
		return auth.GetToken(t.Context(), w.aws, append(more, rig.Subject(assuming(account, value), w.Sign), auth.WithCache(tokens, auth.InvolvedObject{}))...)
	}
	refused := reader + " externalID=wrong"
	if _, err := get(refused); auth.CodeOf(err) != auth.CodeTrustRefused {
		t.Fatal(err)
	}
	rig.Must(t, w.Cloud.AWS().PutTrustPolicy(otherAccountID, "reader", policy(map[string]any{
		"Effect": "Allow", "Principal": map[string]any{"AWS": account.Attributes[aws.RoleAnnotation]}, "Action": "sts:AssumeRole",
	})))
	before := w.exchanges()
	token, err := get(refused, auth.WithRetryNow())
	if err != nil || token.(*aws.Token).AccountID != otherAccountID {
		t.Fatalf("%v, %v", token, err)
	}
	if n := w.exchanges() - before; n != 0 {
		t.Errorf("%d exchanges of the first role, although its session is kept", n)
	}
	tokens.Invalidate(account.Subject)
	_, err = get(refused)
	rig.Must(t, err)
	if n := w.exchanges() - before; n != 1 {
		t.Errorf("%d exchanges of the first role after the account changed, want 1", n)
	}
}

// TestOwnChainToItself checks that a role may assume itself, if its trust policy permits it.
func TestOwnChainToItself(t *testing.T) {
	w, account, _ := ownChainWorld(t)
	first := account.Attributes[aws.RoleAnnotation]
	name := strings.TrimPrefix(first, "arn:aws:iam::"+accountID+":role/")
	both := json.RawMessage(strings.Replace(string(trust(account.Subject.String())), `"Statement":[`,
		`"Statement":[{"Effect":"Allow","Principal":{"AWS":"`+first+`"},"Action":"sts:AssumeRole"},`, 1))
	rig.Must(t, w.Cloud.AWS().PutTrustPolicy(accountID, name, both))
	_, err := auth.GetToken(t.Context(), w.aws, rig.Subject(assuming(account, first), w.Sign), auth.WithCache(cache.New(cache.Options{}), auth.InvolvedObject{}))
	rig.Must(t, err)
}

// TestOwnChainNeedsAWS checks that the provider refuses a second role if the STS endpoint belongs
// to an S3-compatible store. A second role is for access to another account, and a store has no
// accounts.
func TestOwnChainNeedsAWS(t *testing.T) {
	w, account, reader := ownChainWorld(t)
	_, err := auth.GetToken(t.Context(), w.aws, rig.Subject(assuming(account, reader), w.Sign), auth.WithSTSEndpoint("https://"+w.Allow.String()))
	if auth.CodeOf(err) != auth.CodeIdentityInvalid || !strings.Contains(err.Error(), "not AWS's") {
		t.Error(err)
	}
}
