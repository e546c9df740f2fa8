package source

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/lanyard-dev/lanyard/api/meta"
	"github.com/lanyard-dev/lanyard/api/toolkit/v1alpha1"
	"github.com/lanyard-dev/lanyard/auth"
	"github.com/lanyard-dev/lanyard/auth/endpoint"
	"github.com/lanyard-dev/lanyard/auth/grant"
	"github.com/lanyard-dev/lanyard/internal/artifact/archive"
	"github.com/lanyard-dev/lanyard/internal/artifact/store"
)

func TestExplain(t *testing.T) {
	identity := func(code auth.Code) error {
		return &auth.Error{Stage: auth.StageExchange, Code: code, Fix: "do this", Err: errors.New("x")}
	}
	identityOf := func(err error) error {
		return &auth.Error{Stage: auth.StageSubject, Code: auth.CodeUnavailable, Fix: "do this", Err: err}
	}
	resolved := &auth.Error{
		Stage: auth.StageExchange, Code: auth.CodeEndpointRefused, Fix: "do this", Err: &endpoint.AddressError{Host: "sts.example.com", Kind: "loopback"},
	}
	forbidden := apierrors.NewForbidden(schema.GroupResource{Resource: "secrets"}, "x", errors.New("User \"system:serviceaccount:lanyard:controller\" cannot get it"))
	for name, c := range map[string]struct {
		err     error
		reason  string
		stalled bool
		after   time.Duration
		seldom  bool // at the interval
	}{
		"address":              {fmt.Errorf("x: %w", &endpoint.AddressError{Kind: "loopback"}), "EndpointRefused", false, 0, false},
		"archive":              {&archive.Error{Reason: archive.ReasonLink, Err: errors.New("x")}, "ArchiveRefused", false, 0, true},
		"full":                 {&storeError{fmt.Errorf("%w: x", store.ErrFull)}, "StorageFull", false, 0, false},
		"full while reading":   {fmt.Errorf("%w: x", store.ErrFull), "StorageFull", false, 0, false},
		"volume":               {&storeError{fmt.Errorf("%w: x", store.ErrVolume)}, "StorageFull", false, 0, false},
		"disk":                 {&storeError{errors.New("input/output error")}, "StorageFailed", false, 0, false},
		"secret":               {&SecretError{"spec.secretRef", "x", "make it", errors.New("does not exist")}, "SecretRefused", false, 0, false},
		"forbidden":            {fmt.Errorf("read Secret x: %w", Forbidden(forbidden, "get", "secrets", "tenant-a")), "ControllerForbidden", false, 0, false},
		"forbidden meanwhile":  {identityOf(Forbidden(forbidden, "get", "namespaces", "")), "ControllerForbidden", false, 0, false},
		"a kind's own":         {fmt.Errorf("x: %w", errOdd), "Odd", false, 0, false},
		"refused":              {Invalid("spec.x", "write y", "%d is none", 7), "InvalidSpec", true, 0, false},
		"anything":             {errors.New("x"), "InternalError", false, 0, false},
		"trust":                {identity(auth.CodeTrustRefused), "TrustRefused", false, 0, false},
		"permission":           {identity(auth.CodePermissionDenied), "PermissionDenied", false, 0, false},
		"cloud down":           {identity(auth.CodeUnavailable), "Unavailable", false, 0, false},
		"no account":           {identity(auth.CodeSubjectNotFound), "SubjectNotFound", true, 0, false},
		"no annotation":        {identity(auth.CodeIdentityMissing), "IdentityMissing", true, 0, false},
		"bad ARN":              {identity(auth.CodeIdentityInvalid), "IdentityInvalid", true, 0, false},
		"a token service's":    {resolved, "EndpointRefused", false, 0, false},
		"look-alike":           {identity(auth.CodeEndpointRefused), "EndpointRefused", true, 0, false},
		"no region":            {identity(auth.CodeRegionMissing), "RegionMissing", true, 0, false},
		"option of a provider": {identity(auth.CodeOptionInvalid), "OptionInvalid", true, 0, false},
	} {
		t.Run(name, func(t *testing.T) {
			got := explain(c.err, (&still{}).Explain)
			if got.Reason != c.reason || got.Stalled != c.stalled || got.RetryAfter != c.after || got.AtInterval != c.seldom {
				t.Errorf("%+v, want %+v", got, c)
			}
			if !strings.Contains(got.Message, c.err.Error()) && !errors.Is(c.err, errOdd) {
				t.Errorf("message %q lacks %q", got.Message, c.err)
			}
		})
	}
	if got := explain(store.ErrVolume, (&still{}).Explain).Message; strings.Contains(got, "raise") || !strings.Contains(got, "enlarge the volume") {
		t.Errorf("a volume that is full: %q", got) // a higher limit would make it worse
	}
	if got := explain(errors.New(strings.Repeat("ä", 5000)), (&still{}).Explain); len(got.Message) > maxMessage || !strings.HasSuffix(got.Message, "ä…") {
		t.Errorf("a long message has %d bytes and ends in %q", len(got.Message), got.Message[len(got.Message)-8:])
	}
}

