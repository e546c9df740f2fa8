package flags_test

import (
	"io"
	"io/fs"
	"log/slog"
	"regexp"
	"strings"
	"testing"
	"time"
	"unicode"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/lanyard-dev/lanyard/auth/endpoint"
	"github.com/lanyard-dev/lanyard/charts"
	"github.com/lanyard-dev/lanyard/internal/broker"
	"github.com/lanyard-dev/lanyard/internal/controller/flags"
	"github.com/lanyard-dev/lanyard/internal/golden"
	"github.com/lanyard-dev/lanyard/internal/must"
)

func environment(name string) string {
	return map[string]string{"AWS_REGION": "eu-west-1", "SPIFFE_ENDPOINT_SOCKET": "unix:///run/agent.sock"}[name]
}

func nothing(string) string { return "" }

const base = "--artifact-base-url=http://artifacts.example.com"

// help returns the output of --help.
func help(t *testing.T) string {
	t.Helper()
	var out strings.Builder
	if _, done, err := flags.Parse([]string{"--help"}, nothing, "", &out); err != nil || !done {
		t.Fatal(err)
	}
	return out.String()
}

func TestHelpIsGolden(t *testing.T) {
	help := help(t)
	// pflag counts bytes, not characters, to align the columns, so the names must be ASCII.
	for line := range strings.Lines(help) {
		name, _, _ := strings.Cut(strings.TrimSpace(line), "   ")
		if strings.HasPrefix(name, "--") && strings.ContainsFunc(name, func(r rune) bool { return r > unicode.MaxASCII }) {
			t.Errorf("%s: what is not ASCII puts its column out of line", name)
		}
	}
	golden.Compare(t, "testdata/help.txt", []byte(help))
}

func TestDefaults(t *testing.T) {
	f, _, err := flags.Parse([]string{base + "/"}, environment, "", io.Discard)
	must.Succeed(t, err)
	if f.ArtifactBaseURL != "http://artifacts.example.com" || f.ArtifactStoreMaxSize != 8<<30 || f.ArtifactNamespaceMaxSize != 2<<30 || f.TokenCacheMaxSize != 10000 ||
		f.TokenCacheMaxDuration != time.Hour || f.AWSRegion != "eu-west-1" || f.LogLevel != slog.LevelInfo || !f.ShardSelector.Empty() ||
		f.ProfileAddress != "" {
		t.Errorf("%+v", f)
	}
	if f.DefaultServiceAccount != "" || f.KeyRingNamespace != "" || f.SPIFFEBroker.Endpoint != "" || f.RequireServiceAccount || !f.FeatureGates.ObjectLevelWorkloadIdentity {
		t.Errorf("%+v", f)
	}
	socket := func(name string) string { return map[string]string{"SPIFFE_BROKER_SOCKET": "unix:///run/b.sock"}[name] }
	if f, _, err := flags.Parse([]string{base}, socket, "", io.Discard); err != nil || f.SPIFFEBroker.Endpoint != "unix:///run/b.sock" {
		t.Errorf("the broker of the environment is %+v, %v", f.SPIFFEBroker, err)
	}
	if private := endpoint.PrivateCIDRs(); f.DenyCIDRs.String() != private.String() {
		t.Errorf("tenants may name hosts in all but %s", &f.DenyCIDRs)
	}
	// By default, no namespace may use the controller's own identity, and the list of allowed hosts
	// is empty.
	if f.ControllerIdentityNamespaces.Decide("tenant-a", nil).Allowed || f.AllowedEndpointHosts.String() != "" || f.TokenCacheObjectMetrics {
		t.Errorf("%+v", f)
	}
}

func TestValues(t *testing.T) {
	f, _, err := flags.Parse([]string{
		base, "--artifact-store-max-size=100Mi", "--artifact-namespace-max-size=10Mi", "--artifact-max-decompressed-size=1000", "--shard-selector=lanyard.dev/shard=a",
		`--controller-identity-namespaces={"list":["tenant-a"]}`, "--allowed-endpoint-hosts=127.0.0.1:5000,minio.example.com",
		"--deny-cidrs=10.0.0.0/8", "--deny-cidrs=192.168.0.0/16", "--aws-region=us-east-1", "--pprof-address=[::1]:6060", "--log-level=debug", "--log-format=text",
		"--token-cache-max-size=0", "--leader-elect", "--keyring-namespace=lanyard-system", "--spiffe-broker-endpoint=unix:///run/broker.sock", "--spiffe-broker-id=spiffe://example.com/agent/", "--identities-at-hub", "--aws-identities", "--identity-secret-namespace=lanyard-identities", "--default-service-account=cloud.identity", "--require-service-account-for-provider-auth",
		"--feature-gates=ObjectLevelWorkloadIdentity=false,ObjectLevelWorkloadIdentity=true",
	}, environment, "", io.Discard)
	must.Succeed(t, err)
	if f.ArtifactStoreMaxSize != 100<<20 || f.ArtifactNamespaceMaxSize != 10<<20 || f.ArtifactMaxDecompressedSize != 1000 || !f.ShardSelector.Matches(labels.Set{"lanyard.dev/shard": "a"}) ||
		f.ShardSelector.Matches(labels.Set{}) || !f.ControllerIdentityNamespaces.Decide("tenant-a", nil).Allowed ||
		f.ControllerIdentityNamespaces.Decide("tenant-b", nil).Allowed || !f.AllowedEndpointHosts.Contains("minio.example.com:443") ||
		f.DenyCIDRs.String() != "10.0.0.0/8,192.168.0.0/16" || f.AWSRegion != "us-east-1" || f.LogLevel != slog.LevelDebug ||
		f.ProfileAddress != "[::1]:6060" || f.TokenCacheMaxSize != 0 || !f.LeaderElect || f.DefaultServiceAccount != "cloud.identity" || f.KeyRingNamespace != "lanyard-system" || !f.AWSIdentities || f.IdentitySecretNamespace != "lanyard-identities" || !f.RequireServiceAccount ||
		!f.FeatureGates.ObjectLevelWorkloadIdentity || !f.IdentitiesAtHub ||
		f.SPIFFEBroker != (broker.Config{Endpoint: "unix:///run/broker.sock", ID: "spiffe://example.com/agent/", WorkloadAPI: "unix:///run/agent.sock"}) {
		t.Errorf("%+v", f)
	}
}

