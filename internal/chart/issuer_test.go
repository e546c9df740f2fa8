//go:build !concurrent

// These tests start no goroutine. The race detector would only slow them down, so dev/unit-tests
// runs them without it.

package chart_test

import (
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	"github.com/lanyard-dev/lanyard/internal/chart"
	applyflags "github.com/lanyard-dev/lanyard/internal/controller/kustomization/flags"
	identityflags "github.com/lanyard-dev/lanyard/internal/controller/workloadidentity/flags"
	discoveryflags "github.com/lanyard-dev/lanyard/internal/discovery/flags"
	"github.com/lanyard-dev/lanyard/internal/kinds"
	"github.com/lanyard-dev/lanyard/internal/must"
	tokenserverflags "github.com/lanyard-dev/lanyard/internal/tokenserver/flags"
)

// withIssuer returns a copy of the chart's values with an issuer. If the values lack the key rbac,
// the copy also gets rbac.tenantNamespaces, with one namespace.
func withIssuer(values map[string]any) map[string]any {
	values = maps.Clone(values)
	if values == nil {
		values = map[string]any{}
	}
	values["issuer"] = map[string]any{"url": "https://issuer.example.com"}
	if values["rbac"] == nil {
		values["rbac"] = map[string]any{"tenantNamespaces": []any{"tenant-a"}}
	}
	return values
}

// deployment is the program that a Deployment of the chart starts, with its arguments.
type deployment struct {
	name, program string
	args          []string
}

func deployments(t *testing.T, objects []*unstructured.Unstructured) []deployment {
	t.Helper()
	var all []deployment
	for _, object := range objects {
		if object.GetKind() != "Deployment" {
			continue
		}
		var d appsv1.Deployment
		must.Succeed(t, runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, &d))
		container := d.Spec.Template.Spec.Containers[0]
		all = append(all, deployment{name: d.Name, program: strings.TrimPrefix(container.Command[0], "/"), args: container.Args})
	}
	return all
}

// programsTake checks that every argument that the chart writes is a flag of its program, with an
// accepted value.
func programsTake(t *testing.T, objects []*unstructured.Unstructured) {
	t.Helper()
	for _, d := range deployments(t, objects) {
		var err error
		switch d.program {
		case tokenserverflags.Name:
			_, _, err = tokenserverflags.Parse(d.args, "", io.Discard)
		case discoveryflags.Name:
			_, _, err = discoveryflags.Parse(d.args, "", io.Discard)
		case identityflags.Name:
			_, _, err = identityflags.Parse(d.args, "", io.Discard)
		case applyflags.Name:
			_, _, err = applyflags.Parse(d.args, "", io.Discard)
		default:
			t.Errorf("Deployment %s starts %s, whose flags are unknown", d.name, d.program)
		}
		if err != nil {
			t.Errorf("Deployment %s: %v: %v", d.name, d.args, err)
		}
	}
}

// TestTokenServerKnowsTheOthers checks that a flag gives the token server the accounts of the
// chart's other programs. The token server checks the rights of these accounts.
func TestTokenServerKnowsTheOthers(t *testing.T) {
	account := func(name string) map[string]any {
		return map[string]any{"serviceAccount": map[string]any{"name": name}}
	}
	values := withIssuer(map[string]any{"discovery": account("a"), "identityController": account("b"), "applyController": account("d")})
	maps.Copy(values, account("c"))
	objects, err := chart.Objects(release(values))
	must.Succeed(t, err)
	for _, d := range deployments(t, objects) {
		if d.program != tokenserverflags.Name {
			continue
		}
		f, _, err := tokenserverflags.Parse(d.args, "", io.Discard)
		must.Succeed(t, err)
		slices.Sort(f.OtherAccounts)
		if !slices.Equal(f.OtherAccounts, []string{"a", "b", "c", "d", "lanyard-discovery-mirror"}) {
			t.Errorf("asks about %v", f.OtherAccounts)
		}
		return
	}
	t.Error("no token server")
}

