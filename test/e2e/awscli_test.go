package e2e

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	identityv1 "github.com/lanyard-dev/lanyard/api/identity/v1alpha1"
	infrav1 "github.com/lanyard-dev/lanyard/api/infrastructure/v1alpha1"
	"github.com/lanyard-dev/lanyard/api/meta"
	"github.com/lanyard-dev/lanyard/cloudtest/aws"
	"github.com/lanyard-dev/lanyard/cloudtest/journal"
	"github.com/lanyard-dev/lanyard/internal/local"
)

// awsCommand runs the unmodified aws command in the local cloud, with a ServiceAccount token. The
// environment is the output of `lanyard cloud env`.
type awsCommand struct {
	path string
	env  []string
}

// newAWSCommand returns an aws command that uses the token in this file.
func newAWSCommand(t *testing.T, tokenFile string) awsCommand {
	t.Helper()
	path, err := exec.LookPath("aws")
	if err != nil {
		t.Fatal("the aws command is missing: apt-get install awscli")
	}
	printed, err := exec.CommandContext(t.Context(), binary("lanyard"), "cloud", "env", "--dir", world.Path(), "-o", "dotenv").Output()
	must(t, "lanyard cloud env", err)
	env := append(strings.Fields(string(printed)),
		// Do not use a profile of the person who runs the tests.
		"PATH="+os.Getenv("PATH"), "HOME="+t.TempDir(), "LC_ALL=C.UTF-8",
		"AWS_WEB_IDENTITY_TOKEN_FILE="+tokenFile, "AWS_ROLE_SESSION_NAME=awscli",
		"AWS_REGION="+local.Region, "AWS_DEFAULT_REGION="+local.Region, "AWS_STS_REGIONAL_ENDPOINTS=regional",
		"AWS_MAX_ATTEMPTS=1",
	)
	return awsCommand{path: path, env: slices.Clip(env)}
}

// run makes the aws command assume a role. If role is empty, the command uses the profile in its
// environment.
func (c awsCommand) run(t *testing.T, role string, args ...string) (stdout, stderr string, err error) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), c.path, append(args, "--output", "text")...)
	cmd.Env = c.env
	if role != "" {
		cmd.Env = append(c.env, "AWS_ROLE_ARN="+role)
	}
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err = cmd.Run()
	return strings.TrimSpace(out.String()), strings.TrimSpace(errs.String()), err
}

// awsIdentity makes the aws command assume a role with the token in a file. It returns the ARN of
// the command's identity.
func awsIdentity(t *testing.T, tokenFile, role string) (stdout, stderr string, err error) {
	t.Helper()
	return newAWSCommand(t, tokenFile).run(t, role, "sts", "get-caller-identity", "--query", "Arn")
}

// TestAWSCommand makes the aws command assume a role with a ServiceAccount token.
func TestAWSCommand(t *testing.T) {
	beside(t)
	a, b := newTenant(t, "awscli-a"), newTenant(t, "awscli-b")
	tokenFile := secretFile(t, "token", token(t, a.namespace, puller, stsAudience))
	begin := time.Now()
	out, errs, err := awsIdentity(t, tokenFile, a.role)
	if want := "arn:aws:sts::" + local.Account + ":assumed-role/" + a.namespace + "/awscli"; err != nil || out != want {
		t.Errorf("as tenant A: %q, %v; want %q\n%s", out, err, want, errs)
	}
	t.Logf("aws took %s", time.Since(begin).Round(time.Millisecond))

	out, errs, err = awsIdentity(t, tokenFile, b.role)
	if err == nil || !strings.Contains(errs, "AccessDenied") || !strings.Contains(errs, "AssumeRoleWithWebIdentity") {
		t.Errorf("with tenant B's role: %q, %v, want AccessDenied of AssumeRoleWithWebIdentity\n%s", out, err, errs)
	}
	calls := world.Cloud().Journal().Calls(journal.Filter{Operation: "AssumeRoleWithWebIdentity", Role: b.role})
	if len(calls) == 0 || calls[len(calls)-1].Granted() || calls[len(calls)-1].Subject != a.subject {
		t.Errorf("the journal tells of the attempt on tenant B's role: %+v", calls)
	}
}