// TestDeniedNetworksReplaceTheDefault checks that --deny-cidrs replaces the private address ranges,
// even if its value is empty. Operators must be able to replace these ranges to reach hosts with
// private addresses.
func TestDeniedNetworksReplaceTheDefault(t *testing.T) {
	for want, args := range map[string][]string{
		"":                          {"--deny-cidrs="},
		"10.0.0.0/8":                {"--deny-cidrs=10.0.0.0/8"},
		"10.0.0.0/8,192.168.0.0/16": {"--deny-cidrs=10.0.0.0/8,192.168.0.0/16"},
	} {
		f, _, err := flags.Parse(append(args, base), nothing, "", io.Discard)
		if err != nil || f.DenyCIDRs.String() != want {
			t.Errorf("%v: %q, %v", args, &f.DenyCIDRs, err)
		}
	}
}

func TestRefusalsNameTheFlag(t *testing.T) {
	for _, args := range []string{
		"--artifact-base-url=", "--artifact-base-url=artifacts.example.com", "--artifact-base-url=http://u:p@x", "--artifact-base-url=http://x?q",
		"--artifact-base-url=ftp://x", "--artifact-store-max-size=-1", "--artifact-store-max-size=much", "--artifact-store-max-size=100m",
		"--artifact-namespace-max-size=-1", "--artifact-max-decompressed-size=0", "--shard-selector=a in", "--concurrent=0", "--token-cache-max-size=-1",
		"--token-cache-max-duration=0s", "--token-cache-refresh-fraction=0", "--token-cache-refresh-fraction=1.1", "--token-cache-refresh-fraction=NaN",
		"--controller-identity-namespaces=a,,b", "--controller-identity-namespaces=*", "--controller-credential-hosts=*.example.com", "--allowed-endpoint-hosts=*.example.com",
		"--deny-cidrs=10.0.0.1/8", "--log-level=loud", "--log-format=xml", "--leader-elect-id=", "--storage-path=",
		"--default-service-account=tenant-a/puller", "--default-service-account=Puller", "--keyring-namespace=lanyard-system/issuer", "--identity-secret-namespace=lanyard-identities", "--require-service-account-for-provider-auth=perhaps",
		"--spiffe-broker-id=spiffe://example.com/agent/",
		"--feature-gates=", "--feature-gates=ObjectLevelWorkloadIdentity", "--feature-gates=ObjectLevelWorkloadIdentity=maybe",
	} {
		_, _, err := flags.Parse([]string{base, args}, nothing, "", io.Discard)
		name, _, _ := strings.Cut(args, "=")
		if err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", args, err)
		}
	}
	_, _, err := flags.Parse([]string{base, "--feature-gates=ObjectLevelWorkloadIdentity=false,Unknown=true"}, nothing, "", io.Discard)
	if err == nil || !strings.Contains(err.Error(), `"Unknown"; there are: ObjectLevelWorkloadIdentity`) {
		t.Errorf("an unknown gate: %v", err)
	}
	_, _, err = flags.Parse([]string{base, "--feature-gates=ObjectLevelWorkloadIdentity=false", "--default-service-account=puller"}, nothing, "", io.Discard)
	if err == nil || !strings.Contains(err.Error(), "--default-service-account") {
		t.Errorf("a default that nobody may have: %v", err)
	}
	_, _, err = flags.Parse([]string{base, "--aws-identities", "--identity-secret-namespace=a/b"}, nothing, "", io.Discard)
	if err == nil || !strings.Contains(err.Error(), "not a name of a namespace") {
		t.Errorf("a Secret in place of a namespace: %v", err)
	}
	if _, _, err := flags.Parse([]string{base, "extra"}, nothing, "", io.Discard); err == nil || !strings.Contains(err.Error(), `"extra"`) {
		t.Errorf("an argument: %v", err)
	}
	if _, _, err := flags.Parse([]string{"--no-such-flag"}, nothing, "", io.Discard); err == nil || !strings.Contains(err.Error(), "--help") {
		t.Errorf("an unknown flag: %v", err)
	}
}

// TestChartKnowsTheFlags checks that the chart passes only existing flags, and can pass every flag
// except --kubeconfig and --version.
func TestChartKnowsTheFlags(t *testing.T) {
	chart, err := charts.Lanyard()
	must.Succeed(t, err)
	template, err := fs.ReadFile(chart, "templates/statefulset.yaml")
	must.Succeed(t, err)
	help := help(t)
	found := regexp.MustCompile(`[" ](--[a-z-]+)`).FindAllStringSubmatch(string(template), -1)
	if len(found) < 15 {
		t.Fatalf("only %d flags were found in the chart", len(found))
	}
	passed := map[string]bool{"--kubeconfig": true, "--version": true}
	for _, match := range found {
		passed[match[1]] = true
		if !strings.Contains(help, "      "+match[1]+" ") {
			t.Errorf("the chart passes %s, which there is not", match[1])
		}
	}
	for _, match := range regexp.MustCompile(`(?m)^      (--[a-z-]+) `).FindAllStringSubmatch(help, -1) {
		if !passed[match[1]] {
			t.Errorf("the chart cannot pass %s", match[1])
		}
	}
}
