package flags_test

import (
	"io"
	"strings"
	"testing"
	"time"

	"github.com/lanyard-dev/lanyard/internal/controller/workloadidentity/flags"
)

func TestParse(t *testing.T) {
	const needed = "--issuer=https://issuer.example.com --namespace=lanyard-system "
	const spoke = "--namespace=lanyard-system --bindings --hub-kubeconfig=hub.kubeconfig "
	f, done, err := flags.Parse(strings.Fields(needed), "", io.Discard)
	if done || err != nil {
		t.Fatal(done, err)
	}
	if f.LeaderElect || f.LeaderElectID != flags.Name || f.Limits.Max != 48*time.Hour || f.APIAudiences != nil {
		t.Errorf("the defaults are %+v", f)
	}
	for _, c := range []struct {
		name, args string
		want       string // part of the error
	}{
		{"no issuer", "--namespace=lanyard-system", "--issuer, --hub-kubeconfig or --aws-identities is required"},
		{"an issuer that nobody can read", "--namespace=lanyard-system --issuer=http://issuer.example.com", "--issuer: must begin with https://"},
		{"a long issuer", "--namespace=lanyard-system --issuer=https://issuer.example.com/" + strings.Repeat("x", 512), "at most 512"},
		{"no namespace", "--issuer=https://issuer.example.com", "--namespace"},
		{"no lease", needed + "--leader-elect-id=", "--leader-elect-id is empty"},
		{"no worker", needed + "--concurrent=0", "--concurrent must be at least 1"},
		{"an empty audience", needed + "--api-audiences=a,,b", "--api-audiences has an empty audience"},
		{"signing keys beside static keys", needed + "--aws-identities --identity-secret-namespace=lanyard-system", "must not be --namespace"},
		{"no name of a namespace", needed + "--identity-secret-namespace=A_B", "--identity-secret-namespace"},
		{"an unknown gate", needed + "--feature-gates=Foo=true", "no gate"},
		{"a gate that is neither on nor off", needed + "--feature-gates=AutoControllerIdentityCreator=maybe", "AutoControllerIdentityCreator=true"},
		{"no time", needed + "--token-cache-max-duration=0s", "--token-cache-max-duration"},
		{"a hub without namespaces", spoke, "--hub-kubeconfig needs --hub-namespace-map"},
		{"namespaces without a hub", needed + "--hub-namespace-map=a=b", "--hub-namespace-map needs --hub-kubeconfig"},
		{"a hub and an issuer", needed + "--hub-kubeconfig=k --hub-namespace-map=a=b", "exclude each other"},
		{"a pattern of namespaces", spoke + "--hub-namespace-map=*=eu-1-*", "one entry for each namespace"},
		{"a namespace twice", spoke + "--hub-namespace-map=a=b --hub-namespace-map=a=c", "two namespaces"},
		{"no name of the hub's namespace", spoke + "--hub-namespace-map=a=b --hub-keyring-namespace=A", "--hub-keyring-namespace"},
		{"bindings without issuer", "--namespace=lanyard-system --aws-identities --bindings", "--bindings needs --issuer"},
		{"a hub without bindings", "--namespace=lanyard-system --hub-kubeconfig=k --hub-namespace-map=a=b", "--hub-kubeconfig needs --bindings"},
		{"renewal at once", needed + "--renewal-fraction=0", "--renewal-fraction"},
		{"renewal never", needed + "--renewal-fraction=1", "--renewal-fraction"},
		{"renewal at no time", needed + "--renewal-fraction=NaN", "--renewal-fraction"},
		{"a default that is too short", needed + "--token-default-duration=1m", "default duration"},
	} {
		if _, _, err := flags.Parse(strings.Fields(c.args), "", io.Discard); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", c.name, err)
		}
	}
	f, _, err = flags.Parse(strings.Fields("--namespace=lanyard-system --aws-identities --feature-gates=AutoControllerIdentityCreator=true"), "", io.Discard)
	if err != nil || !f.AWSIdentities || !f.AutoControllerIdentityCreator || f.SecretNamespace != "" {
		t.Errorf("without issuer: %+v, %v", f, err)
	}
	f, _, err = flags.Parse(strings.Fields(spoke+"--hub-namespace-map=a=hub-a,b=hub-b --hub-namespace-map=c=hub-a"), "", io.Discard)
	if err != nil || f.HubNamespaces.String() != "a=hub-a,b=hub-b,c=hub-a" || f.HubKeyRingNamespace != "lanyard-system" {
		t.Errorf("a spoke: %+v, %v", f, err)
	}
	var help strings.Builder
	if _, done, err := flags.Parse([]string{"--help"}, "", &help); !done || err != nil || !strings.Contains(help.String(), "--issuer") {
		t.Errorf("--help: %v, %v, %s", done, err, help.String())
	}
}