// TestAWSCommandSigns makes the aws command create a key in KMS and sign with it. The signature
// must be valid for anybody with the public key.
func TestAWSCommandSigns(t *testing.T) {
	beside(t)
	a, b := newTenant(t, "awskms-a"), newTenant(t, "awskms-b")
	must(t, "allow keys", world.Cloud().AWS().PutRole(local.Account, aws.Role{
		Name: a.namespace, TrustPolicy: trust(a.subject),
		Policies: policies(`{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Action":["kms:CreateKey","kms:GetPublicKey","kms:Sign"],"Resource":"*"}]}`),
	}))
	command := newAWSCommand(t, secretFile(t, "token", token(t, a.namespace, puller, stsAudience)))
	run := func(args ...string) string {
		t.Helper()
		out, errs, err := command.run(t, a.role, append([]string{"kms"}, args...)...)
		if err != nil {
			t.Fatalf("aws kms %s: %v\n%s", args[0], err, errs)
		}
		return out
	}
	decode := func(text string) []byte {
		t.Helper()
		raw, err := base64.StdEncoding.DecodeString(text)
		must(t, "decode", err)
		return raw
	}
	arn := run("create-key", "--key-spec", "ECC_NIST_P256", "--key-usage", "SIGN_VERIFY", "--query", "KeyMetadata.Arn")
	public, err := x509.ParsePKIXPublicKey(decode(run("get-public-key", "--key-id", arn, "--query", "PublicKey")))
	must(t, "parse the public key", err)
	sum := sha256.Sum256([]byte("message"))
	file := filepath.Join(t.TempDir(), "digest")
	must(t, "write the digest", os.WriteFile(file, sum[:], 0o600))
	sign := []string{"sign", "--key-id", arn, "--message", "fileb://" + file, "--message-type", "DIGEST", "--signing-algorithm", "ECDSA_SHA_256", "--query", "Signature"}
	if key, ok := public.(*ecdsa.PublicKey); !ok || !ecdsa.VerifyASN1(key, sum[:], decode(run(sign...))) {
		t.Errorf("the signature does not verify by the %T", public)
	}
	_, errs, err := newAWSCommand(t, secretFile(t, "token", token(t, b.namespace, puller, stsAudience))).run(t, b.role, append([]string{"kms"}, sign...)...)
	if err == nil || !strings.Contains(errs, "AccessDeniedException") || !strings.Contains(errs, "kms:Sign") {
		t.Errorf("as tenant B: %v, want AccessDeniedException of kms:Sign\n%s", err, errs)
	}
}

// TestAWSCommandCallsServices uses the aws command to call services that the local cloud does not
// implement. For these services, the local cloud only checks whether the caller may call them.
func TestAWSCommandCallsServices(t *testing.T) {
	beside(t)
	a, b := newTenant(t, "awscalls-a"), newTenant(t, "awscalls-b")
	must(t, "allow calls", world.Cloud().AWS().PutRole(local.Account, aws.Role{
		Name: a.namespace, TrustPolicy: trust(a.subject),
		Policies: policies(`{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Action":["ec2:Describe*","elasticloadbalancing:Describe*","secretsmanager:List*","tag:Get*"],"Resource":"*"}]}`),
	}))
	granted := newAWSCommand(t, secretFile(t, "token", token(t, a.namespace, puller, stsAudience)))
	other := newAWSCommand(t, secretFile(t, "token", token(t, b.namespace, puller, stsAudience)))
	for _, c := range []struct{ command, operation, service, refusal string }{
		{"ec2", "describe-regions", "ec2", "UnauthorizedOperation"},
		{"elb", "describe-load-balancers", "elasticloadbalancing", "AccessDenied"},
		{"elbv2", "describe-load-balancers", "elasticloadbalancing", "AccessDenied"},
		{"secretsmanager", "list-secrets", "secretsmanager", "AccessDeniedException"},
		{"resourcegroupstaggingapi", "get-resources", "tagging", "AccessDeniedException"},
	} {
		if _, errs, err := granted.run(t, a.role, c.command, c.operation); err != nil {
			t.Errorf("aws %s: %v\n%s", c.command, err, errs)
		}
		caller := "arn:aws:sts::" + local.Account + ":assumed-role/" + a.namespace + "/awscli"
		if len(world.Cloud().Journal().Calls(journal.Filter{Service: c.service, Principal: caller})) == 0 {
			t.Errorf("aws %s: the journal has no call of %s", c.command, caller)
		}
		if _, errs, err := other.run(t, b.role, c.command, c.operation); err == nil || !strings.Contains(errs, c.refusal) {
			t.Errorf("aws %s as tenant B: %v, want %s\n%s", c.command, err, c.refusal, errs)
		}
	}
}

