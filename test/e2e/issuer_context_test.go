package e2e

import (
	"context"
	"encoding/json"
	"os"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	tokenv1 "github.com/lanyard-dev/lanyard/api/token/v1alpha1"
)

// garden has two projects. Each project has a Shoot, and an identity for the Shoot.
const garden = `
apiVersion: v1
kind: Namespace
metadata: {name: garden-e2e-a, labels: {project.gardener.cloud/name: e2e-a}}
---
apiVersion: v1
kind: Namespace
metadata: {name: garden-e2e-b, labels: {project.gardener.cloud/name: e2e-b}}
---
apiVersion: core.gardener.cloud/v1beta1
kind: Project
metadata: {name: e2e-a}
spec: {namespace: garden-e2e-a}
---
apiVersion: core.gardener.cloud/v1beta1
kind: Project
metadata: {name: e2e-b}
spec: {namespace: garden-e2e-b}
---
apiVersion: core.gardener.cloud/v1beta1
kind: Seed
metadata: {name: e2e-seed}
---
apiVersion: security.gardener.cloud/v1alpha1
kind: CredentialsBinding
metadata: {name: aws, namespace: garden-e2e-a}
credentialsRef: {apiVersion: identity.lanyard.dev/v1alpha1, kind: WorkloadIdentity, namespace: garden-e2e-a, name: banana}
---
apiVersion: security.gardener.cloud/v1alpha1
kind: CredentialsBinding
metadata: {name: aws, namespace: garden-e2e-b}
credentialsRef: {apiVersion: identity.lanyard.dev/v1alpha1, kind: WorkloadIdentity, namespace: garden-e2e-b, name: banana}
---
apiVersion: core.gardener.cloud/v1beta1
kind: Shoot
metadata: {name: foo, namespace: garden-e2e-a}
spec: {seedName: e2e-seed, credentialsBindingName: aws}
---
apiVersion: core.gardener.cloud/v1beta1
kind: Shoot
metadata: {name: foo, namespace: garden-e2e-b}
spec: {seedName: e2e-seed, credentialsBindingName: aws}
---
apiVersion: identity.lanyard.dev/v1alpha1
kind: WorkloadIdentity
metadata: {name: banana, namespace: garden-e2e-a}
spec: {audiences: [team-foo], targetSystem: {type: any}}
---
apiVersion: identity.lanyard.dev/v1alpha1
kind: WorkloadIdentity
metadata: {name: banana, namespace: garden-e2e-b}
spec: {audiences: [team-foo], targetSystem: {type: any}}
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: refresher, namespace: garden-e2e-a}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: refresher, namespace: garden-e2e-a}
rules: [{apiGroups: [core.gardener.cloud], resources: [shoots], verbs: [get]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: refresher}
rules: [{apiGroups: [token.lanyard.dev], resources: [workloadidentities/token], verbs: [create]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: refresher}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: refresher}
subjects: [{kind: ServiceAccount, namespace: garden-e2e-a, name: refresher}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: refresher, namespace: garden-e2e-a}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: refresher}
subjects: [{kind: ServiceAccount, namespace: garden-e2e-a, name: refresher}]
`

// contextsAreChecked requests tokens whose contextObject is of one of Gardener's kinds. It checks
// the tokens' claims. The token server reads Gardener's objects with the rights that the chart
// grants for issuer.claimsConfig.
func contextsAreChecked(t *testing.T, w *issuerWorld) {
	t.Helper()
	makeGarden(t, w)
	typed, err := kubernetes.NewForConfig(as(w.Cluster, "garden-e2e-a", "refresher"))
	must(t, "make a client", err)
	refresher, administrator := typed.CoreV1().RESTClient(), w.api
	mint := func(ctx context.Context, caller rest.Interface, namespace string, object tokenv1.ContextObject) (string, error) {
		spec, err := json.Marshal(tokenv1.TokenRequestSpec{ContextObject: &object})
		must(t, "write a request", err)
		return requestFor(ctx, caller, client.ObjectKey{Namespace: namespace, Name: "banana"}, string(spec))
	}
	foo, elsewhere := w.shoot(t, "garden-e2e-a"), w.shoot(t, "garden-e2e-b")

	// The API server's authorizers see a new role a little later.
	eventually(t, "the claims of a Shoot", func(ctx context.Context) error {
		token, err := mint(ctx, refresher, "garden-e2e-a", foo)
		if err != nil {
			return err
		}
		got, err := json.Marshal(claimsOf(t, token)["gardener.cloud"])
		want := `{"garden":{"id":"prod"},"project":{"name":"e2e-a","uid":"` + w.uid(t, "core.gardener.cloud/v1beta1", "Project", "", "e2e-a") + `"},` +
			`"seed":{"name":"e2e-seed","uid":"` + w.uid(t, "core.gardener.cloud/v1beta1", "Seed", "", "e2e-seed") + `"},` +
			`"shoot":{"name":"foo","namespace":"garden-e2e-a","uid":"` + string(foo.UID) + `"},` +
			`"workloadIdentity":{"name":"banana","namespace":"garden-e2e-a","uid":"` + w.uid(t, "identity.lanyard.dev/v1alpha1", "WorkloadIdentity", "garden-e2e-a", "banana") + `"}}`
		if err != nil || string(got) != want {
			t.Fatalf("claims %s %v, want %s", got, err, want)
		}
		return nil
	})

	missing, recreated := foo, foo
	missing.Name, recreated.UID = "nothing", "54d09554-6a68-4f46-a23a-e3592385d820"
	const unreadable = "does not exist with this UID, or the caller may not get it"
	for name, c := range map[string]struct {
		caller    rest.Interface
		namespace string // namespace of the identity
		object    tokenv1.ContextObject
		is        func(error) bool
		words     string
	}{
		"an object that does not exist":         {refresher, "garden-e2e-a", missing, apierrors.IsForbidden, unreadable},
		"an object that was created again":      {refresher, "garden-e2e-a", recreated, apierrors.IsForbidden, unreadable},
		"an object that the caller may not get": {refresher, "garden-e2e-b", elsewhere, apierrors.IsForbidden, unreadable},
		"another project's object":              {administrator, "garden-e2e-a", elsewhere, apierrors.IsInvalid, "must be the WorkloadIdentity's namespace"},
		"an object of a kind that is not configured": {
			administrator, "garden-e2e-a",
			tokenv1.ContextObject{APIVersion: "v1", Kind: "Secret", Namespace: "garden-e2e-a", Name: "x", UID: "y"},
			apierrors.IsInvalid, "Unsupported value",
		},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := mint(t.Context(), c.caller, c.namespace, c.object)
			if err == nil || !c.is(err) || !strings.Contains(err.Error(), c.words) {
				t.Errorf("%v, want %s", err, c.words)
			}
		})
	}
	t.Run("a Shoot that leaves its identity", func(t *testing.T) {
		o := w.read(t, "core.gardener.cloud/v1beta1", "Shoot", "garden-e2e-a", "foo")
		must(t, "change", unstructured.SetNestedField(o.Object, "", "spec", "credentialsBindingName"))
		must(t, "change the Shoot", w.people.Update(t.Context(), o))
		_, err := mint(t.Context(), refresher, "garden-e2e-a", foo)
		if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "does not use this WorkloadIdentity") {
			t.Errorf("%v, want that the Shoot does not use the identity", err)
		}
	})
}

