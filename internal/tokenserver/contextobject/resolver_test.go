package contextobject

import (
	"bytes"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/authentication/user"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"sigs.k8s.io/yaml"

	identityv1 "github.com/lanyard-dev/lanyard/api/identity/v1alpha1"
	tokenv1 "github.com/lanyard-dev/lanyard/api/token/v1alpha1"
	"github.com/lanyard-dev/lanyard/internal/golden"
	"github.com/lanyard-dev/lanyard/internal/issuer"
	"github.com/lanyard-dev/lanyard/internal/kinds"
	"github.com/lanyard-dev/lanyard/internal/must"
)

// spokeUsers is the prefix of the seeds' user names, as in Gardener.
const spokeUsers = "gardener.cloud:system:seed:"

const gardener = "../../../config/claims/gardener.yaml"

// landscape is a small Gardener with two seeds and two projects. Each project has a Shoot, and each
// Shoot has its own identity.
const landscape = `
apiVersion: v1
kind: Namespace
metadata: {name: garden-local, uid: n1, labels: {project.gardener.cloud/name: local}}
---
apiVersion: v1
kind: Namespace
metadata: {name: garden-other, uid: n2, labels: {project.gardener.cloud/name: other}}
---
apiVersion: core.gardener.cloud/v1beta1
kind: Project
metadata: {name: local, uid: 01c9c6fa-2b8b-496f-8edf-e382f4d61905}
spec: {namespace: garden-local}
---
apiVersion: core.gardener.cloud/v1beta1
kind: Project
metadata: {name: other, uid: p2}
spec: {namespace: garden-other}
---
apiVersion: core.gardener.cloud/v1beta1
kind: Seed
metadata: {name: seed-a, uid: aa88fb5a-28ef-4987-8c2d-9f02afafcf09}
spec:
  backup:
    credentialsRef: {apiVersion: identity.lanyard.dev/v1alpha1, kind: WorkloadIdentity, namespace: garden-local, name: banana}
---
apiVersion: core.gardener.cloud/v1beta1
kind: Seed
metadata: {name: seed-b, uid: s2}
spec:
  backup:
    credentialsRef: {apiVersion: identity.lanyard.dev/v1alpha1, kind: WorkloadIdentity, namespace: garden, name: backup}
---
apiVersion: security.gardener.cloud/v1alpha1
kind: CredentialsBinding
metadata: {name: aws, namespace: garden-local, uid: b1}
provider: {type: aws}
credentialsRef: {apiVersion: identity.lanyard.dev/v1alpha1, kind: WorkloadIdentity, namespace: garden-local, name: banana}
---
apiVersion: security.gardener.cloud/v1alpha1
kind: CredentialsBinding
metadata: {name: of-gardener, namespace: garden-local, uid: b2}
provider: {type: aws}
credentialsRef: {apiVersion: security.gardener.cloud/v1alpha1, kind: WorkloadIdentity, namespace: garden-local, name: banana}
---
apiVersion: security.gardener.cloud/v1alpha1
kind: CredentialsBinding
metadata: {name: secret, namespace: garden-local, uid: b3}
provider: {type: aws}
credentialsRef: {apiVersion: v1, kind: Secret, namespace: garden-local, name: banana}
---
apiVersion: security.gardener.cloud/v1alpha1
kind: CredentialsBinding
metadata: {name: aws, namespace: garden-other, uid: b4}
provider: {type: aws}
credentialsRef: {apiVersion: identity.lanyard.dev/v1alpha1, kind: WorkloadIdentity, namespace: garden-other, name: cherry}
---
apiVersion: core.gardener.cloud/v1beta1
kind: Shoot
metadata: {name: foo, namespace: garden-local, uid: 54d09554-6a68-4f46-a23a-e3592385d820}
spec: {seedName: seed-a, credentialsBindingName: aws}
---
apiVersion: core.gardener.cloud/v1beta1
kind: Shoot
metadata: {name: bar, namespace: garden-other, uid: 18dd0733-3c9e-4587-a8ae-d6fa5daf460c}
spec: {seedName: seed-b, credentialsBindingName: aws}
---
apiVersion: core.gardener.cloud/v1beta1
kind: BackupBucket
metadata: {name: bucket, uid: bb1}
spec:
  seedName: seed-b
  credentialsRef: {apiVersion: identity.lanyard.dev/v1alpha1, kind: WorkloadIdentity, namespace: garden, name: backup}
---
apiVersion: core.gardener.cloud/v1beta1
kind: BackupEntry
metadata: {name: entry, namespace: garden-local, uid: be1}
spec: {bucketName: bucket, seedName: seed-b}
---
apiVersion: toolkit.lanyard.dev/v1alpha1
kind: OCIRepository
metadata: {name: app, namespace: garden-local, uid: o1}
spec: {workloadIdentityName: banana}
---
apiVersion: toolkit.lanyard.dev/v1alpha1
kind: OCIRepository
metadata: {name: app, namespace: garden-other, uid: o2}
spec: {workloadIdentityName: banana}
`