// TestIssuerNeedsTenantNamespaces checks the chart with an issuer. The chart must refuse values
// that let the controller reach the signing keys. So rbac.tenantNamespaces must be set, unless
// issuer.acceptControllerReadsAllSecrets is true.
func TestIssuerNeedsTenantNamespaces(t *testing.T) {
	judge(t, map[string]judged{
		"all namespaces":           {`{issuer: {url: "https://i.example"}}`, "set rbac.tenantNamespaces"},
		"all, accepted":            {`{issuer: {url: "https://i.example", acceptControllerReadsAllSecrets: true}}`, ""},
		"accepted without issuer":  {`{issuer: {acceptControllerReadsAllSecrets: true}}`, ""},
		"none":                     {`{issuer: {url: "https://i.example"}, rbac: {tenantNamespaces: []}}`, ""},
		"tenants":                  {`{issuer: {url: "https://i.example"}, rbac: {tenantNamespaces: [tenant-a]}}`, ""},
		"the release's":            {`{issuer: {url: "https://i.example"}, rbac: {tenantNamespaces: [tenant-a, lanyard-system]}}`, "must not have lanyard-system"},
		"kube-system":              {`{issuer: {url: "https://i.example"}, rbac: {tenantNamespaces: [kube-system]}}`, "must not have kube-system"},
		"the release's, no issuer": {`{rbac: {tenantNamespaces: [lanyard-system]}}`, ""},
		"mirror alone":             {`{discovery: {mirrorClusterIssuer: {url: "https://c.example"}}}`, ""},
		"mirror at the issuer": {
			`{issuer: {url: "https://i.example"}, rbac: {tenantNamespaces: []}, discovery: {mirrorClusterIssuer: {url: "https://i.example"}}}`, "must differ",
		},
		"probe and people": {
			`{issuer: {url: "https://i.example", keys: {confirmManually: true, probeURL: "https://b.example"}}, rbac: {tenantNamespaces: []}}`, "exclude each other",
		},
		"a region of keys in Secrets": {
			`{issuer: {url: "https://i.example", keys: {awsRegion: eu-west-1}}, rbac: {tenantNamespaces: []}}`, "set issuer.keys.store to aws-kms",
		},
		"keys in AWS KMS": {`{issuer: {url: "https://i.example", keys: {store: aws-kms, awsRegion: eu-west-1}}, rbac: {tenantNamespaces: []}}`, ""},
		"a CA's key in AWS KMS": {
			`{spiffe: {trustDomain: e.example, secretName: ca, kmsKey: "arn:aws:kms:eu-west-1:111122223333:key/1234abcd"}, rbac: {tenantNamespaces: []}}`, "",
		},
		"a CA's key without its certificate": {
			`{spiffe: {trustDomain: e.example, kmsKey: "arn:aws:kms:eu-west-1:111122223333:key/1234abcd"}, rbac: {tenantNamespaces: []}}`, "spiffe.kmsKey needs spiffe.secretName",
		},
		"a CA's key without a trust domain": {`{spiffe: {kmsKey: "arn:aws:kms:eu-west-1:111122223333:key/1234abcd"}}`, "need spiffe.trustDomain"},
		"a SPIFFE broker":                   {`{spiffe: {broker: {endpoint: "unix:///run/b.sock", id: "spiffe://e.example/agent/"}}}`, ""},
		"a broker and a token server of two trust domains": {
			`{spiffe: {trustDomain: e.example, broker: {endpoint: "tcp://10.0.0.1:8443", id: "spiffe://b.e.example/agent/"}}, rbac: {tenantNamespaces: []}}`, "",
		},
		"a broker and an issuer without SPIFFE": {
			`{issuer: {url: "https://i.example"}, spiffe: {broker: {endpoint: "tcp://10.0.0.1:8443", id: "spiffe://e.example/agent/"}}, rbac: {tenantNamespaces: []}}`, "",
		},
		"a broker and a token server of one trust domain": {
			`{spiffe: {trustDomain: e.example, broker: {endpoint: "tcp://10.0.0.1:8443", id: "spiffe://e.example/agent/"}}, rbac: {tenantNamespaces: []}}`,
			"spiffe.trustDomain and spiffe.broker.id both name the trust domain e.example",
		},
		"one broker, by its full ID, in the token server's trust domain": {
			`{spiffe: {trustDomain: e.example, broker: {endpoint: "tcp://10.0.0.1:8443", id: "spiffe://e.example/broker"}}, rbac: {tenantNamespaces: []}}`,
			"remove spiffe.trustDomain",
		},
		"a broker that anybody could be": {`{spiffe: {broker: {endpoint: "unix:///run/b.sock"}}}`, "need each other"},
		"a broker without a path":        {`{spiffe: {broker: {endpoint: "unix:///run/b.sock", id: "spiffe://e.example"}}}`, "/spiffe/broker/id"},
		"a broker over http":             {`{spiffe: {broker: {endpoint: "https://b.example", id: "spiffe://e.example/agent/"}}}`, "/spiffe/broker/endpoint"},
		"an agent without TLS":           {`{spiffe: {broker: {workloadAPI: "tcp://10.0.0.1:8081"}}}`, "/spiffe/broker/workloadAPI"},
		"an alias of a CA's key":         {`{spiffe: {trustDomain: e.example, secretName: ca, kmsKey: alias/ca}}`, "/spiffe/kmsKey"},
		"keys elsewhere":                 {`{issuer: {keys: {store: vault}}}`, "/issuer/keys/store"},
		"http":                           {`{issuer: {url: "http://i.example"}}`, "/issuer/url"},
		"slash at the end":               {`{issuer: {url: "https://i.example/"}}`, "/issuer/url"},
		"slash after path":               {`{issuer: {url: "https://i.example/a/"}}`, "/issuer/url"},
		"query":                          {`{issuer: {url: "https://i.example?a=b"}}`, "/issuer/url"},
		"user":                           {`{issuer: {url: "https://u@i.example"}}`, "/issuer/url"},
		"unknown algorithm":              {`{issuer: {keys: {algorithms: [HS256]}}}`, "/issuer/keys/algorithms/0"},
		"no algorithm":                   {`{issuer: {keys: {algorithms: []}}}`, "/issuer/keys/algorithms"},
		"kid with a comma":               {`{issuer: {keys: {revoked: ["a,b"]}}}`, "/issuer/keys/revoked/0"},
		"claims of Secrets":              {`{issuer: {claimsConfig: {contexts: [{apiVersion: v1, kind: Secret, resource: secrets, relation: "true"}]}}}`, "/resource"},
		"no replicas":                    {`{tokenServer: {replicas: 0}}`, "/tokenServer/replicas"},
		"unknown setting":                {`{discovery: {replica: 1}}`, "replica"},
		"account of no name": {
			`{issuer: {url: "https://i.example"}, rbac: {tenantNamespaces: []}, tokenServer: {serviceAccount: {create: false}}}`, "serviceAccount.name is required",
		},
	})
}