// claimsConfig returns the chart's value issuer.claimsConfig for Gardener's kinds. It reads the
// file that Lanyard ships for --claims-config.
func claimsConfig(t *testing.T) map[string]any {
	t.Helper()
	data, err := os.ReadFile("../../config/claims/gardener.yaml")
	must(t, "read the file", err)
	config := map[string]any{}
	must(t, "parse the file", yaml.Unmarshal(data, &config))
	return config
}

// makeGarden creates Gardener's kinds, as plain CRDs, and some objects of these kinds.
func makeGarden(t *testing.T, w *issuerWorld) {
	t.Helper()
	makeGardenerKinds(t, w.people)
	for manifest := range strings.SplitSeq(garden, "---\n") {
		createManifest(t, w.people, manifest)
	}
}

// makeGardenerKinds creates Gardener's kinds in a cluster, as plain CRDs.
func makeGardenerKinds(t *testing.T, c client.Client) {
	t.Helper()
	for plural, kind := range map[string]schema.GroupVersionKind{
		"shoots":              {Group: "core.gardener.cloud", Version: "v1beta1", Kind: "Shoot"},
		"projects":            {Group: "core.gardener.cloud", Version: "v1beta1", Kind: "Project"},
		"seeds":               {Group: "core.gardener.cloud", Version: "v1beta1", Kind: "Seed"},
		"credentialsbindings": {Group: "security.gardener.cloud", Version: "v1alpha1", Kind: "CredentialsBinding"},
	} {
		scope := "Namespaced"
		if kind.Kind == "Project" || kind.Kind == "Seed" {
			scope = "Cluster"
		}
		createManifest(t, c, `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: `+plural+"."+kind.Group+`}
spec:
  group: `+kind.Group+`
  scope: `+scope+`
  names: {plural: `+plural+`, singular: `+strings.ToLower(kind.Kind)+`, kind: `+kind.Kind+`}
  versions:
  - {name: `+kind.Version+`, served: true, storage: true, schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}
`)
	}
}

// createManifest creates an object and returns it. It retries until the API server serves the kind.
func createManifest(t *testing.T, c client.Client, manifest string) *unstructured.Unstructured {
	t.Helper()
	made := &unstructured.Unstructured{}
	eventually(t, "make an object", func(ctx context.Context) error {
		made = &unstructured.Unstructured{}
		if err := yaml.Unmarshal([]byte(manifest), &made.Object); err != nil {
			return err
		}
		return c.Create(ctx, made)
	})
	return made
}

func (w *issuerWorld) read(t *testing.T, apiVersion, kind, namespace, name string) *unstructured.Unstructured {
	t.Helper()
	o := &unstructured.Unstructured{}
	o.SetAPIVersion(apiVersion)
	o.SetKind(kind)
	must(t, "read "+kind+" "+name, w.people.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: name}, o))
	return o
}

func (w *issuerWorld) uid(t *testing.T, apiVersion, kind, namespace, name string) string {
	t.Helper()
	return string(w.read(t, apiVersion, kind, namespace, name).GetUID())
}

// shoot returns the Shoot foo of a namespace as a context object.
func (w *issuerWorld) shoot(t *testing.T, namespace string) tokenv1.ContextObject {
	t.Helper()
	o := w.read(t, "core.gardener.cloud/v1beta1", "Shoot", namespace, "foo")
	return tokenv1.ContextObject{APIVersion: o.GetAPIVersion(), Kind: o.GetKind(), Namespace: namespace, Name: o.GetName(), UID: o.GetUID()}
}