// world is a cluster with objects, a caller's rights, and a resolver.
type world struct {
	resolver Resolver
	objects  *dynamicfake.FakeDynamicClient
	log      bytes.Buffer
	reviews  []authorizationv1.SubjectAccessReviewSpec
	// may is the function that answers each SubjectAccessReview; nil allows every request.
	may func(authorizationv1.SubjectAccessReviewSpec) (bool, error)
}

func newWorld(t *testing.T, config string) *world {
	t.Helper()
	known, err := Load(kinds.All(), config)
	must.Succeed(t, err)
	w := &world{}
	lists := map[schema.GroupVersionResource]string{}
	for gvk, kind := range known {
		lists[kind.GroupVersionResource] = gvk.Kind + "List"
		for _, via := range kind.via {
			lists[via.GroupVersionResource] = via.kind.Kind + "List"
		}
	}
	w.objects = dynamicfake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), lists)
	for manifest := range strings.SplitSeq(landscape, "---\n") {
		w.add(t, manifest)
	}
	client := fake.NewClientset()
	client.PrependReactor("create", "subjectaccessreviews", func(action clienttesting.Action) (bool, runtime.Object, error) {
		review := action.(clienttesting.CreateAction).GetObject().(*authorizationv1.SubjectAccessReview).DeepCopy()
		w.reviews = append(w.reviews, review.Spec)
		if w.may == nil {
			review.Status.Allowed = true
			return true, review, nil
		}
		var err error
		review.Status.Allowed, err = w.may(review.Spec)
		return true, review, err
	})
	w.resolver = Resolver{Kinds: known, Reviews: client.AuthorizationV1().SubjectAccessReviews(), Objects: w.objects, Clusters: issuer.Clusters{ID: "landscape-1", SpokeUserPrefix: spokeUsers}, Log: slog.New(slog.NewTextHandler(&w.log, nil))}
	return w
}

func parse(t *testing.T, manifest string) *unstructured.Unstructured {
	t.Helper()
	object := &unstructured.Unstructured{}
	must.Succeed(t, yaml.Unmarshal([]byte(manifest), &object.Object))
	return object
}

func plural(object *unstructured.Unstructured) schema.GroupVersionResource {
	gvk := object.GroupVersionKind()
	resource := strings.ToLower(gvk.Kind) + "s"
	if stem, ok := strings.CutSuffix(resource, "ys"); ok {
		resource = stem + "ies"
	}
	return gvk.GroupVersion().WithResource(resource)
}

// add writes a new object.
func (w *world) add(t *testing.T, manifest string) {
	t.Helper()
	object := parse(t, manifest)
	must.Succeed(t, w.objects.Tracker().Create(plural(object), object, object.GetNamespace()))
}

// set replaces the object of the same name.
func (w *world) set(t *testing.T, manifest string) {
	t.Helper()
	object := parse(t, manifest)
	must.Succeed(t, w.objects.Tracker().Update(plural(object), object, object.GetNamespace()))
}

