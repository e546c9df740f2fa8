//go:build !concurrent

// These tests start no goroutine. The race detector would only slow them down, so dev/unit-tests
// runs them without it.

package chart_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	clientscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/yaml"

	"github.com/lanyard-dev/lanyard/auth/endpoint"
	"github.com/lanyard-dev/lanyard/internal/chart"
	"github.com/lanyard-dev/lanyard/internal/controller/flags"
	"github.com/lanyard-dev/lanyard/internal/golden"
	"github.com/lanyard-dev/lanyard/internal/keyring"
	"github.com/lanyard-dev/lanyard/internal/kinds"
	"github.com/lanyard-dev/lanyard/internal/must"
)

// release returns a release of the chart with an image, which the chart requires. It leaves out the
// CRDs unless the values ask for them: CRDs take most of the time of rendering, and depend on no
// other value.
func release(values map[string]any) chart.Release {
	r := whole(values)
	if r.Values["crds"] == nil {
		r.Values["crds"] = map[string]any{"install": false}
	}
	return r
}

// whole is like release, but keeps the chart's default of installing the CRDs.
func whole(values map[string]any) chart.Release {
	values = maps.Clone(values)
	if values == nil {
		values = map[string]any{}
	}
	if values["image"] == nil {
		values["image"] = map[string]any{"repository": "registry.example.com/lanyard/lanyard-controller"}
	}
	return chart.Release{Name: "lanyard", Namespace: "lanyard-system", Values: values}
}

// TestRenderGolden renders the chart with each set of values in testdata. It compares the manifests
// and the notes with golden files. It also checks the objects' fields, the programs' arguments, and
// the names of leases in roles.
func TestRenderGolden(t *testing.T) {
	files, err := filepath.Glob("testdata/*.values.yaml")
	if err != nil || len(files) < 4 {
		t.Fatalf("only %d sets of values: %v", len(files), err)
	}
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".values.yaml")
		t.Run(name, func(t *testing.T) {
			data, err := os.ReadFile(file)
			must.Succeed(t, err)
			var values map[string]any
			must.Succeed(t, yaml.UnmarshalStrict(data, &values))
			got, err := chart.Render(whole(values))
			must.Succeed(t, err)
			golden.Compare(t, "testdata/"+name+".golden.yaml", got)
			notes, err := chart.Notes(whole(values))
			must.Succeed(t, err)
			golden.Compare(t, "testdata/"+name+".notes.golden", []byte(notes))
			objects, err := chart.Objects(whole(values))
			must.Succeed(t, err)
			fitTypes(t, objects)
			controllerTakes(t, objects)
			programsTake(t, objects)
			leasesAreThoseOfPrograms(t, objects)
		})
	}
}

// fitTypes decodes each object into its Go type and refuses fields that the type does not have: the
// API server would drop a misspelt field silently.
func fitTypes(t *testing.T, objects []*unstructured.Unstructured) {
	t.Helper()
	scheme := runtime.NewScheme()
	must.Succeed(t, errors.Join(clientscheme.AddToScheme(scheme), apiextensionsv1.AddToScheme(scheme)))
	decoder := serializer.NewCodecFactory(scheme, serializer.EnableStrict).UniversalDeserializer()
	for _, object := range objects {
		switch object.GetKind() {
		case "PodMonitor", "PrometheusRule", "APIService":
			continue // the Go types of these kinds are not in this module
		}
		data, err := object.MarshalJSON()
		must.Succeed(t, err)
		if _, _, err := decoder.Decode(data, nil, nil); err != nil {
			t.Errorf("%s %s: %v", object.GetKind(), object.GetName(), err)
		}
	}
}

// controllerTakes checks that every argument that the chart writes is a flag of lanyard-controller,
// with an accepted value.
func controllerTakes(t *testing.T, objects []*unstructured.Unstructured) {
	t.Helper()
	leases := map[string]bool{}
	for _, args := range arguments(t, objects) {
		parsed, _, err := flags.Parse(args, func(string) string { return "" }, "", io.Discard)
		if err != nil {
			t.Errorf("%v: %v", args, err)
			continue
		}
		if leases[parsed.LeaderElectID] {
			t.Errorf("two shards share the lease %s", parsed.LeaderElectID)
		}
		leases[parsed.LeaderElectID] = true
	}
}