// The missing rule is named, and nothing of what the API server said.
func TestForbidden(t *testing.T) {
	refused := apierrors.NewForbidden(schema.GroupResource{Resource: "secrets"}, "x", errors.New("details for the administrator"))
	for namespace, want := range map[string]string{
		"tenant-a": `the Kubernetes API does not let the controller get secrets in namespace tenant-a; ` +
			`have the cluster's administrator grant "get" on secrets in namespace tenant-a to the controller's ServiceAccount`,
		"": `the Kubernetes API does not let the controller get secrets; have the cluster's administrator grant "get" on secrets to the controller's ServiceAccount`,
	} {
		if got := Forbidden(refused, "get", "secrets", namespace).Error(); got != want {
			t.Errorf("it says %q, want %q", got, want)
		}
	}
	if err := Forbidden(errOdd, "get", "secrets", "tenant-a"); err != errOdd { //nolint:errorlint // the very error
		t.Errorf("another error becomes %v", err)
	}
	if Forbidden(nil, "get", "secrets", "tenant-a") != nil {
		t.Error("success becomes an error")
	}
}

// A controller with fewer rights than the chart's says which one an object lacks.
func TestSecretThatMayNotBeRead(t *testing.T) {
	w := newWorld(t)
	access := &Access{Live: interceptor.NewClient(w.kube, interceptor.Funcs{
		Get: func(_ context.Context, _ client.WithWatch, key client.ObjectKey, _ client.Object, _ ...client.GetOption) error {
			return apierrors.NewForbidden(schema.GroupResource{Resource: "secrets"}, key.Name, errors.New("details for the administrator"))
		},
	})}
	w.kind.fetch = func(o *v1alpha1.OCIRepository, _ Call) error {
		_, err := access.Secret(t.Context(), "spec.secretRef", o.Namespace, "login")
		return err
	}
	o := w.create("tenant-a", "app", nil)
	w.reconcile(o)
	w.wants(o, meta.ConditionReady, metav1.ConditionFalse, meta.ReasonControllerForbidden,
		`read Secret tenant-a/login of spec.secretRef: the Kubernetes API does not let the controller get secrets in namespace tenant-a; `+
			`have the cluster's administrator grant "get" on secrets in namespace tenant-a`)
	if c := ready(&w.get(o).Status.Status); strings.Contains(c.Message, "details") {
		t.Errorf("it passes on what the API server said: %s", c.Message)
	}
}

// An account is annotated before our eyes. Nobody tells us that the controller's node was given a role.
func TestObjectsWaitForTheControllersIdentity(t *testing.T) {
	for name, c := range map[string]struct {
		account string // empty for the controller
		code    auth.Code
		stalled bool
	}{
		"an account's":                  {"puller", auth.CodeIdentityMissing, true},
		"an account's, malformed":       {"puller", auth.CodeIdentityInvalid, true},
		"the controller's":              {"", auth.CodeIdentityMissing, false},
		"the controller's, malformed":   {"", auth.CodeIdentityInvalid, false},
		"the controller's, not for all": {"", auth.CodeEndpointRefused, true},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.shared.Rules.ControllerNamespaces = grant.Namespaces{All: true}
			w.kind.fetch = func(*v1alpha1.OCIRepository, Call) error {
				return fmt.Errorf("x: %w", &auth.Error{Stage: auth.StageIdentity, Code: c.code, Err: errors.New("none")})
			}
			o := w.create("tenant-a", "app", func(o *v1alpha1.OCIRepository) { o.Spec.ServiceAccountName = c.account })
			again := w.reconcile(o).RequeueAfter
			if got := ready(&w.get(o).Status.Status); got.Reason != string(c.code) || (again == 0) != c.stalled {
				t.Errorf("%+v, again after %s", got, again)
			}
		})
	}
}
