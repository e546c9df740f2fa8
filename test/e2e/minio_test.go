package e2e

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/signer/v4"
	"github.com/lanyard-dev/lanyard/internal/local"
)

// minio is a running MinIO server that knows the cluster as an OpenID provider.
type minio struct {
	url string // ends with a slash
}

const (
	minioUser     = "e2e-root"
	minioPassword = "worth-something-only-here"
)

// startMinIO starts MinIO as an unmodified program in the local cloud: it reads the cluster's discovery document under the
// issuer's real name, through the cloud's proxy and with the cloud's CA. The claim names the policy of a session.
func startMinIO(t *testing.T, claim string) *minio {
	t.Helper()
	dir := t.TempDir()
	authorities := filepath.Join(dir, "certs", "CAs")
	must(t, "make a folder", os.MkdirAll(authorities, 0o700))
	must(t, "write the CA", os.WriteFile(filepath.Join(authorities, "cloud.crt"), world.Cloud().CAPEM(), 0o600))
	address := freeAddress(t)
	log, err := os.Create(filepath.Join(dir, "minio.log"))
	must(t, "open a log", err)

	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	cmd := exec.CommandContext(ctx, binary("minio"), "server", "--address", address, "--certs-dir", filepath.Join(dir, "certs"), filepath.Join(dir, "data"))
	cmd.Env = append(world.Env(),
		"HOME="+dir,
		"MINIO_ROOT_USER="+minioUser,
		"MINIO_ROOT_PASSWORD="+minioPassword,
		"MINIO_BROWSER=off",
		"MINIO_UPDATE=off",
		"MINIO_IDENTITY_OPENID_CONFIG_URL="+local.Issuer+"/.well-known/openid-configuration",
		"MINIO_IDENTITY_OPENID_CLIENT_ID="+stsAudience,
		"MINIO_IDENTITY_OPENID_CLAIM_NAME="+claim,
	)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	must(t, "start MinIO", cmd.Start())
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	t.Cleanup(func() {
		cancel()
		<-ended
		if t.Failed() {
			text, _ := os.ReadFile(log.Name())
			t.Logf("MinIO's log:\n%s", text)
		}
		_ = log.Close()
	})
	m := &minio{url: "http://" + address + "/"}
	eventually(t, "MinIO's start", func(ctx context.Context) error {
		select {
		case err := <-ended:
			ended <- err
			t.Fatalf("MinIO ended: %v", err)
		default:
		}
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, m.url+"minio/health/ready", nil)
		if err != nil {
			return err
		}
		res, err := direct.Do(req)
		if err != nil {
			return err
		}
		defer res.Body.Close()
		return wantf(res.StatusCode == http.StatusOK, "HTTP %d", res.StatusCode)
	})
	return m
}

// putPolicy makes a policy with MinIO's admin API, which is signed as S3 is.
func (m *minio) putPolicy(t *testing.T, name, document string) {
	t.Helper()
	hash := sha256.Sum256([]byte(document))
	// The server is ready a little before it has read its users and policies.
	eventually(t, "make a policy at MinIO", func(ctx context.Context) error {
		req, err := http.NewRequestWithContext(ctx, http.MethodPut,
			m.url+"minio/admin/v3/add-canned-policy?name="+url.QueryEscape(name), bytes.NewReader([]byte(document)))
		if err != nil {
			return err
		}
		sum := hex.EncodeToString(hash[:])
		req.Header.Set("X-Amz-Content-Sha256", sum)
		keys := awssdk.Credentials{AccessKeyID: minioUser, SecretAccessKey: minioPassword}
		if err := v4.NewSigner().SignHTTP(ctx, keys, req, sum, "s3", "us-east-1", time.Now()); err != nil {
			return err
		}
		res, err := direct.Do(req)
		if err != nil {
			return err
		}
		defer res.Body.Close()
		text, err := io.ReadAll(res.Body)
		if err != nil {
			return err
		}
		if res.StatusCode != http.StatusOK {
			return fmt.Errorf("HTTP %d: %s", res.StatusCode, strings.TrimSpace(string(text)))
		}
		return nil
	})
}
