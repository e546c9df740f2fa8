package aws_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sts"
	ststypes "github.com/aws/aws-sdk-go-v2/service/sts/types"
	"github.com/google/go-cmp/cmp"

	"github.com/lanyard-dev/lanyard/cloudtest"
	"github.com/lanyard-dev/lanyard/cloudtest/aws"
	"github.com/lanyard-dev/lanyard/cloudtest/internal/must"
	"github.com/lanyard-dev/lanyard/cloudtest/internal/rig"
	"github.com/lanyard-dev/lanyard/cloudtest/journal"
)

// trusting returns a trust policy for an AWS principal, with actions and conditions in JSON.
func trusting(principal, actions, conditions string) json.RawMessage {
	return fmt.Appendf(nil, `{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Principal":{"AWS":%q},"Action":%s,"Condition":%s}]}`,
		principal, actions, conditions)
}

// chainWorld returns a world with the user "bare", which has no permissions, and with roles that
// have different trust policies.
func chainWorld(t *testing.T) (w *world, bare awssdk.CredentialsProvider) {
	t.Helper()
	w = newWorld(t)
	put := func(acc string, r aws.Role) {
		t.Helper()
		must.Succeed(t, w.AWS().PutRole(acc, r))
	}
	const assumeOnly = `"sts:AssumeRole"`
	userARN := "arn:aws:iam::" + account + ":user/bare"
	must.Succeed(t, w.AWS().PutUser(account, aws.User{Name: "bare", AccessKeys: []aws.AccessKey{{ID: "AKIABAREBAREBAREBARE", Secret: "bare-secret-bare-secret"}}}))
	put(account, aws.Role{Name: "for-user", TrustPolicy: trusting(userARN, assumeOnly, "{}")})
	put(account, aws.Role{Name: "for-account", TrustPolicy: trusting(account, assumeOnly, "{}")})
	put(account, aws.Role{Name: "for-root", TrustPolicy: trusting("arn:aws:iam::"+account+":root", `["sts:AssumeRole","sts:TagSession","sts:SetSourceIdentity"]`, "{}"), MaxSessionDuration: 43200})
	put(account, aws.Role{Name: "external", TrustPolicy: trusting(account, assumeOnly, `{"StringEquals":{"sts:ExternalId":"agreed"}}`)})
	put(account, aws.Role{
		Name: "chained", TrustPolicy: trusting("arn:aws:iam::"+account+":role/for-root", `["sts:AssumeRole","sts:TagSession","sts:SetSourceIdentity"]`,
			`{"StringEquals":{"aws:PrincipalTag/team":"blue"}}`), MaxSessionDuration: 43200,
	})
	put(otherAccount, aws.Role{Name: "for-user", TrustPolicy: trusting(userARN, assumeOnly, "{}")})
	put(otherAccount, aws.Role{Name: "for-account", TrustPolicy: trusting(account, assumeOnly, "{}")})
	return w, static(&ststypes.Credentials{
		AccessKeyId: awssdk.String("AKIABAREBAREBAREBARE"), SecretAccessKey: awssdk.String("bare-secret-bare-secret"), SessionToken: awssdk.String(""),
	})
}

func roleIn(acc, name string) *string { return awssdk.String("arn:aws:iam::" + acc + ":role/" + name) }

