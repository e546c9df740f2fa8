package cloudtest_test

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/ecr"
	"github.com/aws/aws-sdk-go-v2/service/sts"

	"github.com/lanyard-dev/lanyard/cloudtest/internal/must"
	"github.com/lanyard-dev/lanyard/cloudtest/internal/rig"
	"github.com/lanyard-dev/lanyard/cloudtest/journal"
)

// childVariable is the environment variable that makes the test binary run [child] instead of
// tests.
const childVariable = "LANYARD_CLOUDTEST_CHILD"

func TestMain(m *testing.M) {
	if os.Getenv(childVariable) == "" {
		os.Exit(m.Run())
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := child(ctx); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// child is a program that has no code for the local cloud. It uses AWS's SDK with its default
// credential chain. It also sends plain GETs to a host on the internet.
func child(ctx context.Context) error {
	cfg, err := config.LoadDefaultConfig(ctx)
	if err != nil {
		return err
	}
	me, err := sts.NewFromConfig(cfg).GetCallerIdentity(ctx, nil)
	if err != nil {
		return err
	}
	token, err := ecr.NewFromConfig(cfg).GetAuthorizationToken(ctx, nil)
	if err != nil {
		return err
	}
	fmt.Println(*me.Arn, *token.AuthorizationData[0].ProxyEndpoint)
	for _, target := range []string{"https://example.org/", "http://example.org/"} {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, target, nil)
		if err != nil {
			return err
		}
		res, err := http.DefaultTransport.RoundTrip(req)
		if err != nil {
			fmt.Println(err)
			continue
		}
		fmt.Println(res.StatusCode)
		_ = res.Body.Close()
	}
	return nil
}

func TestUnmodifiedProgram(t *testing.T) {
	w := rig.NewWorld(t)
	must.Succeed(t, w.Start(t.Context()))
	dir := t.TempDir()
	ca, token := filepath.Join(dir, "ca.pem"), filepath.Join(dir, "token")
	must.Succeed(t, w.WriteCA(ca))
	must.Succeed(t, os.WriteFile(token, []byte(w.Mint(t, subjectA)), 0o600))
	exe, err := os.Executable()
	must.Succeed(t, err)
	cmd := exec.CommandContext(t.Context(), exe)
	cmd.Env = append([]string{
		childVariable + "=1", "HOME=" + dir, "GOCOVERDIR=" + dir,
		// The next two lines are inherited variables. w.Env must override them.
		"https_proxy=http://127.0.0.1:1", "HTTPS_PROXY=http://127.0.0.1:1", "NO_PROXY=*", "no_proxy=amazonaws.com",
		"AWS_ENDPOINT_URL=http://127.0.0.1:1", "AWS_ENDPOINT_URL_STS=http://127.0.0.1:1", "AWS_CA_BUNDLE=/nonexistent",
		"AWS_REGION=" + region, "AWS_ROLE_ARN=" + roleA, "AWS_WEB_IDENTITY_TOKEN_FILE=" + token, "AWS_ROLE_SESSION_NAME=child",
	}, w.Env(ca)...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	want := "arn:aws:sts::" + account + ":assumed-role/tenant-a-ecr/child https://" + registryHost + "\n" +
		`host "example.org" is not part of this local cloud` + "\n403\n"
	if string(out) != want {
		t.Errorf("the program says\n%swant\n%s", out, want)
	}
	var refused []string
	for _, c := range w.Journal().Calls(journal.Filter{Service: journal.ServiceProxy}) {
		refused = append(refused, c.Operation+" "+c.Host+" "+c.Code)
	}
	if got := strings.Join(refused, ", "); got != "CONNECT example.org UnknownHost, PLAIN example.org PlainHTTP" {
		t.Errorf("the journal has %s", got)
	}
}
