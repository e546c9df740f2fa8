package e2e

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/lanyard-dev/lanyard/internal/local"
)

// minio is a running MinIO server with an OpenID provider.
type minio struct {
	url    string // ends with a slash
	client *http.Client
}

const (
	minioUser     = "e2e-root"
	minioPassword = secretMark + "of-minio"
)

// minioConfig has the settings that differ between tests.
type minioConfig struct {
	// claim is the name of the claim that contains the name of the session's policy.
	claim string
	// issuer is the OpenID provider. Default: the issuer of the cluster.
	issuer string
	// audience of the tokens that the server accepts. Default: the server's host:port.
	audience string
	// authority issues the server's certificate. Nil: the server uses plain HTTP.
	authority *authority
}

// startMinIO starts the unmodified MinIO in the local cloud. MinIO reads the discovery document at
// the issuer's own URL. It uses the cloud's proxy, and trusts the cloud's CA.
func startMinIO(t *testing.T, config minioConfig) *minio {
	t.Helper()
	dir := t.TempDir()
	certs := filepath.Join(dir, "certs")
	must(t, "make a folder", os.MkdirAll(filepath.Join(certs, "CAs"), 0o700))
	must(t, "write the CA", os.WriteFile(filepath.Join(certs, "CAs", "cloud.crt"), world.Cloud().CAPEM(), 0o600))
	address := freeAddress(t)
	m := &minio{url: "http://" + address + "/", client: direct}
	if config.authority != nil {
		certificate, key := config.authority.issue(t)
		must(t, "write a certificate", os.WriteFile(filepath.Join(certs, "public.crt"), certificate, 0o600))
		must(t, "write a key", os.WriteFile(filepath.Join(certs, "private.key"), key, 0o600))
		m.url, m.client = "https://"+address+"/", config.authority.client()
	}
	startForeign(t, "MinIO", m.url+"minio/health/ready", m.client, append(world.Cloud().Env(),
		"HOME="+dir,
		"MINIO_ROOT_USER="+minioUser,
		"MINIO_ROOT_PASSWORD="+minioPassword,
		"MINIO_BROWSER=off",
		"MINIO_UPDATE=off",
		"MINIO_IDENTITY_OPENID_CONFIG_URL="+cmp.Or(config.issuer, local.Issuer)+"/.well-known/openid-configuration",
		"MINIO_IDENTITY_OPENID_CLIENT_ID="+cmp.Or(config.audience, address),
		"MINIO_IDENTITY_OPENID_CLAIM_NAME="+config.claim,
	), binary("minio"), "server", "--address", address, "--certs-dir", certs, filepath.Join(dir, "data"))
	return m
}

// host is the server's host:port.
func (m *minio) host(t *testing.T) string {
	t.Helper()
	u, err := url.Parse(m.url)
	must(t, "read a URL", err)
	return u.Host
}

// root returns an S3 client that acts as the server's root user.
func (m *minio) root() *s3.Client {
	return s3.New(s3.Options{
		BaseEndpoint: &m.url, Region: "us-east-1", UsePathStyle: true, HTTPClient: m.client,
		Credentials: credentials.NewStaticCredentialsProvider(minioUser, minioPassword, ""),
	})
}

// putBucket creates a bucket with these objects.
func (m *minio) putBucket(t *testing.T, name string, files map[string]string) {
	t.Helper()
	_, err := m.root().CreateBucket(t.Context(), &s3.CreateBucketInput{Bucket: &name})
	must(t, "make a bucket at MinIO", err)
	for key, content := range files {
		_, err := m.root().PutObject(t.Context(), &s3.PutObjectInput{Bucket: &name, Key: &key, Body: strings.NewReader(content)})
		must(t, "put an object into MinIO", err)
	}
}

// putPolicy creates a policy with MinIO's admin API. Its requests are signed like those of S3.
func (m *minio) putPolicy(t *testing.T, name, document string) {
	t.Helper()
	hash := sha256.Sum256([]byte(document))
	// The server becomes ready a little before it has loaded its users and policies.
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
		res, err := m.client.Do(req)
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