// remove deletes an object.
func (w *world) remove(t *testing.T, apiVersion, resource, namespace, name string) {
	t.Helper()
	gv, err := schema.ParseGroupVersion(apiVersion)
	must.Succeed(t, err)
	must.Succeed(t, w.objects.Tracker().Delete(gv.WithResource(resource), namespace, name))
}

func (w *world) resolve(t *testing.T, identity *identityv1.WorkloadIdentity, object tokenv1.ContextObject) (*issuer.Context, error) {
	t.Helper()
	return w.resolver.Resolve(t.Context(), refresher(), identity, &object)
}

func refresher() user.Info {
	return &user.DefaultInfo{
		Name: "system:serviceaccount:spoke:refresher", UID: "u1", Groups: []string{"system:authenticated"},
		Extra: map[string][]string{"authentication.kubernetes.io/pod-name": {"refresher-0"}},
	}
}

func identity(namespace, name string) *identityv1.WorkloadIdentity {
	return &identityv1.WorkloadIdentity{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: types.UID("uid-of-" + name)},
		Spec: identityv1.WorkloadIdentitySpec{
			Audiences: []string{"service-foo-provider-bar"}, TargetSystem: identityv1.TargetSystem{Type: "foo"},
			SigningAlgorithm: identityv1.RS256, SubjectFormat: identityv1.SubjectFormatUID,
		},
	}
}

func banana() *identityv1.WorkloadIdentity {
	i := identity("garden-local", "banana")
	i.UID = "12b580fe-1f74-4195-852b-e1a74b03496a"
	return i
}

func core(kind, namespace, name, uid string) tokenv1.ContextObject {
	return tokenv1.ContextObject{APIVersion: "core.gardener.cloud/v1beta1", Kind: kind, Namespace: namespace, Name: name, UID: types.UID(uid)}
}

func foo() tokenv1.ContextObject {
	return core("Shoot", "garden-local", "foo", "54d09554-6a68-4f46-a23a-e3592385d820")
}

func bar() tokenv1.ContextObject {
	return core("Shoot", "garden-other", "bar", "18dd0733-3c9e-4587-a8ae-d6fa5daf460c")
}

// TestSamplePayload checks the payload of a token for a Shoot: GEP-26's sample, and our own claims.
func TestSamplePayload(t *testing.T) {
	w := newWorld(t, gardener)
	object, err := w.resolve(t, banana(), foo())
	must.Succeed(t, err)
	i := issuer.Issuer{
		URL: "https://workload-identity.example.com", APIAudiences: []string{"https://kubernetes.default.svc"},
		Limits: issuer.Limits{Min: time.Minute, Default: time.Hour, Max: time.Hour},
	}
	claims, wrong := i.Claims(banana(), &tokenv1.TokenRequestSpec{}, object, "3f0d6a1e-6a5b-4f0e-9a44-5f1f1a4f5b0a", time.Unix(1707312142, 0))
	if len(wrong) > 0 {
		t.Fatal(wrong)
	}
	claims.Lanyard.Cluster = &issuer.Cluster{ID: "landscape-1"}
	payload, err := json.MarshalIndent(claims, "", "  ")
	must.Succeed(t, err)
	golden.Compare(t, "testdata/gardener.golden.json", append(payload, '\n'))
}

