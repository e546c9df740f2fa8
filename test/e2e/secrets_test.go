package e2e

import (
	"context"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/lanyard-dev/lanyard/api/toolkit/v1alpha1"
	"github.com/lanyard-dev/lanyard/cloudtest/aws"
	"github.com/lanyard-dev/lanyard/internal/kinds"
	"github.com/lanyard-dev/lanyard/internal/local"
	"github.com/lanyard-dev/lanyard/internal/report"
	"github.com/lanyard-dev/lanyard/test/e2e/stage"
)

// secretMark is the prefix of all passwords in these tests, so that tests find them in any text.
const secretMark = "e2e-secret-"

// secrets has patterns of text that must appear nowhere:
//   - the tests' own passwords
//   - headers with credentials
//   - private keys
//   - ECR's authorization tokens (base64 of "AWS:")
//   - the keys, secrets and tokens of AWS sessions
//   - the access keys of AWS users
//   - Google's access tokens
//   - signatures in URLs
//   - the secret part of an artifact's URL
//
// The function [findJSON] finds JSON in base64.
var secrets = stage.NewPatterns(append(artifactAddresses(),
	secretMark, `Basic [A-Za-z0-9+/._~-]{16}`, `Bearer [A-Za-z0-9+/._~-]{16}`, `PRIVATE KEY-----`, `QVdTO[A-Za-z0-9+/]{10}`,
	`ASIA[A-Z0-9]{16}`, `AKIA[A-Z0-9]{16}`, aws.SessionSecretPrefix, `IQoJb3JpZ2luX2Vj`, `ya29\.`,
	`X-Amz-Signature=[A-Za-z0-9%]{10}`, `\?sig=[A-Za-z0-9%]{10}`, `&sig=[A-Za-z0-9%]{10}`,
)...)

// artifactAddresses returns patterns of the paths of artifacts, for each kind that keeps artifacts.
func artifactAddresses() (patterns []string) {
	for _, kind := range kinds.All().Where(kinds.Kind.KeepsArtifacts) {
		patterns = append(patterns, "/"+strings.ToLower(kind.Kind)+`/[^/ ]+/[^/ ]+/[0-9a-f]{64}/`)
	}
	return patterns
}

// encodedLetters is the number of base64 letters that findJSON decodes to recognize a JSON object.
const encodedLetters = 12

// encodedStart matches the first letters of a JSON object in base64, which are eyJ. Public keys may
// contain these letters by chance, but not followed by the name of a field. So objectStart matches
// the decoded start of an object, up to a field's name.
var (
	encodedStart = stage.NewPattern(`eyJ[A-Za-z0-9+/_-]{9}`)
	objectStart  = regexp.MustCompile(`^{"\w+("|$)`)
)

// findJSON returns the index of a JSON object in base64, or -1. The header and the claims of a JWT
// are such objects. So are ECR's passwords and the logins of docker.
func findJSON(text string) int {
	for at := encodedStart.Find(text, 0); at >= 0; at = encodedStart.Find(text, at+1) {
		letters := strings.NewReplacer("-", "+", "_", "/").Replace(text[at : at+encodedLetters])
		if decoded, err := base64.StdEncoding.DecodeString(letters); err == nil && objectStart.Match(decoded) {
			return at
		}
	}
	return -1
}

// findSecret returns the index of text that looks like a secret, or -1.
func findSecret(text string) int {
	if at := findJSON(text); at >= 0 {
		return at
	}
	return secrets.Find(text)
}

// minted has parts of secrets that Lanyard created during the tests. Tests search for the exact
// text of these parts. The patterns in the variable secrets do not match every part. For example,
// they do not match the signature of a JWT.
var minted collection

// collection has signatures of JWTs and lines of private keys, so that tests can search other text
// for them. It is safe for concurrent use.
type collection struct {
	mu    sync.Mutex
	parts map[string]bool
}

// wholeJWT matches a complete JWT, and extracts the signature. Only the signature is secret: a JWT
// is useless without it.
var wholeJWT = regexp.MustCompile(`eyJ[A-Za-z0-9_-]+\.eyJ[A-Za-z0-9_-]+\.([A-Za-z0-9_-]{40,})`)

