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

// minioTakes has the tokens that MinIO accepts although every cloud refuses them, each with the
// reason.
var minioTakes = map[string]string{
	"wrong issuer": "all its issuers' keys are in one pool",
	"endless":      "its session ends by itself",
}

// TestTokenMatrix presents the same kinds of ServiceAccount tokens to each cloud and to MinIO's
// STS. AWS must agree with MinIO, except for the tokens in minioTakes.
func TestTokenMatrix(t *testing.T) {
	beside(t)
	a, b := newTenant(t, "matrix-a"), newTenant(t, "matrix-b")
	application := a.atAzure(t)
	account := a.atGoogle(t)
	lend(t, googlePrincipal(a.namespace, puller))
	trustAtAliyun(t, local.Issuer)
	aliyunRole := atAliyun(t, a.namespace, local.Issuer, a.subject)
	// MinIO has no trust policies. Instead, it reads the name of a permission policy from the claim
	// sub of a token. Only tenant A's subject is the name of a policy, so MinIO must refuse tenant
	// B's tokens.
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
		// Google's STS accepts all subjects of the cluster. Their permissions are checked where the
		// new token is used.
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
		// MinIO has the same code for every refusal, so also record its messages.
		if others := verdicts["MinIO"]; row.name != "good" {
			words := cmp.Or(others.message, "(granted: "+minioTakes[row.name]+")")
			fmt.Fprintf(&said, "%-15s %s\n", row.name, words)
		}
	}
	golden(t, "testdata/token-matrix.golden", got.String()+"\nMinIO's words:\n"+said.String())
}

// golden compares text with a golden file. With -update it first writes the text to the file.
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

// token requests a ServiceAccount token from the API server of the shared cluster.
func token(t *testing.T, namespace, account string, audiences ...string) string {
	t.Helper()
	return tokenOf(t, apiserver, namespace, account, audiences...)
}

// tokenOf requests a ServiceAccount token from another API server.
func tokenOf(t *testing.T, server kubernetes.Interface, namespace, account string, audiences ...string) string {
	t.Helper()
	seconds := int64(3600)
	answer, err := server.CoreV1().ServiceAccounts(namespace).CreateToken(t.Context(), account,
		&authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{Audiences: audiences, ExpirationSeconds: &seconds}}, metav1.CreateOptions{})
	must(t, "request a token", err)
	return answer.Status.Token
}

// readKey returns the key with which a cluster's API server signs tokens. Tests need it to make
// expired tokens, because waiting would take too long.
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

// sign copies a token, and signs the copy with this key. The copy keeps the token's key ID. Some
// claims are replaced, or left out if their new value is nil.
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
