package e2e

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lanyard-dev/lanyard/cloudtest/journal"
	"github.com/lanyard-dev/lanyard/internal/local"
)

// TestAWSCommand has the unmodified aws command assume a role with a token of the API server, through the local cloud, in
// the environment that `lanyard cloud env` prints.
func TestAWSCommand(t *testing.T) {
	aws, err := exec.LookPath("aws")
	if err != nil {
		t.Fatal("the aws command is missing: apt-get install awscli")
	}
	a, b := newTenant(t, "awscli-a"), newTenant(t, "awscli-b")
	printed, err := exec.CommandContext(t.Context(), binary("lanyard"), "cloud", "env", "--dir", world.Path(), "-o", "dotenv").Output()
	must(t, "lanyard cloud env", err)
	env := slices.Clip(strings.Fields(string(printed)))
	tokenFile := filepath.Join(t.TempDir(), "token")
	must(t, "write the token", os.WriteFile(tokenFile, []byte(token(t, a.namespace, puller, stsAudience)), 0o600))
	identity := func(role string) (stdout, stderr string, err error) {
		cmd := exec.CommandContext(t.Context(), aws, "sts", "get-caller-identity", "--query", "Arn", "--output", "text")
		home := t.TempDir() // no profile of whoever runs the tests
		cmd.Env = append(env,
			"PATH="+os.Getenv("PATH"), "HOME="+home, "LC_ALL=C.UTF-8",
			"AWS_WEB_IDENTITY_TOKEN_FILE="+tokenFile, "AWS_ROLE_ARN="+role, "AWS_ROLE_SESSION_NAME=awscli",
			"AWS_REGION="+local.Region, "AWS_DEFAULT_REGION="+local.Region, "AWS_STS_REGIONAL_ENDPOINTS=regional",
			"AWS_MAX_ATTEMPTS=1",
		)
		var out, errs bytes.Buffer
		cmd.Stdout, cmd.Stderr = &out, &errs
		err = cmd.Run()
		return strings.TrimSpace(out.String()), strings.TrimSpace(errs.String()), err
	}
	begin := time.Now()
	out, errs, err := identity(a.role)
	if want := "arn:aws:sts::" + local.Account + ":assumed-role/" + a.namespace + "/awscli"; err != nil || out != want {
		t.Errorf("as tenant A: %q, %v; want %q\n%s", out, err, want, errs)
	}
	t.Logf("aws took %s", time.Since(begin).Round(time.Millisecond))

	out, errs, err = identity(b.role)
	if err == nil || !strings.Contains(errs, "AccessDenied") || !strings.Contains(errs, "AssumeRoleWithWebIdentity") {
		t.Errorf("with tenant B's role: %q, %v, want AccessDenied of AssumeRoleWithWebIdentity\n%s", out, err, errs)
	}
	calls := world.Cloud().Journal().Calls(journal.Filter{Operation: "AssumeRoleWithWebIdentity", Role: b.role})
	if len(calls) == 0 || calls[len(calls)-1].Granted() || calls[len(calls)-1].Subject != a.subject {
		t.Errorf("the journal tells of the attempt on tenant B's role: %+v", calls)
	}
}