// TestResolve checks which objects are accepted, and which claims their tokens have. It includes
// the cases of Gardener's resolveContextObject. Comments say where Gardener differs.
func TestResolve(t *testing.T) {
	const gone = `spec.contextObject: the Shoot does not exist with this UID, or the caller may not get it`
	const unrelated = `spec.contextObject: the Shoot does not use this WorkloadIdentity`
	binding := func(name string) string {
		return `
apiVersion: core.gardener.cloud/v1beta1
kind: Shoot
metadata: {name: foo, namespace: garden-local, uid: 54d09554-6a68-4f46-a23a-e3592385d820}
spec: {seedName: seed-a, credentialsBindingName: ` + name + `}`
	}
	for name, c := range map[string]struct {
		identity *identityv1.WorkloadIdentity // banana() if nil
		object   tokenv1.ContextObject
		change   func(t *testing.T, w *world)
		want     string // JSON of the claim gardener.cloud, without its fields workloadIdentity and garden
		code     int32
		message  string
		fix      string // must be in the log
	}{
		"a Shoot on a seed": {
			object: foo(),
			want: `{"project":{"name":"local","uid":"01c9c6fa-2b8b-496f-8edf-e382f4d61905"},"seed":{"name":"seed-a","uid":"aa88fb5a-28ef-4987-8c2d-9f02afafcf09"},` +
				`"shoot":{"name":"foo","namespace":"garden-local","uid":"54d09554-6a68-4f46-a23a-e3592385d820"}}`,
		},
		"a Shoot that is not scheduled": {
			object: foo(),
			change: func(t *testing.T, w *world) {
				t.Helper()
				w.set(t, strings.Replace(binding("aws"), "seedName: seed-a, ", "", 1))
			},
			want: `{"project":{"name":"local","uid":"01c9c6fa-2b8b-496f-8edf-e382f4d61905"},` +
				`"shoot":{"name":"foo","namespace":"garden-local","uid":"54d09554-6a68-4f46-a23a-e3592385d820"}}`,
		},
		"a Seed": {
			object: core("Seed", "", "seed-a", "aa88fb5a-28ef-4987-8c2d-9f02afafcf09"),
			want:   `{"seed":{"name":"seed-a","uid":"aa88fb5a-28ef-4987-8c2d-9f02afafcf09"}}`,
		},
		"a BackupBucket": {
			identity: identity("garden", "backup"), object: core("BackupBucket", "", "bucket", "bb1"),
			want: `{"backupBucket":{"name":"bucket","uid":"bb1"},"seed":{"name":"seed-b","uid":"s2"}}`,
		},
		"a BackupEntry of another namespace": {
			identity: identity("garden", "backup"), object: core("BackupEntry", "garden-local", "entry", "be1"),
			want: `{"backupBucket":{"name":"bucket","uid":"bb1"},"backupEntry":{"name":"entry","namespace":"garden-local","uid":"be1"},"seed":{"name":"seed-b","uid":"s2"}}`,
		},
		"an object that is being deleted, which may still need its credential": {
			identity: identity("garden", "backup"), object: core("BackupBucket", "", "bucket", "bb1"),
			change: func(t *testing.T, w *world) {
				t.Helper()
				w.set(t, `
apiVersion: core.gardener.cloud/v1beta1
kind: BackupBucket
metadata: {name: bucket, uid: bb1, deletionTimestamp: "2026-01-01T00:00:00Z", finalizers: [gardener]}
spec:
  credentialsRef: {apiVersion: identity.lanyard.dev/v1alpha1, kind: WorkloadIdentity, namespace: garden, name: backup}`)
			},
			want: `{"backupBucket":{"name":"bucket","uid":"bb1"}}`,
		},
		"an object of Lanyard's": {
			object: tokenv1.ContextObject{APIVersion: "toolkit.lanyard.dev/v1alpha1", Kind: "OCIRepository", Namespace: "garden-local", Name: "app", UID: "o1"},
		},

		// Gardener does not check that the object uses the identity.
		"another identity's Shoot, in its namespace": {
			identity: identity("garden-local", "apple"), object: foo(), code: http.StatusForbidden, message: unrelated,
		},
		"another project's Shoot": {
			object: bar(), code: http.StatusUnprocessableEntity,
			message: `spec.contextObject.namespace: Invalid value: "garden-other": must be the WorkloadIdentity's namespace, garden-local`,
		},
		"another's Seed": {
			object: core("Seed", "", "seed-b", "s2"), code: http.StatusForbidden, message: `the Seed does not use this WorkloadIdentity`,
		},
		"another's BackupEntry": {
			object: core("BackupEntry", "garden-local", "entry", "be1"), code: http.StatusForbidden, message: `the BackupEntry does not use this WorkloadIdentity`,
		},
		"an identity of the same name elsewhere": {
			identity: identity("garden-other", "banana"), object: core("Seed", "", "seed-a", "aa88fb5a-28ef-4987-8c2d-9f02afafcf09"),
			code: http.StatusForbidden, message: `the Seed does not use this WorkloadIdentity`,
		},
		"Lanyard's object of another namespace": {
			object: tokenv1.ContextObject{APIVersion: "toolkit.lanyard.dev/v1alpha1", Kind: "OCIRepository", Namespace: "garden-other", Name: "app", UID: "o2"},
			code:   http.StatusUnprocessableEntity, message: "must be the WorkloadIdentity's namespace",
		},
		"a binding with Gardener's own identity of the same name": {
			object: foo(), change: func(t *testing.T, w *world) { t.Helper(); w.set(t, binding("of-gardener")) },
			code: http.StatusForbidden, message: unrelated,
		},
		"a binding with a Secret of the same name": {
			object: foo(), change: func(t *testing.T, w *world) { t.Helper(); w.set(t, binding("secret")) },
			code: http.StatusForbidden, message: unrelated,
		},
		"a Shoot without a binding": {
			object: foo(), change: func(t *testing.T, w *world) { t.Helper(); w.set(t, binding(`""`)) },
			code: http.StatusForbidden, message: unrelated,
		},
		"a binding's name of a wrong type": {
			object: foo(), change: func(t *testing.T, w *world) { t.Helper(); w.set(t, binding("[aws]")) },
			code: http.StatusForbidden, message: "the Shoot leads to no valid CredentialsBinding",
		},
		"a binding's name that leaves its path": {
			object: foo(), change: func(t *testing.T, w *world) {
				t.Helper()
				w.set(t, binding("../../garden-other/credentialsbindings/aws"))
			},
			code: http.StatusForbidden, message: "the Shoot leads to no valid CredentialsBinding",
		},
		"a namespace that says to be another project's": {
			object: foo(), change: func(t *testing.T, w *world) {
				t.Helper()
				w.set(t, "apiVersion: v1\nkind: Namespace\nmetadata: {name: garden-local, labels: {project.gardener.cloud/name: other}}")
			},
			code: http.StatusForbidden, message: unrelated,
		},

		// For most of these objects, Gardener's error is no status, or only wraps one. So Gardener
		// answers with 500. For a Shoot without namespace, it aborts the connection.
		"an unknown kind": {
			object: tokenv1.ContextObject{APIVersion: "test/v1alpha1", Kind: "Foo", Name: "test-pod", UID: "18dd0733-3c9e-4587-a8ae-d6fa5daf460c"},
			code:   http.StatusUnprocessableEntity, message: `spec.contextObject.kind: Unsupported value: "test/v1alpha1, Kind=Foo"`,
		},
		"another version of the kind": {
			object: tokenv1.ContextObject{APIVersion: "core.gardener.cloud/v1alpha1", Kind: "Shoot", Namespace: "garden-local", Name: "foo", UID: "x"},
			code:   http.StatusUnprocessableEntity, message: `spec.contextObject.kind: Unsupported value: "core.gardener.cloud/v1alpha1, Kind=Shoot"`,
		},
		"a Shoot without namespace": {
			object: core("Shoot", "", "foo", "54d09554-6a68-4f46-a23a-e3592385d820"),
			code:   http.StatusUnprocessableEntity, message: "spec.contextObject.namespace: Required value",
		},
		"a BackupEntry without namespace": {
			identity: identity("garden", "backup"), object: core("BackupEntry", "", "entry", "be1"),
			code: http.StatusUnprocessableEntity, message: "spec.contextObject.namespace: Required value",
		},
		"a Seed with a namespace": {
			object: core("Seed", "garden-local", "seed-a", "aa88fb5a-28ef-4987-8c2d-9f02afafcf09"),
			code:   http.StatusUnprocessableEntity, message: "spec.contextObject.namespace: Forbidden",
		},
		"a Shoot that does not exist": {
			object: core("Shoot", "garden-local", "nothing", "54d09554-6a68-4f46-a23a-e3592385d820"), code: http.StatusForbidden, message: gone,
		},
		"a Shoot with another UID": {
			object: core("Shoot", "garden-local", "foo", "18dd0733-3c9e-4587-a8ae-d6fa5daf460c"), code: http.StatusForbidden, message: gone,
		},
		"a Shoot that was deleted and created again": {
			object: foo(), change: func(t *testing.T, w *world) {
				t.Helper()
				w.set(t, strings.Replace(binding("aws"), "54d09554", "64d09554", 1))
			},
			code: http.StatusForbidden, message: gone,
		},
		"a Shoot that the caller may not get": {
			object: foo(), change: func(_ *testing.T, w *world) {
				w.may = func(authorizationv1.SubjectAccessReviewSpec) (bool, error) { return false, nil }
			},
			code: http.StatusForbidden, message: gone,
		},
		"a Seed that does not exist": {
			object: foo(), change: func(t *testing.T, w *world) {
				t.Helper()
				w.remove(t, "core.gardener.cloud/v1beta1", "seeds", "", "seed-a")
			},
			code: http.StatusForbidden, message: "the Shoot leads to a Seed that does not exist",
		},
		"a Project that does not exist": {
			object: foo(), change: func(t *testing.T, w *world) {
				t.Helper()
				w.remove(t, "core.gardener.cloud/v1beta1", "projects", "", "local")
			},
			code: http.StatusForbidden, message: "the Shoot leads to a Project that does not exist",
		},
		"a namespace of no Project": {
			object: foo(), change: func(t *testing.T, w *world) {
				t.Helper()
				w.set(t, "apiVersion: v1\nkind: Namespace\nmetadata: {name: garden-local}")
			},
			code: http.StatusForbidden, message: unrelated,
		},

		// If a check ends with an error, the token is refused.
		"rights that cannot be asked for": {
			object: foo(), change: func(_ *testing.T, w *world) {
				w.may = func(authorizationv1.SubjectAccessReviewSpec) (bool, error) { return true, errors.New("etcd is gone") }
			},
			code: http.StatusServiceUnavailable, message: "cannot check the context object now",
		},
		"an object that the token server may not get": {
			object: foo(), change: func(_ *testing.T, w *world) { w.fail("shoots") },
			code: http.StatusServiceUnavailable, message: "cannot check the context object now", fix: "grant the token server the verb get for shoots.core.gardener.cloud",
		},
		"a further object that the token server may not get": {
			object: foo(), change: func(_ *testing.T, w *world) { w.fail("seeds") },
			code: http.StatusServiceUnavailable, message: "cannot check the context object now",
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, gardener)
			if c.change != nil {
				c.change(t, w)
			}
			if c.identity == nil {
				c.identity = banana()
			}
			got, err := w.resolve(t, c.identity, c.object)
			if c.code == 0 {
				must.Succeed(t, err)
				checkClaims(t, got, c.object, c.want)
				return
			}
			status, ok := err.(apierrors.APIStatus)
			if !ok {
				t.Fatalf("%v (%+v) is no status of the API", err, got)
			}
			if status.Status().Code != c.code || !strings.Contains(status.Status().Message, c.message) {
				t.Errorf("%d %s, want %d %s", status.Status().Code, status.Status().Message, c.code, c.message)
			}
			if strings.Contains(status.Status().Message, "etcd") {
				t.Errorf("the caller sees the cause: %s", status.Status().Message)
			}
			if c.code == http.StatusServiceUnavailable && (!strings.Contains(w.log.String(), "etcd") || !strings.Contains(w.log.String(), c.fix)) {
				t.Errorf("the log does not have the cause and the next step: %s", w.log.String())
			}
		})
	}
}