// judged is a test case: values of the chart, and a part of the expected error. The part is empty
// if the chart must accept the values.
type judged struct{ values, refusal string }

// judge renders the chart with the values of each case, and compares the error with the expected
// refusal.
func judge(t *testing.T, cases map[string]judged) {
	t.Helper()
	for name, test := range cases {
		t.Run(name, func(t *testing.T) {
			var values map[string]any
			must.Succeed(t, yaml.Unmarshal([]byte(test.values), &values))
			_, err := chart.Render(release(values))
			switch {
			case test.refusal == "" && err != nil:
				t.Error(err)
			case test.refusal != "" && (err == nil || !strings.Contains(err.Error(), test.refusal)):
				t.Errorf("want %q, got %v", test.refusal, err)
			}
		})
	}
}

// TestNoRoleForUsersMintsTokens checks every role of every set of values. Only the controller's
// role for tenants may create workloadidentities/token. Only that role and the role lanyard-svid
// may create SVIDs. lanyard-svid is for people, and the chart binds it to nobody. The roles for
// users give no access to keys.
func TestNoRoleForUsersMintsTokens(t *testing.T) {
	files, err := filepath.Glob("testdata/*.values.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("no values: %v", err)
	}
	minting := 0
	for _, file := range files {
		data, err := os.ReadFile(file)
		must.Succeed(t, err)
		var values map[string]any
		must.Succeed(t, yaml.Unmarshal(data, &values))
		objects, err := chart.Objects(release(values))
		must.Succeed(t, err)
		for _, object := range objects {
			forUsers := strings.HasSuffix(object.GetName(), "-view") || strings.HasSuffix(object.GetName(), "-edit")
			for label := range object.GetLabels() {
				forUsers = forUsers || strings.HasPrefix(label, "rbac.authorization.k8s.io/aggregate-to-") || label == "lanyard.dev/aggregate-to-workload-operator"
			}
			if role, _, _ := unstructured.NestedString(object.Object, "roleRef", "name"); role == "lanyard-svid" || role == "lanyard-bindings" {
				t.Errorf("%s: %s gives somebody the role %s", file, object.GetName(), role)
			}
			for _, rule := range rules(t, object) {
				for _, resource := range slices.Concat(rule.APIGroups, rule.Resources, rule.Verbs) {
					if strings.Contains(resource, "*") {
						t.Errorf("%s: %s has a wildcard: %+v", file, object.GetName(), rule)
					}
				}
				for _, resource := range rule.Resources {
					writes := slices.ContainsFunc(rule.Verbs, func(verb string) bool { return !slices.Contains([]string{"get", "list", "watch"}, verb) })
					if forUsers && writes && resource == "workloadidentitybindings" {
						t.Errorf("%s: users may %s bindings, and so take any identity of the namespace", file, rule.Verbs)
					}
					if resource == "workloadidentities/token" || strings.HasSuffix(resource, "/svid") {
						minting++
						byHand := object.GetName() == "lanyard-svid" && strings.HasSuffix(resource, "/svid")
						if !byHand && !strings.HasSuffix(object.GetName(), "-controller-tenant") {
							t.Errorf("%s: %s may create %s", file, object.GetName(), resource)
						}
					}
					if forUsers && (strings.HasPrefix(resource, "keyrings") || strings.Contains(resource, "/") || resource == "secrets") {
						t.Errorf("%s: users get %s of %s", file, rule.Verbs, resource)
					}
				}
			}
		}
	}
	if minting == 0 {
		t.Error("no role makes tokens: the test looks in the wrong place")
	}
}

