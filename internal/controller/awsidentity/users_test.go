package awsidentity

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/go-logr/logr/funcr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/lanyard-dev/lanyard/api/identity/v1alpha1"
	infrav1 "github.com/lanyard-dev/lanyard/api/infrastructure/v1alpha1"
	"github.com/lanyard-dev/lanyard/api/meta"
	toolkitv1 "github.com/lanyard-dev/lanyard/api/toolkit/v1alpha1"
	"github.com/lanyard-dev/lanyard/auth"
	"github.com/lanyard-dev/lanyard/internal/controller/object"
	"github.com/lanyard-dev/lanyard/internal/identity/identitytest"
	"github.com/lanyard-dev/lanyard/internal/kinds"
	"github.com/lanyard-dev/lanyard/internal/must"
)

// users returns an object of each kind that can name an AWS identity. Each object names the
// AWSClusterRoleIdentity "lent", and has labels, annotations and a finalizer.
func users() []client.Object {
	named := metav1.ObjectMeta{
		Namespace: "team-a", Name: "app", UID: "uid-1", ResourceVersion: "7", Labels: map[string]string{"large": "label"},
		Annotations: map[string]string{"large": "annotation"}, Finalizers: []string{"example.com/large"},
	}
	ref := &meta.AWSIdentityReference{Kind: v1alpha1.AWSClusterRoleIdentityKind, Name: "lent"}
	access := toolkitv1.Access{Provider: "aws", IdentityRef: ref, SecretRef: &meta.LocalReference{Name: "other"}}
	return []client.Object{
		&toolkitv1.OCIRepository{ObjectMeta: named, Spec: toolkitv1.OCIRepositorySpec{URL: "oci://h/r", RegistryAccess: toolkitv1.RegistryAccess{Access: access}}},
		&toolkitv1.ImageRepository{ObjectMeta: named, Spec: toolkitv1.ImageRepositorySpec{Image: "h/r", RegistryAccess: toolkitv1.RegistryAccess{Access: access}}},
		&toolkitv1.Bucket{ObjectMeta: named, Spec: toolkitv1.BucketSpec{BucketName: "b", Access: access}},
		&toolkitv1.Kustomization{ObjectMeta: named, Spec: toolkitv1.KustomizationSpec{Path: "large", Decryption: &toolkitv1.Decryption{Provider: "sops", IdentityRef: ref}}},
		&infrav1.AWSCluster{ObjectMeta: named, Spec: infrav1.AWSClusterSpec{Region: "eu-west-1", IdentityRef: ref}},
		&v1alpha1.WorkloadIdentityBinding{ObjectMeta: named, Spec: v1alpha1.WorkloadIdentityBindingSpec{
			IdentityRef: &v1alpha1.BindingIdentityReference{Kind: ref.Kind, Name: ref.Name},
		}},
	}
}

// TestUsersOfAllKinds checks that the object of each kind is found by the identity that it names.
// It must be found even after the cache's transform. Otherwise the object would not count as a
// user, and an identity in use could be deleted.
func TestUsersOfAllKinds(t *testing.T) {
	table := kinds.All().Where(kinds.Kind.UsesAWSIdentities)
	transforms := map[reflect.Type]toolscache.TransformFunc{}
	for o, kept := range UsersByObject(kinds.All()) {
		transforms[reflect.TypeOf(o)] = kept.Transform
	}
	objects := users()
	if len(objects) != len(table) || len(transforms) != len(table) {
		t.Errorf("%d objects and %d transforms for %d kinds", len(objects), len(transforms), len(table))
	}
	for _, o := range objects {
		kind, _ := table.Of(o)
		index := indexOf(kind)
		want := []string{"lanyard.dev:awsclusterroleidentity:lent"}
		if got := index(o); !reflect.DeepEqual(got, want) {
			t.Errorf("%s: indexed by %q, want %q", kind.Kind, got, want)
		}
		kept, err := transforms[reflect.TypeOf(o)](o.DeepCopyObject())
		must.Succeed(t, err)
		small := kept.(client.Object)
		if got := index(small); !reflect.DeepEqual(got, want) {
			t.Errorf("%s in memory: indexed by %q, want %q", kind.Kind, got, want)
		}
		if small.GetUID() != o.GetUID() || small.GetResourceVersion() != o.GetResourceVersion() || len(small.GetLabels())+len(small.GetAnnotations()) > 0 {
			t.Errorf("%s in memory: %+v", kind.Kind, small)
		}
	}
}

// TestRememberRef checks that the cache stores only what identifies an object of another program, and
// the object's reference to an AWS identity.
func TestRememberRef(t *testing.T) {
	for _, o := range users() {
		kind, _ := kinds.All().Of(o)
		want := kind.New()
		switch o := o.(type) {
		case kinds.Tenant:
			want.(kinds.Tenant).GetAccess().IdentityRef = o.GetAccess().IdentityRef
		case *toolkitv1.Kustomization:
			want.(*toolkitv1.Kustomization).Spec.Decryption = &toolkitv1.Decryption{IdentityRef: o.Spec.Decryption.IdentityRef}
		default:
			if kind.OnlyIdentityRef != nil {
				t.Errorf("%s is not tested", kind.Kind)
			}
			continue
		}
		want.SetNamespace("team-a")
		want.SetName("app")
		want.SetUID("uid-1")
		want.SetResourceVersion("7")
		if got, err := rememberRef(kind)(o); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %+v, %v, want %+v", kind.Kind, got, err, want)
		}
	}
	missed := toolscache.DeletedFinalStateUnknown{Key: "team-a/app"}
	if got, err := rememberRef(kinds.Bucket())(missed); err != nil || got != missed {
		t.Errorf("the end of an object: %v, %v", got, err)
	}
}