// fail makes the API server forbid every get of a resource.
func (w *world) fail(resource string) {
	w.objects.PrependReactor("get", resource, func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, apierrors.NewForbidden(schema.GroupResource{Resource: resource}, "", errors.New("no RBAC in etcd"))
	})
}

func checkClaims(t *testing.T, got *issuer.Context, object tokenv1.ContextObject, want string) {
	t.Helper()
	reference := issuer.Reference{APIVersion: object.APIVersion, Kind: object.Kind, Namespace: object.Namespace, Name: object.Name, UID: object.UID}
	if got.Object != reference {
		t.Errorf("object %+v, want %+v", got.Object, reference)
	}
	if want == "" {
		if len(got.Further) > 0 {
			t.Errorf("further claims %v, want none", got.Further)
		}
		return
	}
	claim := got.Further["gardener.cloud"].(map[string]any)
	if garden, err := json.Marshal(claim["garden"]); err != nil || string(garden) != `{"id":"landscape-1"}` {
		t.Errorf("garden %s %v", garden, err)
	}
	delete(claim, "garden")
	delete(claim, "workloadIdentity")
	if data, err := json.Marshal(claim); err != nil || string(data) != want {
		t.Errorf("claim %s %v, want %s", data, err, want)
	}
}

// TestRefusalsLookAlike checks that callers cannot find out which objects exist. The answer must be
// the same in these cases:
//
//   - The caller may not get the object.
//   - The object does not exist.
//   - The object has another UID.
//
// Nothing may be read for a caller who may not get the object.
func TestRefusalsLookAlike(t *testing.T) {
	w := newWorld(t, gardener)
	answer := func(object tokenv1.ContextObject) string {
		t.Helper()
		_, err := w.resolve(t, banana(), object)
		status, ok := err.(apierrors.APIStatus)
		if !ok {
			t.Fatalf("%v is no status of the API", err)
		}
		data, err := json.Marshal(status.Status())
		must.Succeed(t, err)
		return string(data)
	}
	missing, recreated := foo(), foo()
	missing.Name = "nothing"
	recreated.UID = "18dd0733-3c9e-4587-a8ae-d6fa5daf460c"
	answers := []string{answer(missing), answer(recreated)}
	w.may = func(authorizationv1.SubjectAccessReviewSpec) (bool, error) { return false, nil }
	w.objects.ClearActions()
	answers = append(answers, answer(foo()), answer(missing), answer(recreated))
	if different := slices.Compact(answers); len(different) != 1 {
		t.Errorf("answers differ:\n%s", strings.Join(different, "\n"))
	}
	if read := w.objects.Actions(); len(read) > 0 {
		t.Errorf("%v was read for a caller who may not get it", read)
	}
}

