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
	// pollEvery is the pause between two checks.
	pollEvery = 50 * time.Millisecond
	// puller is the ServiceAccount of a hostile tenant.
	puller = "puller"
	// tenantRole is the chart's ClusterRole for the controller in a tenant's namespace.
	tenantRole = controllerAccount + "-tenant"
	// identityAccount is the identity controller's ServiceAccount.
	identityAccount = "lanyard-identity-controller"
	// roleAnnotation maps a ServiceAccount to an IAM role.
	roleAnnotation = "eks.amazonaws.com/role-arn"
)

// tenant is a hostile tenant with a namespace, and with servers under its own host names.
type tenant struct {
	t         *testing.T
	namespace string
	tried     int       // number of attempts in this namespace so far; not safe for concurrent use
	others    []*tenant // the same tenant in its other namespaces

	mu       sync.Mutex // guards received
	received []string   // descriptions of credentials that reached one of its servers
}

func newTenant(t *testing.T, namespace string) *tenant {
	t.Helper()
	tn := &tenant{t: t, namespace: namespace}
	createNamespace(t, namespace)
	for _, account := range []string{controllerAccount, identityAccount, applyAccount} {
		create(t, tenantBinding(namespace, account))
	}
	create(t, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{
		Namespace: namespace, Name: puller, Annotations: map[string]string{roleAnnotation: roleB},
	}})
	t.Cleanup(func() { tn.clear(t) })
	return tn
}

// in returns the tenant in n namespaces: first tn itself, then tn.others. If there are fewer than n
// namespaces, in creates the missing namespaces.
func (tn *tenant) in(n int) []*tenant {
	for len(tn.others) < n-1 {
		tn.others = append(tn.others, newTenant(tn.t, fmt.Sprintf("%s-%d", tn.namespace, len(tn.others)+2)))
	}
	return append([]*tenant{tn}, tn.others...)
}

// tries returns the number of attempts in all namespaces of the tenant.
func (tn *tenant) tries() int {
	n := tn.tried
	for _, other := range tn.others {
		n += other.tries()
	}
	return n
}

// tenantBinding returns one of the RoleBindings that `lanyard tenant --identity-controller` prints:
// the one for the program with this ServiceAccount.
func tenantBinding(namespace, account string) *rbacv1.RoleBinding {
	return &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: account + "-tenant"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: account + "-tenant"},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: local.Namespace, Name: account}},
	}
}

// clear deletes the tenant's objects, and waits until they are gone.
func (tn *tenant) clear(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), patience)
	defer cancel()
	for _, kind := range kinds.All().Where(func(k kinds.Kind) bool { return k.Fetches() || k.Account != nil }) {
		must(t, "remove the objects", objects.DeleteAllOf(ctx, kind.New(), client.InNamespace(tn.namespace)))
	}
	must(t, "remove the namespace", objects.Delete(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: tn.namespace}}))
	poll(ctx, t, "the objects are let go", func() error {
		left, err := report.List(ctx, objects, kinds.All(), tn.namespace)
		return errors.Join(err, wantf(len(left) == 0, "%d are left", len(left)))
	})
}

// host returns a host name of the tenant.
func (tn *tenant) host(name string) string { return name + "." + tn.namespace + ".example.com" }

// serve serves a host of the tenant until the test ends, and records each credential that it
// receives.
func (tn *tenant) serve(t *testing.T, host string, handler http.HandlerFunc) {
	t.Helper()
	must(t, "serve "+host, world.Cloud().Handle(host, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		tn.note(r)
		handler(w, r)
	})))
	t.Cleanup(func() { _ = world.Cloud().Handle(host, nil) })
}

// note looks for a credential in a request to one of the tenant's servers, and records where the
// credential is.
func (tn *tenant) note(r *http.Request) {
	body, _ := io.ReadAll(io.LimitReader(r.Body, 1<<20))
	r.Body = io.NopCloser(bytes.NewReader(body))
	var where string
	switch {
	case r.Header.Get("Authorization") != "" || r.Header.Get("X-Amz-Security-Token") != "" || r.Header.Get("Cookie") != "":
		where = "header"
	case strings.Contains(r.URL.RawQuery, "eyJ") || strings.Contains(r.URL.RawQuery, "X-Amz-Security-Token"):
		where = "query"
	case bytes.Contains(body, []byte("eyJ")): // the beginning of every JSON Web Token
		where = "body"
	default:
		return
	}
	tn.mu.Lock()
	defer tn.mu.Unlock()
	tn.received = append(tn.received, fmt.Sprintf("%s %s%s has a credential in its %s", r.Method, r.Host, r.URL.Path, where))
}

