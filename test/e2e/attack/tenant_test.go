package attack

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/lanyard-dev/lanyard/api/meta"
	"github.com/lanyard-dev/lanyard/api/toolkit/v1alpha1"
	"github.com/lanyard-dev/lanyard/cloudtest/journal"
	"github.com/lanyard-dev/lanyard/internal/kinds"
	"github.com/lanyard-dev/lanyard/internal/local"
	"github.com/lanyard-dev/lanyard/internal/report"
)

const (
	// patience bounds a wait for something that should happen soon.
	patience = 30 * time.Second
	// pollEvery is the pause between two looks.
	pollEvery = 50 * time.Millisecond
	// puller is the ServiceAccount of a hostile tenant.
	puller = "puller"
	// tenantRole is the chart's ClusterRole of the controller in the namespace of a tenant.
	tenantRole = controllerAccount + "-tenant"
	// identityAccount is the identity controller's ServiceAccount.
	identityAccount = "lanyard-identity-controller"
	// roleAnnotation maps a ServiceAccount to an IAM role.
	roleAnnotation = "eks.amazonaws.com/role-arn"
)

// tenant is a hostile tenant: a namespace, and servers under names of its own.
type tenant struct {
	t         *testing.T
	namespace string
	tried     int // attempts so far; not for use by several goroutines

	mu       sync.Mutex // guards received
	received []string   // credentials that reached one of its servers
}

func newTenant(t *testing.T, namespace string) *tenant {
	t.Helper()
	tn := &tenant{t: t, namespace: namespace}
	createNamespace(t, namespace)
	for _, account := range []string{controllerAccount, identityAccount} {
		create(t, tenantBinding(namespace, account))
	}
	create(t, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{
		Namespace: namespace, Name: puller, Annotations: map[string]string{roleAnnotation: roleB},
	}})
	t.Cleanup(func() { tn.clear(t) })
	return tn
}

// tenantBinding is what `lanyard tenant --identity-controller` prints for a program of the chart,
// which has the name of its account.
func tenantBinding(namespace, account string) *rbacv1.RoleBinding {
	return &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: account + "-tenant"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: account + "-tenant"},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: local.Namespace, Name: account}},
	}
}

// clear removes the tenant's objects, and waits until the controller has let them go.
func (tn *tenant) clear(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), patience)
	defer cancel()
	for _, kind := range kinds.All().Where(kinds.Kind.Fetches) {
		must(t, "remove the objects", objects.DeleteAllOf(ctx, kind.New(), client.InNamespace(tn.namespace)))
	}
	must(t, "remove the namespace", objects.Delete(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: tn.namespace}}))
	poll(ctx, t, "the objects are let go", func() error {
		left, err := report.List(ctx, objects, kinds.All(), tn.namespace)
		return errors.Join(err, wantf(len(left) == 0, "%d are left", len(left)))
	})
}

// host is a name of the tenant's own.
func (tn *tenant) host(name string) string { return name + "." + tn.namespace + ".example.com" }

// serve answers under a host of the tenant's own until the test ends, and notes each credential
// that it receives.
func (tn *tenant) serve(t *testing.T, host string, handler http.HandlerFunc) {
	t.Helper()
	must(t, "serve "+host, world.Cloud().Handle(host, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		tn.note(r)
		handler(w, r)
	})))
	t.Cleanup(func() { _ = world.Cloud().Handle(host, nil) })
}

// note looks for a credential in a request to one of the tenant's servers.
func (tn *tenant) note(r *http.Request) {
	body, _ := io.ReadAll(io.LimitReader(r.Body, 1<<20))
	r.Body = io.NopCloser(bytes.NewReader(body))
	var where string
	switch {
	case r.Header.Get("Authorization") != "" || r.Header.Get("X-Amz-Security-Token") != "" || r.Header.Get("Cookie") != "":
		where = "header"
	case strings.Contains(r.URL.RawQuery, "eyJ") || strings.Contains(r.URL.RawQuery, "X-Amz-Security-Token"):
		where = "query"
	case bytes.Contains(body, []byte("eyJ")): // as every JSON Web Token begins
		where = "body"
	default:
		return
	}
	tn.mu.Lock()
	defer tn.mu.Unlock()
	tn.received = append(tn.received, fmt.Sprintf("%s %s%s has a credential in its %s", r.Method, r.Host, r.URL.Path, where))
}

// leaks are the credentials that the tenant's servers received.
func (tn *tenant) leaks() []string {
	tn.mu.Lock()
	defer tn.mu.Unlock()
	return slices.Clone(tn.received)
}

func (tn *tenant) meta(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: tn.namespace, Name: name}
}

// repository is an OCIRepository that asks without a credential.
func (tn *tenant) repository(name, url string) *v1alpha1.OCIRepository {
	return &v1alpha1.OCIRepository{ObjectMeta: tn.meta(name), Spec: v1alpha1.OCIRepositorySpec{
		URL:            "oci://" + url,
		Ref:            &v1alpha1.OCIRepositoryRef{Tag: "1.0.0"},
		Schedule:       v1alpha1.Schedule{Interval: metav1.Duration{Duration: time.Second}},
		RegistryAccess: v1alpha1.RegistryAccess{Access: v1alpha1.Access{Provider: v1alpha1.ProviderGeneric}},
	}}
}