// leasesAreThoseOfPrograms checks that the roles name the leases that programs hold, and no others.
func leasesAreThoseOfPrograms(t *testing.T, objects []*unstructured.Unstructured) {
	t.Helper()
	leases := map[string]bool{}
	for _, args := range arguments(t, objects) {
		if parsed, _, err := flags.Parse(args, func(string) string { return "" }, "", io.Discard); err == nil {
			leases[parsed.LeaderElectID] = true
		}
	}
	for _, d := range deployments(t, objects) {
		switch d.program {
		case "lanyard-token-server":
			// This lease is needed even without a trust domain: the token server retires the keys
			// of a former trust domain.
			leases["lanyard-token-server-"+keyring.SPIFFERing] = true
			if slices.ContainsFunc(d.args, func(arg string) bool { return strings.HasPrefix(arg, "--issuer=") }) {
				leases["lanyard-token-server-"+keyring.IssuerRing] = true
			}
		case "lanyard-identity-controller", "lanyard-apply-controller":
			leases[d.program] = true
		}
	}
	for _, object := range objects {
		for _, rule := range rules(t, object) {
			if !slices.Contains(rule.Resources, "leases") {
				continue
			}
			for _, name := range rule.ResourceNames {
				if !leases[name] {
					t.Errorf("%s %s names the lease %s, which no program holds", object.GetKind(), object.GetName(), name)
				}
				delete(leases, name)
			}
		}
	}
	for name := range leases {
		t.Errorf("no role names the lease %s", name)
	}
}

// TestShardsDivide checks that every object belongs to exactly one shard.
func TestShardsDivide(t *testing.T) {
	objects, err := chart.Objects(release(map[string]any{"shards": []any{"a", "b"}}))
	must.Succeed(t, err)
	for _, object := range []labels.Set{
		{},
		{"team": "x"},
		{"lanyard.dev/shard": ""},
		{"lanyard.dev/shard": "a"},
		{"lanyard.dev/shard": "b"},
		{"lanyard.dev/shard": "unknown"},
	} {
		owners := 0
		for _, args := range arguments(t, objects) {
			parsed, _, err := flags.Parse(args, func(string) string { return "" }, "", io.Discard)
			must.Succeed(t, err)
			if parsed.ShardSelector.Matches(object) {
				owners++
			}
		}
		if owners != 1 {
			t.Errorf("an object labelled %v belongs to %d shards", object, owners)
		}
	}
}

// TestFilesAreThoseOfConfig checks that the chart's CRDs and admission policies equal those of the
// folder config, byte for byte.
func TestFilesAreThoseOfConfig(t *testing.T) {
	for folder, copied := range map[string]string{"crd": "crds", "admission": "admission"} {
		sameFiles(t, os.DirFS("../../config/"+folder), os.DirFS("../../charts/lanyard/files/"+copied))
	}
}

func sameFiles(t *testing.T, generated, shipped fs.FS) {
	t.Helper()
	names, err := fs.Glob(generated, "*.yaml")
	if err != nil || len(names) == 0 {
		t.Fatalf("no files: %v", err)
	}
	copies, err := fs.Glob(shipped, "*")
	if err != nil || strings.Join(copies, " ") != strings.Join(names, " ") {
		t.Errorf("the chart has %v, not %v: %v", copies, names, err)
	}
	for _, name := range names {
		want, err := fs.ReadFile(generated, name)
		must.Succeed(t, err)
		got, err := fs.ReadFile(shipped, name)
		must.Succeed(t, err)
		if !bytes.Equal(got, want) {
			t.Errorf("%s of the chart differs from that of the folder config", name)
		}
	}
}

// TestObjectsInOrder checks that no object needs an object that comes later.
func TestObjectsInOrder(t *testing.T) {
	objects, err := chart.Objects(whole(withIssuer(nil)))
	must.Succeed(t, err)
	rank := map[string]int{
		"NetworkPolicy": 0, "PodDisruptionBudget": 1, "ServiceAccount": 2, "CustomResourceDefinition": 3, "ClusterRole": 4,
		"ClusterRoleBinding": 5, "Role": 6, "RoleBinding": 7, "Service": 8, "Deployment": 9, "StatefulSet": 10,
		// A FlowSchema needs a PriorityLevelConfiguration, but may come first. The API server
		// ignores the FlowSchema until the PriorityLevelConfiguration exists.
		"APIService": 11, "FlowSchema": 12, "PriorityLevelConfiguration": 13, "ValidatingAdmissionPolicy": 14, "ValidatingAdmissionPolicyBinding": 15,
	}
	last := 0
	for _, object := range objects {
		now, known := rank[object.GetKind()]
		if !known {
			t.Errorf("a %s is new here: say where it belongs", object.GetKind())
		}
		if now < last {
			t.Errorf("%s %s comes too late", object.GetKind(), object.GetName())
		}
		last = now
		namespaced := object.GetNamespace() != ""
		cluster := strings.HasPrefix(object.GetKind(), "Cluster") || strings.HasPrefix(object.GetKind(), "ValidatingAdmissionPolicy") ||
			slices.Contains([]string{"CustomResourceDefinition", "APIService", "FlowSchema", "PriorityLevelConfiguration"}, object.GetKind())
		if object.GetKind() == "RoleBinding" && object.GetName() == "lanyard-token-server" && object.GetNamespace() == "kube-system" {
			// This binding must be in kube-system, because its Role is there. The Role lets
			// aggregated API servers read the API server's settings for forwarded requests.
			continue
		}
		if namespaced == cluster || namespaced && !slices.Contains([]string{"lanyard-system", "tenant-a"}, object.GetNamespace()) {
			t.Errorf("%s %s is in namespace %q", object.GetKind(), object.GetName(), object.GetNamespace())
		}
	}
}