func TestAssumeRole(t *testing.T) {
	w, bare := chainWorld(t)
	denied := outcome{"AccessDenied", 403}
	tests := []struct {
		name  string
		creds awssdk.CredentialsProvider
		input sts.AssumeRoleInput
		want  outcome
	}{
		{"user that the role names", bare, sts.AssumeRoleInput{RoleArn: roleIn(account, "for-user")}, outcome{}},
		{"another user", pusher(), sts.AssumeRoleInput{RoleArn: roleIn(account, "for-user")}, denied},
		{"account is named, user has no permission", bare, sts.AssumeRoleInput{RoleArn: roleIn(account, "for-account")}, denied},
		{"account is named, user has permission", pusher(), sts.AssumeRoleInput{RoleArn: roleIn(account, "for-account")}, outcome{}},
		{"root is named, user has permission", pusher(), sts.AssumeRoleInput{RoleArn: roleIn(account, "for-root")}, outcome{}},
		{"other account names the user, who has no permission", bare, sts.AssumeRoleInput{RoleArn: roleIn(otherAccount, "for-user")}, denied},
		{"other account names the account, user has permission", pusher(), sts.AssumeRoleInput{RoleArn: roleIn(otherAccount, "for-account")}, outcome{}},
		{"trust policy for tokens", pusher(), sts.AssumeRoleInput{RoleArn: awssdk.String(roleA)}, denied},
		{"no such role", pusher(), sts.AssumeRoleInput{RoleArn: roleIn(account, "nobody")}, denied},
		{"without external ID", pusher(), sts.AssumeRoleInput{RoleArn: roleIn(account, "external")}, denied},
		{"wrong external ID", pusher(), sts.AssumeRoleInput{RoleArn: roleIn(account, "external"), ExternalId: awssdk.String("other")}, denied},
		{"right external ID", pusher(), sts.AssumeRoleInput{RoleArn: roleIn(account, "external"), ExternalId: awssdk.String("agreed")}, outcome{}},
		{"tags without TagSession", pusher(), sts.AssumeRoleInput{RoleArn: roleIn(account, "for-account"), Tags: tags("team", "blue")}, denied},
		{"tags with TagSession", pusher(), sts.AssumeRoleInput{RoleArn: roleIn(account, "for-root"), Tags: tags("team", "blue")}, outcome{}},
		{"tag twice", pusher(), sts.AssumeRoleInput{RoleArn: roleIn(account, "for-root"), Tags: append(tags("team", "blue"), tags("Team", "red")...)}, outcome{"ValidationError", 400}},
		{"transitive key without tag", pusher(), sts.AssumeRoleInput{RoleArn: roleIn(account, "for-root"), TransitiveTagKeys: []string{"team"}}, outcome{"ValidationError", 400}},
		{"source identity without permission", pusher(), sts.AssumeRoleInput{RoleArn: roleIn(account, "for-account"), SourceIdentity: awssdk.String("alice")}, denied},
		{"source identity with permission", pusher(), sts.AssumeRoleInput{RoleArn: roleIn(account, "for-root"), SourceIdentity: awssdk.String("alice")}, outcome{}},
		{"twelve hours", pusher(), sts.AssumeRoleInput{RoleArn: roleIn(account, "for-root"), DurationSeconds: awssdk.Int32(43200)}, outcome{}},
		{"longer than the role allows", pusher(), sts.AssumeRoleInput{RoleArn: roleIn(account, "for-account"), DurationSeconds: awssdk.Int32(7200)}, outcome{"ValidationError", 400}},
		{"with MFA", pusher(), sts.AssumeRoleInput{RoleArn: roleIn(account, "for-root"), SerialNumber: awssdk.String("arn:aws:iam::123456789123:mfa/x"), TokenCode: awssdk.String("123456")}, outcome{"ValidationError", 400}},
		{"managed policy that does not exist", pusher(), sts.AssumeRoleInput{RoleArn: roleIn(account, "for-root"), PolicyArns: []ststypes.PolicyDescriptorType{{Arn: awssdk.String("arn:aws:iam::" + account + ":policy/none")}}}, outcome{"ValidationError", 400}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			tt.input.RoleSessionName = awssdk.String("test")
			_, err := stsClient(w.Transport(), tt.creds).AssumeRole(t.Context(), &tt.input)
			if diff := cmp.Diff(tt.want, outcomeOf(err)); diff != "" {
				t.Errorf("outcome (-want +got):\n%s\n%v", diff, err)
			}
			calls := w.Journal().Calls(journal.Filter{Operation: "AssumeRole"})
			last := calls[len(calls)-1]
			if last.Principal == "" || last.Role != *tt.input.RoleArn || last.Code != tt.want.Code {
				t.Errorf("journal says %+v", last)
			}
		})
	}
}

func tags(key, value string) []ststypes.Tag {
	return []ststypes.Tag{{Key: &key, Value: &value}}
}