// TestKeysAreTheTokenServers checks that in the namespace of the keys only the token server may
// read Secrets or write the status of a KeyRing.
func TestKeysAreTheTokenServers(t *testing.T) {
	objects, err := chart.Objects(release(withIssuer(nil)))
	must.Succeed(t, err)
	for _, object := range objects {
		for _, rule := range rules(t, object) {
			keys := slices.Contains(rule.Resources, "secrets") || slices.Contains(rule.Resources, "keyrings/status")
			tenant := object.GetKind() == "ClusterRole" && object.GetName() == "lanyard-controller-tenant"
			server := object.GetKind() == "Role" && object.GetName() == "lanyard-token-server"
			if keys && !tenant && !server {
				t.Errorf("%s %s has %v of %v", object.GetKind(), object.GetName(), rule.Verbs, rule.Resources)
			}
		}
	}
}

// TestControllersChangeOnlyTheirOwn checks that each controller that may patch objects has the
// policy that limits its changes. Without limits, such a controller could act as anybody.
func TestControllersChangeOnlyTheirOwn(t *testing.T) {
	const fetches, keeps = "lanyard-controller", "lanyard-identity-controller"
	for values, want := range map[string][]string{
		`{}`: {fetches},
		`{spiffe: {trustDomain: prod.example.com}, rbac: {tenantNamespaces: []}}`: {fetches},
		`{issuer: {url: "https://i.example"}, rbac: {tenantNamespaces: []}}`:      {fetches, keeps},
		`{identity: {awsIdentities: true}, rbac: {tenantNamespaces: []}}`:         {fetches, keeps},
	} {
		var parsed map[string]any
		must.Succeed(t, yaml.Unmarshal([]byte(values), &parsed))
		objects, err := chart.Objects(release(parsed))
		must.Succeed(t, err)
		var found []string
		for _, o := range objects {
			if o.GetKind() == "ValidatingAdmissionPolicy" && slices.Contains([]string{fetches, keeps}, o.GetName()) {
				found = append(found, o.GetName())
			}
		}
		if !slices.Equal(found, want) {
			t.Errorf("%s: the policies are %q, want %q", values, found, want)
		}
	}
}