// add stores the secret parts of a text: the signatures of JWTs, and the lines of private keys in
// PEM.
func (c *collection) add(text []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.parts == nil {
		c.parts = map[string]bool{}
	}
	for _, token := range wholeJWT.FindAllSubmatch(text, -1) {
		c.parts[string(token[1])] = true
	}
	for block, rest := pem.Decode(text); block != nil; block, rest = pem.Decode(rest) {
		if !strings.HasSuffix(block.Type, "PRIVATE KEY") {
			continue
		}
		for line := range strings.Lines(string(pem.EncodeToMemory(&pem.Block{Type: block.Type, Bytes: block.Bytes}))) {
			if line = strings.TrimSpace(line); len(line) == 64 {
				c.parts[line] = true
			}
		}
	}
}

// find returns the index in text at which one of c.parts begins, or -1 if text contains none of
// them.
func (c *collection) find(text string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	for part := range c.parts {
		if at := strings.Index(text, part); at >= 0 {
			return at
		}
	}
	return -1
}

// TestPatternsFindSecrets checks that each pattern finds a secret, and no pattern matches public
// text.
func TestPatternsFindSecrets(t *testing.T) {
	beside(t)
	found := make([]bool, len(secrets))
	for _, text := range []string{
		"password " + secretMark + "1", "Authorization: Basic dXNlcjpwYXNzd29yZA==", "Authorization: Bearer 0123456789abcdef", "token eyJhbGciOiJSUzI1NiJ9.", "password eyJkYXRha2V5IjoiYWJj", "login eyJhdXRocyI6eyJh", "cut eyJhY2Nlc3NfdG",
		"-----BEGIN RSA PRIVATE KEY-----", "auth QVdTOmV5SjBlWEFp", "id ASIAIOSFODNN7EXAMPLE", "id AKIAIOSFODNN7EXAMPLE", "secret " + aws.SessionSecretPrefix + "1",
		"session IQoJb3JpZ2luX2VjEJ", "token ya29.c.b0", "/a?X-Amz-Signature=0123456789", "/a?sig=0123456789", "/a?b=c&sig=01234%2F789",
		"/ocirepository/a/b/" + strings.Repeat("0f", 32) + "/c", "/bucket/a/b/" + strings.Repeat("0f", 32) + "/c",
	} {
		if findSecret(text) < 0 {
			t.Errorf("%q is not found", text)
		}
		for i, pattern := range secrets {
			found[i] = found[i] || pattern.Find(text, 0) >= 0
		}
	}
	if i := slices.Index(found, false); i >= 0 {
		t.Errorf("no example has the pattern of index %d", i)
	}
	if at := findSecret("Authorization: Basic, Bearer; -----BEGIN PUBLIC KEY-----; NYn4jE4MJX2eyJ9V7tuDWm5rsA; /ocirepository/a/b/latest; ?sig="); at >= 0 {
		t.Errorf("what is public is found at %d", at)
	}
}

// TestMintedSecretsAreFound adds a JWT and a private key to a collection. The collection must then
// find the JWT's signature and a line of the key in other texts. Such a part alone need not look
// like a secret: no pattern matches the signature.
func TestMintedSecretsAreFound(t *testing.T) {
	beside(t)
	var c collection
	key, err := x509.MarshalPKCS8PrivateKey(newKey(t))
	must(t, "write a key", err)
	private := pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: key})
	jwt := "eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJhIn0." + strings.Repeat("s1gN", 20)
	c.add(private)
	c.add([]byte("Authorization: Bearer " + jwt))
	signature := "level=debug msg=" + strings.Repeat("s1gN", 20) + "."
	if findSecret(signature) >= 0 {
		t.Error("the signature looks like a secret: this tests nothing")
	}
	for name, text := range map[string]string{"a signature": signature, "a line of a key": "a " + strings.Split(string(private), "\n")[3]} {
		if c.find(text) < 0 {
			t.Errorf("%s is not found", name)
		}
	}
	if at := c.find("eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJhIn0. -----BEGIN CERTIFICATE-----"); at >= 0 {
		t.Errorf("what is public is found at %d", at)
	}
}

// loudest returns chart values that set the log level of all programs to debug.
func loudest() map[string]any { return map[string]any{"log": map[string]any{"level": "debug"}} }