// TestReview checks that the SubjectAccessReview asks whether the caller may get this one object,
// and that it has the caller's name, groups, UID and extra.
func TestReview(t *testing.T) {
	w := newWorld(t, gardener)
	if _, err := w.resolve(t, banana(), foo()); err != nil {
		t.Fatal(err)
	}
	want := `[{"resourceAttributes":{"namespace":"garden-local","verb":"get","group":"core.gardener.cloud","version":"v1beta1","resource":"shoots","name":"foo"},` +
		`"user":"system:serviceaccount:spoke:refresher","groups":["system:authenticated"],` +
		`"extra":{"authentication.kubernetes.io/pod-name":["refresher-0"]},"uid":"u1"}]`
	if got, err := json.Marshal(w.reviews); err != nil || string(got) != want {
		t.Errorf("asked %s %v, want %s", got, err, want)
	}
}

// TestDeniedBeatsAllowed checks that the caller is refused if an authorizer answers both allowed
// and denied.
func TestDeniedBeatsAllowed(t *testing.T) {
	w := newWorld(t, gardener)
	client := fake.NewClientset()
	client.PrependReactor("create", "subjectaccessreviews", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, &authorizationv1.SubjectAccessReview{Status: authorizationv1.SubjectAccessReviewStatus{Allowed: true, Denied: true}}, nil
	})
	w.resolver.Reviews = client.AuthorizationV1().SubjectAccessReviews()
	if _, err := w.resolve(t, banana(), foo()); !apierrors.IsForbidden(err) {
		t.Errorf("%v, want forbidden", err)
	}
}