// TestUsersWithoutIdentity checks the index for objects that name no identity, an unknown kind or a
// wrong name. A reference of unknown kind must be listed under every kind, and a wrong name not at
// all.
func TestUsersWithoutIdentity(t *testing.T) {
	named := metav1.ObjectMeta{Namespace: "team-a", Name: "app"}
	for _, test := range []struct {
		object client.Object
		want   []string
	}{
		{&toolkitv1.Bucket{ObjectMeta: named}, nil},
		{&v1alpha1.WorkloadIdentityBinding{ObjectMeta: named}, nil},
		{&infrav1.AWSCluster{ObjectMeta: named}, []string{"lanyard.dev:awsclustercontrolleridentity:default"}},
		{&infrav1.AWSCluster{ObjectMeta: named, Spec: infrav1.AWSClusterSpec{IdentityRef: &meta.AWSIdentityReference{Kind: "Other", Name: "x"}}}, []string{
			"lanyard.dev:awsclustercontrolleridentity:x", "lanyard.dev:awsclusterstaticidentity:x", "lanyard.dev:awsclusterroleidentity:x",
			"lanyard.dev:awsserviceaccountidentity:team-a:x",
		}},
		{&infrav1.AWSCluster{ObjectMeta: named, Spec: infrav1.AWSClusterSpec{IdentityRef: &meta.AWSIdentityReference{Kind: "Other", Name: "X"}}}, nil},
	} {
		kind, _ := kinds.All().Of(test.object)
		if got := indexOf(kind)(test.object); !reflect.DeepEqual(got, test.want) {
			t.Errorf("%+v: %q, want %q", test.object, got, test.want)
		}
	}
}

// TestUnknownKindIsInUse checks two references of unknown kind:
//   - The object app-lent of team-a refers to the identity lent. It must count as a user of lent.
//     The log must contain the object's name and the unknown kind.
//   - The identity chained refers to its source, the identity root. The object app-chained uses
//     chained, so it must count as a user of root.
//
// If app-lent is deleted, lent must be reconciled. If app-chained is deleted, root must be.
func TestUnknownKindIsInUse(t *testing.T) {
	w := identitytest.New(t)
	lent, root, other := w.Static("lent", identitytest.Admits("team-a")), w.Static("root", identitytest.Admits()), w.Static("other", identitytest.Admits())
	spec := identitytest.RoleSpec("arn", "root", identitytest.Admits("team-a"))
	spec.SourceIdentityRef.Kind = "Other"
	w.Role("chained", spec)
	cluster := func(namespace, kind, name string) *infrav1.AWSCluster {
		return &infrav1.AWSCluster{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "app-" + name},
			Spec:       infrav1.AWSClusterSpec{IdentityRef: &meta.AWSIdentityReference{Kind: kind, Name: name}},
		}
	}
	unknown, chained := cluster("team-a", "Unknown", "lent"), cluster("team-a", v1alpha1.AWSClusterRoleIdentityKind, "chained")
	scheme := runtime.NewScheme()
	must.Succeed(t, kinds.All().AddToScheme(scheme))
	kind, _ := kinds.All().Of(unknown)
	memory := fake.NewClientBuilder().WithScheme(scheme).WithIndex(unknown, identityIndex, indexOf(kind)).
		WithObjects(unknown, chained, cluster("team-b", "Unknown", "lent")).Build()
	u := &Users{memory: memory, identities: w.Identities, kinds: []userKind{{Kind: kind}}}
	var lines strings.Builder
	ctx := log.IntoContext(t.Context(), funcr.New(func(_, line string) { lines.WriteString(line) }, funcr.Options{}))
	for subject, want := range map[auth.Subject]int32{lent: 1, root: 1, other: 0} {
		if got, err := u.Count(ctx, subject); err != nil || got != want {
			t.Errorf("%s has %d users, %v, want %d", subject, got, err, want)
		}
	}
	if got := lines.String(); strings.Count(got, `"userNamespace"`) != 1 || !strings.Contains(got, `"userName"="app-lent"`) || !strings.Contains(got, "Unknown") {
		t.Errorf("the log: %s", got)
	}
	for o, want := range map[client.Object]auth.Subject{unknown: lent, chained: root} {
		var woken []object.Dependency
		u.handler(kind, func(d object.Dependency) { woken = append(woken, d) }).OnDelete(o)
		if !slices.Contains(woken, object.DependencyOn(want)) {
			t.Errorf("the end of %s wakes %v, want %s", o.GetName(), woken, want)
		}
	}
}

// TestSourceIsWoken deletes an identity, and then withdraws the grant of another. Each time, the
// source of the identity must be reconciled: the source may wait until nobody uses it.
func TestSourceIsWoken(t *testing.T) {
	w := identitytest.New(t)
	root := w.Static("root", identitytest.Admits())
	w.Role("deleted", identitytest.RoleSpec("arn", "root", identitytest.Admits("team-a")))
	w.Role("withdrawn", identitytest.RoleSpec("arn", "root", identitytest.Admits("team-a")))
	var woken []object.Dependency
	(&Users{identities: w.Identities}).Subscribe(func(d object.Dependency) { woken = append(woken, d) })
	for name, change := range map[string]func(){
		"deleted":   func() { w.Remove(&v1alpha1.AWSClusterRoleIdentity{ObjectMeta: metav1.ObjectMeta{Name: "deleted"}}) },
		"withdrawn": func() { w.Role("withdrawn", identitytest.RoleSpec("arn", "root", identitytest.Admits("team-b"))) },
	} {
		woken = nil
		change()
		if !slices.Contains(woken, object.DependencyOn(root)) {
			t.Errorf("%s: wakes %v, want %s", name, woken, root)
		}
	}
}