// rule is a rule of a Role or ClusterRole.
type rule struct {
	APIGroups     []string `json:"apiGroups"`
	Resources     []string `json:"resources"`
	ResourceNames []string `json:"resourceNames"`
	Verbs         []string `json:"verbs"`
}

func rules(t *testing.T, object *unstructured.Unstructured) []rule {
	t.Helper()
	data, err := object.MarshalJSON()
	must.Succeed(t, err)
	var role struct {
		Rules []rule `json:"rules"`
	}
	must.Succeed(t, yaml.Unmarshal(data, &role))
	return role.Rules
}

// TestControllerPermissions checks that the controller's rules have no wildcard, and never allow it
// to list Secrets or to write workloads or RBAC objects.
func TestControllerPermissions(t *testing.T) {
	objects, err := chart.Objects(release(withIssuer(nil)))
	must.Succeed(t, err)
	writable := map[string]bool{
		"serviceaccounts/token": true, "events": true, "leases": true, "workloadidentities/token": true,
	}
	for _, kind := range kinds.All().Where(kinds.Kind.Fetches) {
		writable[kind.Plural], writable[kind.Plural+"/status"] = true, true
	}
	checked := 0
	for _, object := range objects {
		if !strings.HasPrefix(object.GetName(), "lanyard-controller") || !strings.HasSuffix(object.GetKind(), "Role") {
			continue
		}
		for _, rule := range rules(t, object) {
			for _, resource := range rule.Resources {
				for _, verb := range rule.Verbs {
					checked++
					if strings.Contains(strings.Join(rule.APIGroups, "")+resource+verb, "*") {
						t.Errorf("%s: wildcard in %+v", object.GetKind(), rule)
					}
					read := verb == "get" || verb == "list" || verb == "watch"
					if resource == "secrets" && verb != "get" {
						t.Errorf("%s: %s on secrets", object.GetKind(), verb)
					}
					if !read && !writable[resource] {
						t.Errorf("%s: %s on %s", object.GetKind(), verb, resource)
					}
					if resource == "leases" && verb != "create" && len(rule.ResourceNames) == 0 {
						t.Errorf("%s: %s on leases of any name", object.GetKind(), verb)
					}
				}
			}
		}
	}
	if checked == 0 {
		t.Fatal("the controller has no permissions")
	}
}

// TestTenantNamespaces checks that the controller may read Secrets, request tokens and write
// ExternalArtifacts only in the namespaces of the value rbac.tenantNamespaces. The one exception is
// a token of the controller's own account.
func TestTenantNamespaces(t *testing.T) {
	const everywhere = "everywhere"
	for name, test := range map[string]struct {
		namespaces any
		want       []string
	}{
		"absent": {nil, []string{everywhere}},
		"none":   {[]any{}, nil},
		"two":    {[]any{"tenant-a", "tenant-b"}, []string{"tenant-a", "tenant-b"}},
	} {
		t.Run(name, func(t *testing.T) {
			objects, err := chart.Objects(release(map[string]any{
				"rbac": map[string]any{"tenantNamespaces": test.namespaces}, "flux": map[string]any{"externalArtifacts": true},
			}))
			must.Succeed(t, err)
			// The rules of each role, and the namespaces in which the role is bound. A key is a
			// role's kind and name.
			roles, bound := map[string][]rule{}, map[string][]string{}
			for _, object := range objects {
				switch kind := object.GetKind(); kind {
				case "Role", "ClusterRole":
					roles[kind+"/"+object.GetName()] = rules(t, object)
				case "RoleBinding", "ClusterRoleBinding":
					of, _, err := unstructured.NestedStringMap(object.Object, "roleRef")
					must.Succeed(t, err)
					where := object.GetNamespace()
					if kind == "ClusterRoleBinding" {
						where = everywhere
					}
					role := of["kind"] + "/" + of["name"]
					bound[role] = append(bound[role], where)
				}
			}
			for role, rules := range roles {
				for _, rule := range rules {
					if slices.Contains(rule.Resources, "serviceaccounts/token") && slices.Equal(rule.ResourceNames, []string{"lanyard-controller"}) {
						if role != "Role/lanyard-controller" || !slices.Equal(bound[role], []string{"lanyard-system"}) {
							t.Errorf("the controller's own token is asked for under %s in %v", role, bound[role])
						}
						continue
					}
					for _, resource := range rule.Resources {
						tenants := resource == "secrets" || resource == "serviceaccounts/token" || strings.HasPrefix(resource, "externalartifacts")
						if tenants && !slices.Equal(bound[role], test.want) {
							t.Errorf("%s of %s: in %v, want %v", resource, role, bound[role], test.want)
						}
					}
				}
			}
			if !slices.Equal(bound["ClusterRole/lanyard-controller"], []string{everywhere}) {
				t.Errorf("objects and accounts are known in %v", bound["ClusterRole/lanyard-controller"])
			}
		})
	}
}