// TestSpoke checks that a spoke gets tokens for its own objects only. The spokes in this test are
// seeds, which are clusters of Gardener. The API server lets a seed read objects of other seeds
// too, but the seed must get no tokens for them.
func TestSpoke(t *testing.T) {
	for name, c := range map[string]struct {
		identity *identityv1.WorkloadIdentity
		object   tokenv1.ContextObject
		seed     string // the seed that may use the object
	}{
		"Shoot":        {banana(), foo(), "seed-a"},
		"Seed":         {banana(), core("Seed", "", "seed-a", "aa88fb5a-28ef-4987-8c2d-9f02afafcf09"), "seed-a"},
		"BackupBucket": {identity("garden", "backup"), core("BackupBucket", "", "bucket", "bb1"), "seed-b"},
		"BackupEntry":  {identity("garden", "backup"), core("BackupEntry", "garden-local", "entry", "be1"), "seed-b"},
	} {
		for _, seed := range []string{"seed-a", "seed-b", "Seed"} {
			w := newWorld(t, gardener)
			got, err := w.resolver.Resolve(t.Context(), &user.DefaultInfo{Name: spokeUsers + seed}, c.identity, &c.object)
			if allowed := err == nil; allowed != (seed == c.seed) || !allowed && !apierrors.IsForbidden(err) {
				t.Errorf("%s for %s: %+v, %v", name, seed, got, err)
			}
		}
	}
}