// TestControllerReadsObjectsThatProveThemselves checks the permission to get objects of the kinds
// that can have SVIDs. The controller has this permission only if the token server or a SPIFFE
// broker gives such objects credentials of their own.
func TestControllerReadsObjectsThatProveThemselves(t *testing.T) {
	for values, want := range map[string]bool{
		`{}`: false,
		`{spiffe: {trustDomain: e.example}, rbac: {tenantNamespaces: []}}`:                      true,
		`{issuer: {url: "https://i.example"}, rbac: {tenantNamespaces: []}}`:                    true,
		`{spiffe: {broker: {endpoint: "unix:///run/b.sock", id: "spiffe://e.example/agent/"}}}`: true,
	} {
		var parsed map[string]any
		must.Succeed(t, yaml.Unmarshal([]byte(values), &parsed))
		objects, err := chart.Objects(release(parsed))
		must.Succeed(t, err)
		for _, kind := range kinds.All().Where(kinds.Kind.HasSVIDs) {
			granted := slices.ContainsFunc(objects, func(o *unstructured.Unstructured) bool {
				return o.GetKind() == "ClusterRole" && o.GetName() == "lanyard-controller" && slices.ContainsFunc(rules(t, o), func(r rule) bool {
					return slices.Contains(r.APIGroups, kind.Group) && slices.Contains(r.Resources, kind.Plural) && slices.Contains(r.Verbs, "get")
				})
			})
			if granted != want {
				t.Errorf("%s: the controller may get %s: %t, want %t", values, kind.Plural, granted, want)
			}
		}
	}
}

// TestImageHasThePrograms checks that the image of the Containerfile has each program that the
// chart starts.
func TestImageHasThePrograms(t *testing.T) {
	containerfile, err := os.ReadFile("../../Containerfile")
	must.Succeed(t, err)
	objects, err := chart.Objects(release(withIssuer(nil)))
	must.Succeed(t, err)
	for _, d := range deployments(t, objects) {
		if !strings.Contains(string(containerfile), "./cmd/"+d.program) {
			t.Errorf("the Containerfile does not build %s", d.program)
		}
	}
}

// TestAlertsAreDocumented checks that docs/metrics.md shows the alerts that the chart installs.
func TestAlertsAreDocumented(t *testing.T) {
	page, err := os.ReadFile("../../docs/metrics.md")
	must.Succeed(t, err)
	files, err := filepath.Glob("../../charts/lanyard/files/alerts/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("no alerts: %v", err)
	}
	for _, file := range files {
		alerts, err := os.ReadFile(file)
		must.Succeed(t, err)
		if !strings.Contains(string(page), "```yaml\n"+string(alerts)+"```\n") {
			t.Errorf("docs/metrics.md does not show %s", file)
		}
	}
}
