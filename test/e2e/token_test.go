package e2e

import (
	"cmp"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"flag"
	"fmt"
	"maps"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/lanyard-dev/lanyard/internal/local"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// minioTakes are the tokens that MinIO takes and no cloud does, and why.
var minioTakes = map[string]string{
	"wrong issuer": "all its issuers' keys are in one pool",
	"endless":      "its session ends by itself",
}

// TestTokenMatrix gives the same kinds of tokens of the API server to each cloud, and to MinIO's
// STS, which is not ours: AWS agrees with it, except for what MinIO takes.
func TestTokenMatrix(t *testing.T) {
	beside(t)
	a, b := newTenant(t, "matrix-a"), newTenant(t, "matrix-b")
	application := a.atAzure(t)
	account := a.atGoogle(t)
	lend(t, googlePrincipal(a.namespace, puller))
	trustAtAliyun(t, local.Issuer)
	aliyunRole := atAliyun(t, a.namespace, local.Issuer, a.subject)
	// MinIO knows no trust policies: its rule is that a claim names a policy. Only tenant A's
	// subject is one.
	minio := startMinIO(t, minioConfig{claim: "sub", audience: stsAudience})
	minio.putPolicy(t, a.subject, `{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Action":["s3:ListAllMyBuckets"],"Resource":["arn:aws:s3:::*"]}]}`)

	theirs, mine := readKey(t, world), newKey(t)
	like := func(audience string, key *rsa.PrivateKey, replace map[string]any) string {
		return sign(t, token(t, a.namespace, puller, audience), key, replace)
	}
	in := func(d time.Duration) int64 { return time.Now().Add(d).Unix() }
	rows := []struct {
		name  string
		token func(audience string) string
	}{
		{"good", func(audience string) string { return token(t, a.namespace, puller, audience) }},
		{"other tenant", func(audience string) string { return token(t, b.namespace, puller, audience) }},
		{"wrong audience", func(string) string { return token(t, a.namespace, puller, "vault.example.com") }},
		{"expired", func(audience string) string {
			return like(audience, theirs, map[string]any{"exp": in(-time.Hour), "iat": in(-2 * time.Hour), "nbf": in(-2 * time.Hour)})
		}},
		{"not yet valid", func(audience string) string {
			return like(audience, theirs, map[string]any{"exp": in(time.Hour), "iat": in(10 * time.Minute), "nbf": in(10 * time.Minute)})
		}},
		{"endless", func(audience string) string { return like(audience, theirs, map[string]any{"exp": nil}) }},
		{"forged", func(audience string) string { return like(audience, mine, nil) }},
		{"wrong issuer", func(audience string) string {
			return like(audience, theirs, map[string]any{"iss": "https://issuer.example.com"})
		}},
		{"none", func(string) string { return "" }},
	}
	columns := []struct {
		name, audience string
		judge          func(token string) verdict
	}{
		{"AWS STS", stsAudience, func(token string) verdict { return assume(t, cloudClient(), stsURL, a.role, token) }},
		{"MinIO", stsAudience, func(token string) verdict { return assume(t, direct, minio.url, a.role, token) }},
		{"Microsoft Entra", azureAudience, func(token string) verdict {
			_, v := entraToken(t, application, token)
			return v
		}},
		// Google's STS takes whoever the cluster vouches for; what that one may do is asked where
		// he goes with its token.
		{"Google, as a service account", googlePool, func(token string) verdict {
			federated, v := googleToken(t, token)
			if v.granted() {
				_, v = impersonate(t, account, federated)
			}
			return v
		}},
		{"Google, as itself", googlePool, func(token string) verdict {
			federated, v := googleToken(t, token)
			if v.granted() {
				v = listBucket(t, e2eBucket, federated)
			}
			return v
		}},
		{"Alibaba Cloud", aliyunAudience, func(token string) verdict { return aliyunAssume(t, local.Issuer, aliyunRole, token) }},
	}

	var got, said strings.Builder
	write := func(cells []string) {
		got.WriteString(strings.TrimSpace(fmt.Sprintf("%-15s %-34s %-34s %-25s %-30s %-30s %s", cells[0], cells[1], cells[2], cells[3], cells[4], cells[5], cells[6])) + "\n")
	}
	header := []string{"token"}
	for _, column := range columns {
		header = append(header, column.name)
	}
	write(header)
	for _, row := range rows {
		cells, verdicts := []string{row.name}, map[string]verdict{}
		for _, column := range columns {
			v := column.judge(row.token(column.audience))
			cells, verdicts[column.name] = append(cells, v.String()), v
		}
		write(cells)
		for name, v := range verdicts {
			if v.granted() != (row.name == "good" || name == "MinIO" && minioTakes[row.name] != "") {
				t.Errorf("%s: %s says %s", row.name, name, v)
			}
		}
		if others := verdicts["MinIO"]; row.name != "good" { // its code is the same for every refusal
			words := cmp.Or(others.message, "(granted: "+minioTakes[row.name]+")")
			fmt.Fprintf(&said, "%-15s %s\n", row.name, words)
		}
	}
	golden(t, "testdata/token-matrix.golden", got.String()+"\nMinIO's words:\n"+said.String())
}

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

// token is a token of the API server for a ServiceAccount.
func token(t *testing.T, namespace, account string, audiences ...string) string {
	t.Helper()
	return tokenOf(t, apiserver, namespace, account, audiences...)
}

// tokenOf is a token of another API server.
func tokenOf(t *testing.T, server kubernetes.Interface, namespace, account string, audiences ...string) string {
	t.Helper()
	seconds := int64(3600)
	answer, err := server.CoreV1().ServiceAccounts(namespace).CreateToken(t.Context(), account,
		&authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{Audiences: audiences, ExpirationSeconds: &seconds}}, metav1.CreateOptions{})
	must(t, "request a token", err)
	return answer.Status.Token
}

// readKey is the key with which a cluster's API server signs tokens: a token that has expired
// cannot be waited for.
func readKey(t *testing.T, cluster *local.Cluster) *rsa.PrivateKey {
	t.Helper()
	data, err := os.ReadFile(cluster.Path("cluster", "sa.key"))
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

// sign makes a token like another one, under its key ID, with a key and with some claims replaced,
// or left out if they are nil.
func sign(t *testing.T, like string, key *rsa.PrivateKey, replace map[string]any) string {
	t.Helper()
	parsed, err := jwt.ParseSigned(like, []jose.SignatureAlgorithm{jose.RS256})
	must(t, "read a token", err)
	claims := map[string]any{}
	must(t, "read a token's claims", parsed.UnsafeClaimsWithoutVerification(&claims))
	maps.Copy(claims, replace)
	maps.DeleteFunc(claims, func(_ string, value any) bool { return value == nil })
	signer, err := jose.NewSigner(jose.SigningKey{
		Algorithm: jose.RS256, Key: jose.JSONWebKey{Key: key, KeyID: parsed.Headers[0].KeyID},
	}, nil)
	must(t, "make a signer", err)
	signed, err := jwt.Signed(signer).Claims(claims).Serialize()
	must(t, "sign a token", err)
	return signed
}