// leaks returns descriptions of the credentials that the tenant's servers received.
func (tn *tenant) leaks() []string {
	tn.mu.Lock()
	all := slices.Clone(tn.received)
	tn.mu.Unlock()
	for _, other := range tn.others {
		all = append(all, other.leaks()...)
	}
	return all
}

func (tn *tenant) meta(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: tn.namespace, Name: name}
}

// repository returns an OCIRepository without a credential.
func (tn *tenant) repository(name, url string) *v1alpha1.OCIRepository {
	return &v1alpha1.OCIRepository{ObjectMeta: tn.meta(name), Spec: v1alpha1.OCIRepositorySpec{
		URL:            "oci://" + url,
		Ref:            &v1alpha1.OCIRepositoryRef{Tag: "1.0.0"},
		Schedule:       v1alpha1.Schedule{Interval: metav1.Duration{Duration: time.Second}},
		RegistryAccess: v1alpha1.RegistryAccess{Access: v1alpha1.Access{Provider: v1alpha1.ProviderGeneric}},
	}}
}

// repositoryAs returns an OCIRepository with a credential of the tenant's ServiceAccount.
func (tn *tenant) repositoryAs(name, provider, url string) *v1alpha1.OCIRepository {
	o := tn.repository(name, url)
	o.Spec.Provider, o.Spec.ServiceAccountName = provider, puller
	return o
}

// bucket returns a Bucket without a credential.
func (tn *tenant) bucket(name, endpoint string) *v1alpha1.Bucket {
	return &v1alpha1.Bucket{ObjectMeta: tn.meta(name), Spec: v1alpha1.BucketSpec{
		Access:     v1alpha1.Access{Provider: v1alpha1.ProviderGeneric},
		Endpoint:   endpoint,
		BucketName: "bucket",
		Schedule:   v1alpha1.Schedule{Interval: metav1.Duration{Duration: time.Second}},
	}}
}

// image returns an ImageRepository without a credential.
func (tn *tenant) image(name, image string) *v1alpha1.ImageRepository {
	return &v1alpha1.ImageRepository{ObjectMeta: tn.meta(name), Spec: v1alpha1.ImageRepositorySpec{
		Image:          image,
		Schedule:       v1alpha1.Schedule{Interval: metav1.Duration{Duration: time.Second}},
		RegistryAccess: v1alpha1.RegistryAccess{Access: v1alpha1.Access{Provider: v1alpha1.ProviderGeneric}},
	}}
}

// refused creates objects, and asserts that the API server or the controller refuses each of them.
// The controller must give one of the reasons. Without reasons, any reason will do. None of the
// hosts may receive a request.
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

// condition returns the object's condition Ready, or the zero Condition.
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

// createNamespace creates a namespace. If the namespace of an earlier run is still being deleted,
// createNamespace waits until it is gone.
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

// patch reads an object from the API server, changes it, and sends the change as a patch.
func patch[T client.Object](t *testing.T, o T, change func(o T)) {
	t.Helper()
	must(t, "read "+o.GetName(), objects.Get(t.Context(), client.ObjectKeyFromObject(o), o))
	before := o.DeepCopyObject().(client.Object) // cannot fail: a copy has the type of the original
	change(o)
	must(t, "change "+o.GetName(), objects.Patch(t.Context(), o, client.MergeFrom(before)))
}

// await reads the object into o again and again, until the function look returns nil.
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

// poll calls the function look until it returns nil. At the end of ctx, the test fails with look's
// last error.
func poll(ctx context.Context, t *testing.T, what string, look func() error) {
	t.Helper()
	var last error
	for {
		err := look()
		if err == nil {
			return
		}
		// After the deadline, keep the former error. The deadline itself may have caused the new
		// one.
		if ctx.Err() == nil || last == nil {
			last = err
		}
		select {
		case <-time.After(pollEvery):
		case <-ctx.Done():
			t.Errorf("%s: not in time: %v", what, errors.Join(last, world.Err()))
			return
		}
	}
}

// pause waits for d, or until the test ends.
func pause(t *testing.T, d time.Duration) {
	t.Helper()
	select {
	case <-time.After(d):
	case <-t.Context().Done():
	}
}

// lasting returns the duration of an attack that could go on forever. The flag -short selects the
// first of the two durations.
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
