package e2e

import (
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"encoding/xml"
	"flag"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
	"github.com/lanyard-dev/lanyard/internal/local"
	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// TestTokenMatrix gives the same tokens of the API server to the local cloud's STS and to MinIO's, and holds both columns of
// verdicts. They differ in one row: MinIO does not compare the issuer, since all its issuers' keys are in one pool.
func TestTokenMatrix(t *testing.T) {
	a, b := newTenant(t, "matrix-a"), newTenant(t, "matrix-b")
	// MinIO knows no trust policies: its rule is that a claim names a policy. Only tenant A's subject is one.
	minio := startMinIO(t, "sub")
	minio.putPolicy(t, a.subject, `{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Action":["s3:ListAllMyBuckets"],"Resource":["arn:aws:s3:::*"]}]}`)

	good := token(t, a.namespace, puller, stsAudience)
	theirs := readKey(t)
	matrix := []struct{ name, token string }{
		{"good", good},
		{"other tenant", token(t, b.namespace, puller, stsAudience)},
		{"wrong audience", token(t, a.namespace, puller, "vault.example.com")},
		{"expired", sign(t, good, theirs, map[string]any{"exp": time.Now().Add(-time.Hour).Unix(), "iat": time.Now().Add(-2 * time.Hour).Unix(), "nbf": time.Now().Add(-2 * time.Hour).Unix()})},
		{"forged", sign(t, good, newKey(t), nil)},
		{"wrong issuer", sign(t, good, theirs, map[string]any{"iss": "https://issuer.example.com"})},
		{"none", ""},
	}
	var got strings.Builder
	fmt.Fprintf(&got, "%-15s %-35s %s\n", "token", "local cloud", "MinIO")
	for _, row := range matrix {
		ours := assume(t, cloudClient(), stsURL, a.role, row.token)
		others := assume(t, direct, minio.url, a.role, row.token)
		note := others.message // its code is the same for every refusal
		if ours.granted() != others.granted() {
			note = "(differs: MinIO does not check the issuer)"
			if row.name != "wrong issuer" {
				t.Errorf("%s: the local cloud says %s, MinIO says %s", row.name, ours, others)
			}
		}
		got.WriteString(strings.TrimSpace(fmt.Sprintf("%-15s %-35s %-35s %s", row.name, ours, others, note)) + "\n")
	}
	golden(t, "testdata/token-matrix.golden", got.String())
}

// stsURL is the local cloud's STS.
const stsURL = "https://sts." + local.Region + ".amazonaws.com/"

func cloudClient() *http.Client { return &http.Client{Transport: world.Cloud().Transport()} }

// golden compares with a file, or writes it.
func golden(t *testing.T, path, got string) {
	t.Helper()
	if *update {
		must(t, "write a golden file", os.WriteFile(path, []byte(got), 0o644))
	}
	want, err := os.ReadFile(path)
	must(t, "read a golden file", err)
	if got != string(want) {
		t.Errorf("%s differs (go test -update writes it):\n--- want\n%s--- got\n%s", path, want, got)
	}
}

// verdict is what an STS says of a token.
type verdict struct {
	status  int
	code    string // empty if granted
	message string // for people
}

func (v verdict) granted() bool { return v.status == http.StatusOK && v.code == "" }

func (v verdict) String() string {
	if v.granted() {
		return "granted"
	}
	return fmt.Sprintf("refused %d %s", v.status, v.code)
}

// assume calls AssumeRoleWithWebIdentity as any client does. Source: AWS STS API Reference, which MinIO follows.
func assume(t *testing.T, client *http.Client, endpoint, role, token string) verdict {
	t.Helper()
	form := url.Values{
		"Action": {"AssumeRoleWithWebIdentity"}, "Version": {"2011-06-15"},
		"RoleArn": {role}, "RoleSessionName": {"matrix"}, "DurationSeconds": {"900"}, "WebIdentityToken": {token},
	}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, endpoint, strings.NewReader(form.Encode()))
	must(t, "make a request", err)
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	res, err := client.Do(req)
	must(t, "call "+endpoint, err)
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	must(t, "read the answer", err)
	var answer struct {
		Session string `xml:"AssumeRoleWithWebIdentityResult>Credentials>SessionToken"`
		Code    string `xml:"Error>Code"`
		Message string `xml:"Error>Message"`
	}
	must(t, "read the answer", xml.Unmarshal(body, &answer))
	if (answer.Session == "") == (answer.Code == "") {
		t.Fatalf("%s answered neither with a session nor with an error, or with both: HTTP %d", endpoint, res.StatusCode)
	}
	return verdict{status: res.StatusCode, code: answer.Code, message: answer.Message}
}

// token is a token of the API server for a ServiceAccount.
func token(t *testing.T, namespace, account string, audiences ...string) string {
	t.Helper()
	seconds := int64(3600)
	answer, err := apiserver.CoreV1().ServiceAccounts(namespace).CreateToken(t.Context(), account,
		&authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{Audiences: audiences, ExpirationSeconds: &seconds}}, metav1.CreateOptions{})
	must(t, "request a token", err)
	return answer.Status.Token
}

// readKey is the key with which the API server signs tokens: a token that has expired cannot be waited for.
func readKey(t *testing.T) *rsa.PrivateKey {
	t.Helper()
	data, err := os.ReadFile(world.Path("cluster", "sa.key"))
	must(t, "read the API server's signing key", err)
	block, _ := pem.Decode(data)
	if block == nil {
		t.Fatal("the API server's signing key is not PEM")
	}
	key, pkcs1 := x509.ParsePKCS1PrivateKey(block.Bytes)
	if pkcs1 == nil {
		return key
	}
	parsed, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	must(t, "read the API server's signing key", err)
	return parsed.(*rsa.PrivateKey)
}

func newKey(t *testing.T) *rsa.PrivateKey {
	t.Helper()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	must(t, "make a key", err)
	return key
}

// sign makes a token like another one, under its key ID, with a key and with some claims replaced.
func sign(t *testing.T, like string, key *rsa.PrivateKey, replace map[string]any) string {
	t.Helper()
	parsed, err := jwt.ParseSigned(like, []jose.SignatureAlgorithm{jose.RS256})
	must(t, "read a token", err)
	claims := map[string]any{}
	must(t, "read a token's claims", parsed.UnsafeClaimsWithoutVerification(&claims))
	maps.Copy(claims, replace)
	signer, err := jose.NewSigner(jose.SigningKey{
		Algorithm: jose.RS256, Key: jose.JSONWebKey{Key: key, KeyID: parsed.Headers[0].KeyID},
	}, nil)
	must(t, "make a signer", err)
	signed, err := jwt.Signed(signer).Claims(claims).Serialize()
	must(t, "sign a token", err)
	return signed
}