func TestRoleChain(t *testing.T) {
	w, _ := chainWorld(t)
	ctx := t.Context()
	first, err := stsClient(w.Transport(), pusher()).AssumeRole(ctx, &sts.AssumeRoleInput{
		RoleArn: roleIn(account, "for-root"), RoleSessionName: awssdk.String("first"),
		Tags: tags("team", "blue"), TransitiveTagKeys: []string{"team"}, SourceIdentity: awssdk.String("alice"),
	})
	must.Succeed(t, err)
	client := stsClient(w.Transport(), static(first.Credentials))
	second, err := client.AssumeRole(ctx, &sts.AssumeRoleInput{RoleArn: roleIn(account, "chained"), RoleSessionName: awssdk.String("second")})
	must.Succeed(t, err)
	if got := awssdk.ToString(second.SourceIdentity); got != "alice" {
		t.Errorf("source identity %q was not handed on", got)
	}
	// Check that the second session has inherited the tag "team". From now on, the role "chained"
	// trusts only its own sessions that have this tag. So the second session needs the tag to open
	// a third one.
	must.Succeed(t, w.AWS().PutTrustPolicy(account, "chained", trusting("arn:aws:iam::"+account+":role/chained",
		`["sts:AssumeRole","sts:TagSession","sts:SetSourceIdentity"]`, `{"StringEquals":{"aws:PrincipalTag/team":"blue"}}`)))
	if _, err := stsClient(w.Transport(), static(second.Credentials)).AssumeRole(ctx,
		&sts.AssumeRoleInput{RoleArn: roleIn(account, "chained"), RoleSessionName: awssdk.String("third")}); err != nil {
		t.Errorf("transitive tag: %v", err)
	}
	for name, tt := range map[string]struct {
		input   sts.AssumeRoleInput
		want    outcome
		message string
	}{
		"longer than an hour": {
			sts.AssumeRoleInput{DurationSeconds: awssdk.Int32(3601)},
			outcome{"ValidationError", 400},
			"exceeds the 1 hour session limit for roles assumed by role chaining",
		},
		"tag set anew":            {sts.AssumeRoleInput{Tags: tags("TEAM", "red")}, outcome{"ValidationError", 400}, "conflicts with a transitive tag key"},
		"source identity changed": {sts.AssumeRoleInput{SourceIdentity: awssdk.String("bob")}, outcome{"AccessDenied", 403}, "SourceIdentity"},
	} {
		tt.input.RoleArn, tt.input.RoleSessionName = roleIn(account, "chained"), awssdk.String("second")
		_, err := client.AssumeRole(ctx, &tt.input)
		if diff := cmp.Diff(tt.want, outcomeOf(err)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		} else if !strings.Contains(err.Error(), tt.message) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestManagedPolicies(t *testing.T) {
	document := json.RawMessage(`{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Action":"ecr:GetAuthorizationToken","Resource":"*"}]}`)
	cfg := rig.AWSConfig()
	acc := &cfg.AWS.Accounts[0]
	acc.ManagedPolicies = map[string]json.RawMessage{"login": document, "nothing": json.RawMessage(
		`{"Version":"2012-10-17","Statement":[{"Effect":"Deny","Action":"*","Resource":"*"}]}`)}
	acc.Roles = append(acc.Roles, aws.Role{
		Name: "managed", TrustPolicy: trusting(account, `"sts:AssumeRole"`, "{}"),
		ManagedPolicies: []string{"arn:aws:iam::" + account + ":policy/login"},
	})
	c, err := cloudtest.New(cfg)
	must.Succeed(t, err)
	defer func() { _ = c.Close() }()
	for name, want := range map[string]outcome{"login": {}, "nothing": {"AccessDeniedException", 400}} {
		out, err := stsClient(c.Transport(), pusher()).AssumeRole(t.Context(), &sts.AssumeRoleInput{
			RoleArn: roleIn(account, "managed"), RoleSessionName: awssdk.String("test"),
			PolicyArns: []ststypes.PolicyDescriptorType{{Arn: awssdk.String("arn:aws:iam::" + account + ":policy/" + name)}},
		})
		must.Succeed(t, err)
		_, err = ecrClient(c.Transport(), static(out.Credentials)).GetAuthorizationToken(t.Context(), nil)
		if diff := cmp.Diff(want, outcomeOf(err)); diff != "" {
			t.Errorf("session policy %s (-want +got):\n%s", name, diff)
		}
	}
}