// TestWithoutClusterID checks that tokens have no claim about the cluster if the cluster has no ID.
func TestWithoutClusterID(t *testing.T) {
	w := newWorld(t, gardener)
	w.resolver.Clusters.ID = ""
	got, err := w.resolve(t, banana(), foo())
	must.Succeed(t, err)
	if garden, there := got.Further["gardener.cloud"].(map[string]any)["garden"]; there {
		t.Errorf("garden is %v, want none", garden)
	}
}

// TestOwnKinds checks that a token may be used for an object of a built-in kind only if the spec
// names the token's identity.
func TestOwnKinds(t *testing.T) {
	const toolkit, bindings = "toolkit.lanyard.dev/v1alpha1", "identity.lanyard.dev/v1alpha1"
	type spec struct {
		spec string
		uses bool
	}
	named := map[string]spec{
		"the identity":     {"{workloadIdentityName: banana}", true},
		"another identity": {"{workloadIdentityName: apple}", false},
		"a ServiceAccount": {"{serviceAccountName: banana}", false},
		"nothing":          {"{}", false},
		"a list":           {"{workloadIdentityName: [banana]}", false},
	}
	for _, own := range []struct {
		apiVersion, kind, resource string
		specs                      map[string]spec
	}{
		{toolkit, "OCIRepository", "ocirepositories", named},
		{toolkit, "Bucket", "buckets", named},
		{toolkit, "ImageRepository", "imagerepositories", named},
		{bindings, "WorkloadIdentityBinding", "workloadidentitybindings", map[string]spec{
			"the identity":     {"{workloadIdentity: {name: banana}}", true},
			"another identity": {"{workloadIdentity: {name: apple}}", false},
			"an AWS identity":  {"{identityRef: {name: banana}}", false},
			"nothing":          {"{}", false},
			"text":             {"{workloadIdentity: banana}", false},
			"another field":    {"{workloadIdentityName: banana}", false},
		}},
	} {
		kind, resource := own.kind, own.resource
		for name, c := range own.specs {
			t.Run(kind+" with "+name, func(t *testing.T) {
				w := newWorld(t, "")
				w.add(t, "apiVersion: "+own.apiVersion+"\nkind: "+kind+"\nmetadata: {name: x, namespace: garden-local, uid: u}\nspec: "+c.spec)
				object := tokenv1.ContextObject{APIVersion: own.apiVersion, Kind: kind, Namespace: "garden-local", Name: "x", UID: "u"}
				got, err := w.resolve(t, banana(), object)
				if c.uses {
					must.Succeed(t, err)
					checkClaims(t, got, object, "")
				} else if !apierrors.IsForbidden(err) {
					t.Errorf("%+v %v, want forbidden", got, err)
				}
				if len(w.reviews) != 1 || w.reviews[0].ResourceAttributes.Resource != resource {
					t.Errorf("asked %+v, want one question about %s", w.reviews, resource)
				}
			})
		}
	}
}