// repositoryAs is an OCIRepository that asks with a credential of the tenant's account.
func (tn *tenant) repositoryAs(name, provider, url string) *v1alpha1.OCIRepository {
	o := tn.repository(name, url)
	o.Spec.Provider, o.Spec.ServiceAccountName = provider, puller
	return o
}

// bucket is a Bucket that asks without a credential.
func (tn *tenant) bucket(name, endpoint string) *v1alpha1.Bucket {
	return &v1alpha1.Bucket{ObjectMeta: tn.meta(name), Spec: v1alpha1.BucketSpec{
		Access:     v1alpha1.Access{Provider: v1alpha1.ProviderGeneric},
		Endpoint:   endpoint,
		BucketName: "bucket",
		Schedule:   v1alpha1.Schedule{Interval: metav1.Duration{Duration: time.Second}},
	}}
}

// image is an ImageRepository that asks without a credential.
func (tn *tenant) image(name, image string) *v1alpha1.ImageRepository {
	return &v1alpha1.ImageRepository{ObjectMeta: tn.meta(name), Spec: v1alpha1.ImageRepositorySpec{
		Image:          image,
		Schedule:       v1alpha1.Schedule{Interval: metav1.Duration{Duration: time.Second}},
		RegistryAccess: v1alpha1.RegistryAccess{Access: v1alpha1.Access{Provider: v1alpha1.ProviderGeneric}},
	}}
}

// refused wants each object to be refused, by the API server or with one of the reasons, if there
// are any. No host of theirs may be asked for anything.
func (tn *tenant) refused(t *testing.T, all []client.Object, hosts []string, reasons ...string) {
	t.Helper()
	after := world.Cloud().Journal().Last()
	var waiting []client.Object
	for _, o := range all {
		tn.tried++
		if err := objects.Create(t.Context(), o); err == nil {
			waiting = append(waiting, o)
		} else if !apierrors.IsInvalid(err) {
			t.Errorf("create %s: %v", o.GetName(), err)
		}
	}
	for _, o := range waiting {
		await(t, o, "the refusal", func() error {
			ready := condition(o)
			known := len(reasons) == 0 || slices.Contains(reasons, ready.Reason)
			return wantf(ready.Status == metav1.ConditionFalse && known, "Ready=%s %s: %s", ready.Status, ready.Reason, ready.Message)
		})
	}
	for _, call := range world.Cloud().Journal().Calls(journal.Filter{After: after}) {
		if slices.Contains(hosts, call.Host) {
			t.Errorf("%s was asked: %+v", call.Host, call)
		}
	}
}

// condition is the object's condition Ready, or its zero.
func condition(o client.Object) metav1.Condition {
	known, ok := o.(report.Resource)
	if !ok {
		return metav1.Condition{}
	}
	if c := apimeta.FindStatusCondition(known.GetStatus().Conditions, meta.ConditionReady); c != nil {
		return *c
	}
	return metav1.Condition{}
}

// createNamespace creates a namespace. An earlier run of the attack may have left a namespace of the
// same name that is being deleted: createNamespace waits until that namespace is gone.
func createNamespace(t *testing.T, name string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	poll(ctx, t, "namespace "+name+" is made", func() error {
		return objects.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}})
	})
}

func create(t *testing.T, o client.Object) {
	t.Helper()
	must(t, "create "+o.GetName(), objects.Create(t.Context(), o))
}

// patch changes an object as it is now.
func patch[T client.Object](t *testing.T, o T, change func(o T)) {
	t.Helper()
	must(t, "read "+o.GetName(), objects.Get(t.Context(), client.ObjectKeyFromObject(o), o))
	before := o.DeepCopyObject().(client.Object) //nolint:forcetypeassert // a copy is of the same type
	change(o)
	must(t, "change "+o.GetName(), objects.Patch(t.Context(), o, client.MergeFrom(before)))
}

// await waits until look says that the object, which it reads into o, is as it should be.
func await(t *testing.T, o client.Object, what string, look func() error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	poll(ctx, t, fmt.Sprintf("%s/%s: %s", o.GetNamespace(), o.GetName(), what), func() error {
		if err := objects.Get(ctx, client.ObjectKeyFromObject(o), o); err != nil {
			return err
		}
		return look()
	})
}

// poll looks again and again until look returns nil. At the end of ctx the test fails with look's
// last error.
func poll(ctx context.Context, t *testing.T, what string, look func() error) {
	t.Helper()
	var last error
	for {
		err := look()
		if err == nil {
			return
		}
		if ctx.Err() == nil || last == nil {
			last = err // not what the deadline made of the last look
		}
		select {
		case <-time.After(pollEvery):
		case <-ctx.Done():
			t.Errorf("%s: not in time: %v", what, errors.Join(last, world.Err()))
			return
		}
	}
}

// pause waits, or ends with the test.
func pause(t *testing.T, d time.Duration) {
	t.Helper()
	select {
	case <-time.After(d):
	case <-t.Context().Done():
	}
}

// lasting is how long an attack goes on that would go on for ever.
func lasting(short, whole time.Duration) time.Duration {
	if testing.Short() {
		return short
	}
	return whole
}

func must(t *testing.T, what string, err error) {
	t.Helper()
	if err != nil {
		t.Fatalf("%s: %v", what, err)
	}
}

func wantf(ok bool, format string, args ...any) error {
	if ok {
		return nil
	}
	return fmt.Errorf(format, args...)
}