// TestAWSCommandChains makes Lanyard and the aws command assume the same chains of roles. AWS must
// give both the same answer.
func TestAWSCommandChains(t *testing.T) {
	alone(t, "AWS identities are of the whole cluster, and the chart grants more for them")
	makeNamespace(t, "chains", nil)
	startIdentities(t, nil, "chains")
	lendChain(t, "chains")
	role := "arn:aws:iam::" + workloadAccount + ":role/"
	command := newAWSCommand(t, "")
	command.env = slices.DeleteFunc(command.env, func(v string) bool {
		return strings.HasPrefix(v, "AWS_WEB_IDENTITY_TOKEN_FILE=") || strings.HasPrefix(v, "AWS_ROLE_SESSION_NAME=")
	})
	for _, c := range []struct {
		name, role, external, source string // source is a role, or empty for the controller's own identity
		granted                      bool
	}{
		{"two-roles", "reader", "", "landing", true},
		{"without-the-first-role", "reader", "", "", false},
		{"external-id", "ClusterAPI-Participant", externalID, "", true},
		{"another-external-id", "ClusterAPI-Participant", "guessed", "", false},
		{"no-external-id", "ClusterAPI-Participant", "", "", false},
		{"nobody", "nobody", "", "landing", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			identity := &identityv1.AWSClusterRoleIdentity{ObjectMeta: metav1.ObjectMeta{Name: c.name}}
			identity.Spec.RoleARN, identity.Spec.ExternalID, identity.Spec.SessionName = role+c.role, c.external, "chained"
			source := "owner"
			if c.source != "" {
				identity.Spec.SourceIdentityRef = &identityv1.AWSClusterIdentityReference{Kind: identityv1.AWSClusterRoleIdentityKind, Name: c.source}
				source = c.source
			}
			lendIdentity(t, identity, &identity.Spec.AWSClusterIdentitySpec, "chains")
			o := awsCluster(t, "chains", c.name, identityv1.AWSClusterRoleIdentityKind, c.name)
			if c.granted {
				await(t, o, "it is granted", inAccount(workloadAccount))
			} else {
				await(t, o, "AWS refuses it", func(o *infrav1.AWSCluster) error {
					ready := apimeta.FindStatusCondition(o.Status.Conditions, meta.ConditionReady)
					return wantf(ready != nil && ready.Reason == "TrustRefused" && o.Status.Identity == nil, "%+v", ready)
				})
			}

			external := ""
			if c.external != "" {
				external = "external_id = " + c.external + "\n"
			}
			config := secretFile(t, "config", "[profile owner]\naws_access_key_id = "+ownerKey+"\naws_secret_access_key = "+ownerSecret+
				"\n[profile landing]\nsource_profile = owner\nrole_arn = "+role+"landing\nrole_session_name = chained\n"+
				"[profile target]\nsource_profile = "+source+"\nrole_arn = "+role+c.role+"\nrole_session_name = chained\n"+external)
			// The aws command caches a role's session in the home folder, and uses the session even
			// with another source profile. So each case has a home folder of its own.
			asProfile := awsCommand{path: command.path, env: append(slices.Clone(command.env), "HOME="+t.TempDir(), "AWS_CONFIG_FILE="+config, "AWS_PROFILE=target")}
			out, errs, err := asProfile.run(t, "", "sts", "get-caller-identity", "--query", "Arn")
			switch want := "arn:aws:sts::" + workloadAccount + ":assumed-role/" + c.role + "/chained"; {
			case c.granted && (err != nil || out != want):
				t.Errorf("aws is %q, %v; want %s\n%s", out, err, want, errs)
			case !c.granted && (err == nil || !strings.Contains(errs, "AccessDenied")):
				t.Errorf("aws is %q, %v; want AccessDenied\n%s", out, err, errs)
			}
		})
	}
}
