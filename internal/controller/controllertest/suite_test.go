package controllertest_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/lanyard-dev/lanyard/api/toolkit/v1alpha1"
	"github.com/lanyard-dev/lanyard/auth"
	"github.com/lanyard-dev/lanyard/auth/spec"
	"github.com/lanyard-dev/lanyard/internal/artifact/store"
	"github.com/lanyard-dev/lanyard/internal/controller/access"
	"github.com/lanyard-dev/lanyard/internal/controller/controllertest"
	"github.com/lanyard-dev/lanyard/internal/controller/object"
	"github.com/lanyard-dev/lanyard/internal/controller/tenant"
	"github.com/lanyard-dev/lanyard/internal/kinds"
)

type image = *v1alpha1.ImageRepository

// toy is a kind that remembers the objects for which it got a credential. The field broken names
// the rule of the conformance suite that the kind breaks. In a correct kind, this field is empty.
type toy struct {
	tenant.Toolkit[image]

	w      *controllertest.World[image]
	broken string
	kept   *sync.Map // UIDs of objects; simulates a store that outlives the process
	found  int       // how often Act has succeeded in this process
	// tokens has the last login of each object, by the object's UID. A login is used again only if
	// broken is "identity revoked".
	tokens sync.Map
}

func (k *toy) View(o image) object.View {
	v := k.Toolkit.View(o)
	v.Finalizer = k.broken != "finalizer"
	switch k.broken {
	case "suspended":
		v.Suspend = false
	case "timeout":
		v.Timeout = nil
	case "renewal":
		v.Renewable = false
	case "failure memory":
		v.RetryWithin = time.Second
	}
	return v
}

func (k *toy) Identify(ctx context.Context, o image) (spec.Identity, error) {
	if k.broken == "identities that exclude each other" {
		o = o.DeepCopy()
		o.Spec.SecretRef = nil
	}
	return k.Toolkit.Identify(ctx, o)
}

func (k *toy) Decide(_ context.Context, o image, _ access.Call) (string, error) {
	if k.broken == "decision changes nothing" {
		o.Status.CanonicalImageName = "decided"
	}
	return o.Spec.Image, nil
}

func (k *toy) Act(ctx context.Context, o image, plan string, call access.Call) (string, error) {
	if k.broken == "ended at work" {
		ctx = context.WithoutCancel(ctx)
	}
	conn, err := k.w.Access.Connect(ctx, call, "cloud.example.com")
	if err != nil {
		return "", err
	}
	defer conn.Close()
	login := func(time.Duration) (access.Login, error) {
		if known, ok := k.tokens.Load(o.UID); ok && k.broken == "identity revoked" {
			return known.(access.Login), nil
		}
		got, err := k.w.Access.Mint(ctx, call, conn, auth.WithImageRepository("cloud.example.com/app"))
		k.tokens.Store(o.UID, got)
		return got, err
	}
	work := func(access.Login) error { return nil }
	if err := k.w.Access.WithCredential(conn, &o.Status.FetchStatus, login, work, func(error) bool { return false }); err != nil {
		return "", err
	}
	k.kept.Store(o.UID, nil)
	k.found++
	if k.broken != "forged status" || o.Status.CanonicalImageName == "" {
		o.Status.CanonicalImageName = plan
	}
	o.Status.LastScanResult = &v1alpha1.ScanResult{TagCount: 1, ScanTime: metav1.Unix(0, 0), Revision: "1"}
	switch k.broken {
	case "object at rest is not written":
		o.Status.LastScanResult.ScanTime = metav1.Now()
		o.Status.LastScanResult.TagCount = k.found
	case "restart":
		// Use the memory address of the kind as the revision. Every restart makes a new toy at
		// another address, so the revision changes.
		o.Status.LastScanResult.Revision = fmt.Sprintf("%p", k)
	}
	return "", nil
}

func (k *toy) Finalize(ctx context.Context, o image) error {
	if k.broken == "namespace deleted, identity first" {
		_, err := k.w.Accounts.Read(ctx, k.Subject(o))
		if err != nil {
			return err
		}
	}
	if k.broken != "namespace deleted, object first" {
		k.kept.Delete(o.UID)
	}
	return nil
}

func (*toy) Explain(error) (object.Failure, bool) { return object.Failure{}, false }

// newToy makes a case whose kind is a toy. The argument broken is the name of the rule that the toy
// breaks. If broken is empty, the toy breaks no rule.
func newToy(t *testing.T, broken string) *controllertest.Case[image] {
	t.Helper()
	w := controllertest.New[image](t, "cloud.example.com", store.Options{})
	network := controllertest.NewNetwork(t, nil)
	w.Access.Transports = network.Pool(t, nil)
	w.Cloud.Trust("role/a", "system:serviceaccount:tenant-a:puller")
	w.Accounts.Put(t, "tenant-a", "puller", "uid-a", map[string]string{"role": "role/a"})
	kept := &sync.Map{}
	w.Start(func() reconcile.Reconciler {
		entry := kinds.ImageRepository()
		if broken == "too large" {
			w.Shared.Client = w.Kube // this client reads whole objects, where a cache has stubs
		}
		return tenant.New(w.Shared.Shared, entry, &toy{Toolkit: tenant.Toolkit[image]{Entry: entry, Shared: w.Shared.Shared}, w: w, broken: broken, kept: kept})
	})
	o := w.Create(&v1alpha1.ImageRepository{
		ObjectMeta: metav1.ObjectMeta{Namespace: "tenant-a", Name: "app"},
		Spec: v1alpha1.ImageRepositorySpec{
			Image:          "cloud.example.com/app",
			RegistryAccess: v1alpha1.RegistryAccess{Access: v1alpha1.Access{Provider: "aws", ServiceAccountName: "puller"}},
			Schedule:       v1alpha1.Schedule{Interval: metav1.Duration{Duration: 10 * time.Minute}},
		},
	}, nil)
	c := controllertest.CaseOf(w, o)
	c.Forge = func(o image) { o.Status.CanonicalImageName = "another.example.com/app" }
	c.Offers = func(o image) string { return fmt.Sprint(o.Status.CanonicalImageName, o.Status.LastScanResult) }
	c.Kept = func() bool { _, ok := kept.Load(types.UID("uid-tenant-a-app")); return ok }
	return c
}

// TestRun runs the suite for a kind that follows all rules. For each rule, it then checks a kind
// that breaks the rule. The suite must report an error.
func TestRun(t *testing.T) {
	controllertest.Run(t, func(t *testing.T) *controllertest.Case[image] { t.Helper(); return newToy(t, "") })
	for _, line := range controllertest.Lines[image]() {
		t.Run("broken: "+line.Name, func(t *testing.T) {
			t.Parallel()
			heard := &complaints{TB: t}
			c := newToy(t, line.Name)
			done := make(chan struct{})
			go func() { // Fatal ends the goroutine that calls it, so run Check in a new one
				defer close(done)
				line.Check(heard, c)
			}()
			<-done
			if len(heard.all) == 0 {
				t.Error("the suite does not complain")
			}
		})
	}
}