// wantNoSecrets searches for secrets in everything that people read: all logs, objects and events
// of the shared cluster.
func wantNoSecrets(t *testing.T) {
	t.Helper()
	if jwt := token(t, "default", "default", stsAudience); findSecret(jwt) < 0 {
		t.Fatal("the pattern of secrets does not know a token of the API server")
	}
	addSecretsOf(t.Context(), t, world)
	wantNoSecretsInLogs(t)
	if found, events := wantNoSecretsIn(t.Context(), t, world, ""); found == 0 || events == 0 {
		t.Errorf("there are %d objects and %d events: nothing was looked at", found, events)
	}
}

func wantNoSecretsInLogs(tb testing.TB) {
	tb.Helper()
	logs := controllerLogs(tb)
	if len(logs) == 0 {
		tb.Error("there is no log of a controller")
	}
	// The API server also receives tokens, so search its logs too.
	for _, path := range append(logs, world.Path("controlplane.log"), world.Path("cluster", "audit.log")) {
		text, err := os.ReadFile(path)
		must(tb, "read a log", err)
		wantNoSecret(tb, path, string(text))
	}
}

// wantNoSecretsAt searches for secrets in all logs, objects and events of another cluster.
func wantNoSecretsAt(ctx context.Context, t *testing.T, cluster *local.Cluster) {
	t.Helper()
	addSecretsOf(ctx, t, cluster)
	logs, err := filepath.Glob(cluster.Path("*.log"))
	must(t, "find the logs", err)
	for _, path := range append(logs, cluster.Path("cluster", "audit.log")) {
		text, err := os.ReadFile(path)
		must(t, "read a log", err)
		wantNoSecret(t, path, string(text))
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	typed, err := kubernetes.NewForConfig(cluster.Config())
	must(t, "make a client", err)
	switch _, err := typed.Discovery().ServerResourcesForGroupVersion(v1alpha1.GroupVersion().String()); {
	case apierrors.IsNotFound(err): // the chart is not installed
	default:
		must(t, "list the kinds", err)
		wantNoSecretsIn(ctx, t, cluster, "")
	}
}

// wantNoSecretsIn searches for secrets in the objects of a namespace and the events about them. An
// empty namespace means all namespaces. It returns the numbers of objects and events.
func wantNoSecretsIn(ctx context.Context, t *testing.T, cluster *local.Cluster, namespace string) (found, events int) {
	t.Helper()
	all, err := report.List(ctx, cluster.Client(), kinds.All(), namespace)
	must(t, "list the objects", err)
	for _, o := range all {
		if artifact := o.Artifact(); artifact != nil {
			// Do not search the URL of the artifact. Part of it is secret, but whoever may read the
			// object may also read the artifact.
			artifact.URL = ""
		}
		text, err := json.Marshal(o.Resource)
		must(t, "write an object", err)
		wantNoSecret(t, o.Kind.Kind+" "+o.GetNamespace()+"/"+o.GetName(), string(text))
	}
	// Also search the kinds that report.List leaves out.
	for _, kind := range kinds.All().Where(func(k kinds.Kind) bool { return !report.Lists(k) }) {
		list := kind.NewList()
		must(t, "list the objects", cluster.Client().List(ctx, list, client.InNamespace(namespace)))
		text, err := json.Marshal(list)
		must(t, "write objects", err)
		wantNoSecret(t, fmt.Sprintf("a %T", list), string(text))
	}
	typed, err := kubernetes.NewForConfig(cluster.Config())
	must(t, "make a client", err)
	told, err := typed.EventsV1().Events(namespace).List(ctx, listAll)
	must(t, "list events", err)
	for _, e := range told.Items {
		wantNoSecret(t, "event "+e.Namespace+"/"+e.Name, e.Note)
	}
	return len(all), len(told.Items)
}

// addSecretsOf adds the values in a cluster's Secrets to the collection [minted]. These values
// include delivered tokens and the private keys of key rings.
func addSecretsOf(ctx context.Context, t *testing.T, cluster *local.Cluster) {
	t.Helper()
	var all corev1.SecretList
	must(t, "list the Secrets", cluster.Client().List(ctx, &all))
	for _, secret := range all.Items {
		for _, value := range secret.Data {
			minted.add(value)
		}
	}
}

func wantNoSecret(tb testing.TB, where, text string) {
	tb.Helper()
	if at := minted.find(text); at >= 0 {
		tb.Errorf("%s holds a secret that was made, after %q", where, text[max(0, at-80):at])
	}
	if at := findSecret(text); at >= 0 {
		tb.Errorf("%s holds a secret after %q", where, text[max(0, at-80):at+4])
	}
}