// TestNamespacesOnlyForSelector checks that the controller may read namespaces only if the value
// identity.controllerNamespaces selects them by their labels.
func TestNamespacesOnlyForSelector(t *testing.T) {
	for name, test := range map[string]struct {
		grant any
		want  bool
	}{
		"nobody":         {nil, false},
		"everybody":      {map[string]any{}, false},
		"list":           {map[string]any{"list": []any{"tenant-a"}}, false},
		"empty selector": {map[string]any{"selector": map[string]any{}}, false},
		"selector":       {map[string]any{"selector": map[string]any{"matchLabels": map[string]any{"team": "a"}}}, true},
	} {
		t.Run(name, func(t *testing.T) {
			objects, err := chart.Objects(release(map[string]any{"identity": map[string]any{"controllerNamespaces": test.grant}}))
			must.Succeed(t, err)
			got := false
			for _, object := range objects {
				for _, rule := range rules(t, object) {
					got = got || strings.Contains(strings.Join(rule.Resources, " "), "namespaces")
				}
			}
			if got != test.want {
				t.Errorf("reads namespaces: %v", got)
			}
		})
	}
}

// TestGrantReachesTheController checks the controller's flag for the value
// identity.controllerNamespaces. Without the value, there must be no flag. The value {} admits all
// namespaces, and {list: []} admits none, so their flags must differ.
func TestGrantReachesTheController(t *testing.T) {
	const prefix = "--controller-identity-namespaces="
	for name, test := range map[string]struct {
		values string
		want   string
	}{
		"absent":     {`{}`, ""},
		"null":       {`identity: {controllerNamespaces: null}`, ""},
		"everybody":  {`identity: {controllerNamespaces: {}}`, prefix + `{}`},
		"empty list": {`identity: {controllerNamespaces: {list: []}}`, prefix + `{"list":[]}`},
		"list":       {`identity: {controllerNamespaces: {list: [tenant-a, tenant-b]}}`, prefix + `{"list":["tenant-a","tenant-b"]}`},
		"selector": {
			`identity: {controllerNamespaces: {selector: {matchLabels: {team: a}}}}`,
			prefix + `{"selector":{"matchLabels":{"team":"a"}}}`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			var values map[string]any
			must.Succeed(t, yaml.Unmarshal([]byte(test.values), &values))
			objects, err := chart.Objects(release(values))
			must.Succeed(t, err)
			got := ""
			for _, argument := range arguments(t, objects)[0] {
				if strings.HasPrefix(argument, prefix) {
					got = argument
				}
			}
			if got != test.want {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}

// TestStoreFitsItsVolume checks that the chart accepts a store that fits its volume: the chart
// compares both sizes as quantities, not as text.
func TestStoreFitsItsVolume(t *testing.T) {
	for _, values := range []string{
		`artifacts: {storeMaxSize: 9G, volume: {size: 9Gi}}`,
		`artifacts: {storeMaxSize: 9999Mi, volume: {size: 10Gi}}`,
		`artifacts: {namespaceMaxSize: "1000", storeMaxSize: "1000", volume: {size: 1Ki}}`,
		`artifacts: {namespaceMaxSize: 999k, storeMaxSize: 1M, volume: {size: 1001k, type: EmptyDir}}`,
	} {
		var parsed map[string]any
		must.Succeed(t, yaml.Unmarshal([]byte(values), &parsed))
		if _, err := chart.Render(release(parsed)); err != nil {
			t.Errorf("%s: %v", values, err)
		}
	}
}

// TestPodsAskForAzuresIdentity checks that the pods have the label of Azure's webhook if the
// controller's account has an identity of Azure. The value podLabels cannot change that label.
func TestPodsAskForAzuresIdentity(t *testing.T) {
	const label = "azure.workload.identity/use"
	for values, want := range map[string]string{
		`{}`: "",
		`serviceAccount: {annotations: {azure.workload.identity/client-id: 11111111-2222-3333-4444-555555555555}}`:                                                      "true",
		`{serviceAccount: {annotations: {azure.workload.identity/client-id: 11111111-2222-3333-4444-555555555555}}, podLabels: {azure.workload.identity/use: "false"}}`: "true",
	} {
		var parsed map[string]any
		must.Succeed(t, yaml.Unmarshal([]byte(values), &parsed))
		objects, err := chart.Objects(release(parsed))
		must.Succeed(t, err)
		for _, object := range objects {
			if object.GetKind() != "StatefulSet" {
				continue
			}
			labels, _, err := unstructured.NestedStringMap(object.Object, "spec", "template", "metadata", "labels")
			if err != nil || labels[label] != want {
				t.Errorf("%s: %q, %v", values, labels[label], err)
			}
		}
	}
}

// TestContainerfileFitsTheChart checks that the chart can start the image of the repository's
// Containerfile: both have the same program and user. The Containerfile must also have CA
// certificates, and the version of Go in go.mod.
func TestContainerfileFitsTheChart(t *testing.T) {
	read := func(name string) string {
		data, err := os.ReadFile("../../" + name)
		must.Succeed(t, err)
		return string(data)
	}
	containerfile, values, rendered := read("Containerfile"), read("charts/lanyard/values.yaml"), read("internal/chart/testdata/default.golden.yaml")
	version := regexp.MustCompile(`(?m)^go (1\.[0-9]+)`).FindStringSubmatch(read("go.mod"))
	for _, want := range []struct{ where, text, in string }{
		{"Containerfile", "golang:" + version[1] + " ", containerfile},
		{"Containerfile", `ENTRYPOINT ["/lanyard-controller"]`, containerfile},
		{"Containerfile", "USER 65532:65532", containerfile},
		{"Containerfile", "/etc/ssl/certs/ca-certificates.crt", containerfile},
		{"values.yaml", "runAsUser: 65532\n  runAsGroup: 65532\n", values},
		{"the chart", "command: [/lanyard-controller]", rendered},
	} {
		if !strings.Contains(want.in, want.text) {
			t.Errorf("%s has not %q", want.where, want.text)
		}
	}
}

// TestDeniedNetworksReachTheController checks that the controller's flag denies the networks of the
// value identity.denyCIDRs. If the value is absent or null, private networks are denied.
func TestDeniedNetworksReachTheController(t *testing.T) {
	private := endpoint.PrivateCIDRs()
	for values, want := range map[string]string{
		`{}`:                          private.String(),
		`identity: {denyCIDRs: null}`: private.String(),
		`identity: {denyCIDRs: []}`:   "",
		`identity: {denyCIDRs: [10.0.0.0/8, "fd00::/8"]}`: "10.0.0.0/8,fd00::/8",
	} {
		var parsed map[string]any
		must.Succeed(t, yaml.Unmarshal([]byte(values), &parsed))
		objects, err := chart.Objects(release(parsed))
		must.Succeed(t, err)
		f, _, err := flags.Parse(arguments(t, objects)[0], func(string) string { return "" }, "", io.Discard)
		if err != nil || f.DenyCIDRs.String() != want {
			t.Errorf("%s: %q, %v; want %q", values, &f.DenyCIDRs, err, want)
		}
	}
}

// arguments returns the controller's arguments, for each shard.
func arguments(t *testing.T, objects []*unstructured.Unstructured) [][]string {
	t.Helper()
	var all [][]string
	for _, object := range objects {
		if object.GetKind() != "StatefulSet" {
			continue
		}
		containers, _, err := unstructured.NestedSlice(object.Object, "spec", "template", "spec", "containers")
		must.Succeed(t, err)
		args, _, err := unstructured.NestedStringSlice(containers[0].(map[string]any), "args")
		must.Succeed(t, err)
		all = append(all, args)
	}
	if len(all) == 0 {
		t.Fatal("no StatefulSet")
	}
	return all
}

// TestValuesRefused checks that the chart refuses a value that it cannot use, and that the error
// names the value.
func TestValuesRefused(t *testing.T) {
	for name, test := range map[string]struct {
		values string
		want   string
	}{
		"unknown value":           {`replicas: 3`, "replicas"},
		"name in capitals":        {`fullnameOverride: Lanyard`, "/fullnameOverride"},
		"name too long":           {`fullnameOverride: ` + strings.Repeat("a", 42), "/fullnameOverride"},
		"argument without dashes": {`extraArgs: [log-level=debug]`, "/extraArgs/0"},
		"arguments in one string": {`extraArgs: ["--leader-elect --log-level=debug"]`, "/extraArgs/0"},
		"variable without a name": {`extraEnv: [{value: a}]`, "/extraEnv/0"},
		"account of no name":      {`serviceAccount: {create: false}`, "serviceAccount.name is required"},
		"account of a namespace":  {`serviceAccount: {name: a/b}`, "/serviceAccount/name"},
		"memory of any size":      {`resources: {limits: {memory: lots}}`, "/resources/limits/memory"},
		"memory below zero":       {`resources: {requests: {memory: -1Gi}}`, "/resources/requests/memory"},
		"memory in gigabytes":     {`resources: {limits: {memory: 1GB}}`, "/resources/limits/memory"},
		"unit in lower case":      {`resources: {limits: {memory: 1gi}}`, "/resources/limits/memory"},
		"two units":               {`resources: {limits: {cpu: 1mm}}`, "/resources/limits/cpu"},
		"cpu of a truth value":    {`resources: {requests: {cpu: true}}`, "/resources/requests/cpu"},
		"resources misspelt":      {`resources: {limit: {cpu: 1}}`, "limit"},
		"long name and shard": {
			`{fullnameOverride: ` + strings.Repeat("a", 30) + `, shards: [` + strings.Repeat("b", 12) + `]}`, "more than 52 characters",
		},
		"annotations of an account that exists": {
			`serviceAccount: {create: false, name: a, annotations: {a: b}}`, "annotate the ServiceAccount a yourself",
		},
		"misspelt value":          {`tokenCache: {maxsize: 1}`, "maxsize"},
		"removed value":           {`tokenCache: null`, "tokenCache"},
		"number as text":          {`tokenCache: {maxSize: "10"}`, "/tokenCache/maxSize"},
		"fraction above one":      {`tokenCache: {refreshFraction: 80}`, "/tokenCache/refreshFraction"},
		"fraction of zero":        {`tokenCache: {refreshFraction: 0}`, "/tokenCache/refreshFraction"},
		"duration without unit":   {`tokenCache: {maxDuration: "60"}`, "/tokenCache/maxDuration"},
		"no concurrency":          {`reconcile: {concurrent: 0}`, "/reconcile/concurrent"},
		"grant as text":           {`identity: {controllerNamespaces: "{}"}`, "/identity/controllerNamespaces"},
		"grant with unknown key":  {`identity: {controllerNamespaces: {names: [a]}}`, "names"},
		"grant of no namespace":   {`identity: {controllerNamespaces: {list: ["a/b"]}}`, "/identity/controllerNamespaces/list/0"},
		"endpoint as URL":         {`identity: {allowedEndpointHosts: ["https://sts.example.com/"]}`, "/identity/allowedEndpointHosts/0"},
		"endpoints in one string": {`identity: {allowedEndpointHosts: ["a.example,b.example"]}`, "/identity/allowedEndpointHosts/0"},
		"address for a network":   {`identity: {denyCIDRs: ["10.0.0.1"]}`, "/identity/denyCIDRs/0"},
		"flag in a region":        {`identity: {awsRegion: "eu-west-1 --x"}`, "/identity/awsRegion"},
		"flag in a quantity":      {`artifacts: {storeMaxSize: "1Gi --x"}`, "/artifacts/storeMaxSize"},
		"other volume":            {`artifacts: {volume: {type: HostPath}}`, "/artifacts/volume/type"},
		"tag with a digest":       {`image: {tag: "1.0@sha256:00"}`, "/image/tag"},
		"shard in capitals":       {`shards: [A]`, "/shards/0"},
		"shard named headless":    {`shards: [headless]`, "/shards/0"},
		"shard that ends headless": {
			`shards: [a, a-headless]`, "/shards/1",
		},
		"shard named twice":     {`shards: [a, a]`, "/shards"},
		"peer that is anyone":   {`networkPolicy: {artifactClients: [{}]}`, "/networkPolicy/artifactClients/0"},
		"volume named data":     {`volumes: [{name: data}]`, "/volumes/0/name"},
		"no image":              {`image: {repository: ""}`, "image.repository"},
		"store above volume":    {`artifacts: {storeMaxSize: 11Gi}`, "artifacts.storeMaxSize (11Gi)"},
		"store as the volume":   {`artifacts: {storeMaxSize: 10Gi}`, "artifacts.volume.size (10Gi)"},
		"store in decimals":     {`artifacts: {storeMaxSize: 2T, volume: {size: 1Ti}}`, "artifacts.storeMaxSize (2T)"},
		"share above store":     {`artifacts: {storeMaxSize: 1Gi}`, "artifacts.namespaceMaxSize (2Gi)"},
		"share in decimals":     {`artifacts: {namespaceMaxSize: 9G, storeMaxSize: 8Gi, volume: {size: 20Gi}}`, "artifacts.storeMaxSize (8Gi)"},
		"store in bytes":        {`artifacts: {storeMaxSize: "10737418241"}`, "artifacts.storeMaxSize (10737418241)"},
		"hub without map":       {`{hub: {kubeconfigSecret: lanyard-hub}, identity: {bindings: true}}`, "hub.namespaces need each other"},
		"map without hub":       {`hub: {namespaces: {a: b}}`, "hub.namespaces need each other"},
		"hub and issuer":        {`{hub: {kubeconfigSecret: hub, namespaces: {a: b}}, issuer: {url: "https://a.example"}, rbac: {tenantNamespaces: []}}`, "exclude each other"},
		"hub and all Secrets":   {`{hub: {kubeconfigSecret: hub, namespaces: {a: b}}, identity: {bindings: true}}`, "could read the credential for the hub"},
		"hub beside its Secret": {`{hub: {kubeconfigSecret: hub, namespaces: {a: b}}, identity: {bindings: true}, rbac: {tenantNamespaces: [lanyard-system]}}`, "could take the credential for the hub"},
		"hub without bindings":  {`hub: {kubeconfigSecret: hub, namespaces: {a: b}}`, "hub.kubeconfigSecret needs identity.bindings"},
		"pattern of namespaces": {`hub: {kubeconfigSecret: lanyard-hub, namespaces: {"*": hub}}`, "propertyName '*'"},
		"spokes without issuer": {`issuer: {spokeUserPrefix: "spoke:"}`, "issuer.spokeUserPrefix needs issuer.url"},
		"prefix without an end": {`issuer: {spokeUserPrefix: spoke}`, "/issuer/spokeUserPrefix"},
		"namespace that is none": {
			`rbac: {tenantNamespaces: [tenant_a]}`, "/rbac/tenantNamespaces/0",
		},
	} {
		t.Run(name, func(t *testing.T) {
			var values map[string]any
			must.Succeed(t, yaml.Unmarshal([]byte(test.values), &values))
			_, err := chart.Render(release(values))
			if err == nil {
				t.Fatal("accepted")
			}
			if !strings.Contains(err.Error(), test.want) {
				t.Errorf("the error does not name %s: %v", test.want, err)
			}
		})
	}
}

// TestQuantities checks that the schema accepts quantities in each form that Kubernetes has, and
// nothing that Kubernetes refuses.
func TestQuantities(t *testing.T) {
	memory := func(limit any) error {
		_, err := chart.Render(release(map[string]any{"resources": map[string]any{"limits": map[string]any{"memory": limit}}}))
		return err
	}
	for _, limit := range []any{
		"0", "1", "2.", ".5", "1.5", "+1", "100m", "1k", "1M", "1G", "1T", "1P", "1E", "1Ki", "1.5Gi", "1Pi", "1Ei",
		"2e8", "1E3", "1e-3", "10n", "10u", 1, 0.5, int64(1 << 30),
	} {
		if _, err := resource.ParseQuantity(fmt.Sprint(limit)); err != nil {
			t.Errorf("Kubernetes refuses %v: %v", limit, err)
		}
		if err := memory(limit); err != nil {
			t.Errorf("refuses %v: %v", limit, err)
		}
	}
	for _, limit := range []string{
		"", "lots", "1GB", "1gi", "1K", "1 Gi", "1m1", "1ee3", "1e", "0x10", "1,5", "1Gi\n", "--1", "1e1Ki",
	} {
		if _, err := resource.ParseQuantity(limit); err == nil {
			t.Errorf("Kubernetes accepts %q", limit)
		}
		if memory(limit) == nil {
			t.Errorf("accepts %q", limit)
		}
	}
}

// TestNamesBeginWithFullname checks that fullnameOverride is in the name of every object except the
// CRDs, and in every reference to such an object.
func TestNamesBeginWithFullname(t *testing.T) {
	values := withIssuer(map[string]any{
		"crds": map[string]any{"install": false}, "shards": []any{"a"},
		"discovery": map[string]any{"mirrorClusterIssuer": map[string]any{"url": "https://cluster.example.com", "ingress": map[string]any{"enabled": true}}},
	})
	usual, err := chart.Render(release(values))
	must.Succeed(t, err)
	values["fullnameOverride"] = "credentials"
	named, err := chart.Render(release(values))
	must.Succeed(t, err)
	// Replace "lanyard-" by "credentials-" in all names. The Replacer restores the names of the
	// program and the image, which do not change.
	want := regexp.MustCompile(`\blanyard-(controller(-tenant|-a)?(-headless)?|view|edit|keyrings|workloadidentities|awsidentities|awssecrets|metadata|token-server(-cluster-issuer)?|token-requests|discovery(-mirror)?|identity-controller|apply-controller(-tenant)?)\b`).ReplaceAllString(string(usual), "credentials-$1")
	want = strings.NewReplacer(
		"[/credentials-", "[/lanyard-", "lanyard/credentials-", "lanyard/lanyard-",
		// fullnameOverride renames neither Leases nor the token server's Secret.
		"resourceNames: [credentials-identity-controller]\n    verbs: [get, update]", "resourceNames: [lanyard-identity-controller]\n    verbs: [get, update]",
		"resourceNames: [credentials-apply-controller]\n    verbs: [get, update]", "resourceNames: [lanyard-apply-controller]\n    verbs: [get, update]",
		"credentials-token-server-issuer", "lanyard-token-server-issuer", "credentials-token-server-spiffe", "lanyard-token-server-spiffe", "credentials-token-server-ca", "lanyard-token-server-ca",
	).Replace(want)
	if got := string(named); got != want {
		t.Error(golden.FirstDifference([]byte(got), []byte(want)))
	}
}

// TestAccountThatExists checks that the pods and every binding use the account whose name is in
// serviceAccount.name. The chart creates this account only if serviceAccount.create is true.
func TestAccountThatExists(t *testing.T) {
	for create, accounts := range map[bool]int{true: 1, false: 0} {
		objects, err := chart.Objects(release(map[string]any{"serviceAccount": map[string]any{"create": create, "name": "platform"}}))
		must.Succeed(t, err)
		for _, object := range objects {
			switch kind := object.GetKind(); kind {
			case "ServiceAccount":
				accounts--
				if object.GetName() != "platform" {
					t.Errorf("makes the account %s", object.GetName())
				}
			case "StatefulSet":
				if name, _, err := unstructured.NestedString(object.Object, "spec", "template", "spec", "serviceAccountName"); err != nil || name != "platform" {
					t.Errorf("the pods run as %q, %v", name, err)
				}
			case "RoleBinding", "ClusterRoleBinding":
				subjects, _, err := unstructured.NestedSlice(object.Object, "subjects")
				if err != nil || len(subjects) != 1 || subjects[0].(map[string]any)["name"] != "platform" {
					t.Errorf("%s %s is about %v, %v", kind, object.GetName(), subjects, err)
				}
			case "Role":
				for _, rule := range rules(t, object) {
					if slices.Contains(rule.Resources, "serviceaccounts/token") && !slices.Equal(rule.ResourceNames, []string{"platform"}) {
						t.Errorf("may ask for tokens of %v", rule.ResourceNames)
					}
				}
			}
		}
		if accounts != 0 {
			t.Errorf("create %v: %d accounts are missing", create, accounts)
		}
	}
}

// TestExtraArgumentsWin checks that extraArgs come after the chart's own arguments.
func TestExtraArgumentsWin(t *testing.T) {
	objects, err := chart.Objects(release(map[string]any{"extraArgs": []any{"--log-level=debug"}, "log": map[string]any{"level": "error"}}))
	must.Succeed(t, err)
	parsed, _, err := flags.Parse(arguments(t, objects)[0], func(string) string { return "" }, "", io.Discard)
	if err != nil || parsed.LogLevel != slog.LevelDebug {
		t.Errorf("logs at level %v, %v", parsed.LogLevel, err)
	}
}

// TestREADMENamesClusterObjects checks that the README lists the chart's cluster-scoped objects,
// besides the CRDs. Two releases in a cluster cannot both have these objects.
func TestREADMENamesClusterObjects(t *testing.T) {
	readme, err := os.ReadFile("../../charts/lanyard/README.md")
	must.Succeed(t, err)
	values := withIssuer(map[string]any{
		"crds": map[string]any{"install": false}, "rbac": map[string]any{"tenantNamespaces": nil},
		"discovery": map[string]any{"mirrorClusterIssuer": map[string]any{"url": "https://cluster.example.com"}},
	})
	issuer := values["issuer"].(map[string]any)
	issuer["acceptControllerReadsAllSecrets"] = true
	issuer["claimsConfig"] = map[string]any{"contexts": []any{}}
	objects, err := chart.Objects(release(values))
	must.Succeed(t, err)
	for _, object := range objects {
		row := regexp.MustCompile(`(?m)^\| ` + object.GetKind() + ` \|.*` + "`" + regexp.QuoteMeta(object.GetName()) + "`")
		if object.GetNamespace() == "" && !row.Match(readme) {
			t.Errorf("the README does not list %s %s", object.GetKind(), object.GetName())
		}
	}
}

// TestReleaseNeedsNames checks that a release without a name or a namespace is not rendered.
func TestReleaseNeedsNames(t *testing.T) {
	for _, release := range []chart.Release{{}, {Name: "lanyard"}, {Namespace: "lanyard-system"}} {
		if _, err := chart.Render(release); err == nil {
			t.Errorf("rendered %+v", release)
		}
	}
}
