package object

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/lanyard-dev/lanyard/auth"
	"github.com/lanyard-dev/lanyard/auth/endpoint"
)

var (
	errOdd      = errors.New("odd")
	errUnusable = errors.New("unusable")
)

// odd plays the part of a kind's method Explain. It explains only errOdd and errUnusable.
func odd(err error) (Failure, bool) {
	if errors.Is(err, errUnusable) {
		return Failure{Reason: "Unusable", AtInterval: true}, true
	}
	return Failure{Reason: "Odd", Message: "that was odd"}, errors.Is(err, errOdd)
}

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
		seldom  bool // no retry before the interval has passed
	}{
		"address":              {fmt.Errorf("x: %w", &endpoint.AddressError{Kind: "loopback"}), "EndpointRefused", false, 0, false},
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
		"no node identity":     {Retryable(identity(auth.CodeIdentityMissing)), "IdentityMissing", false, 0, false},
		"unusable":             {errUnusable, "Unusable", false, 0, true},
		"look-alike":           {identity(auth.CodeEndpointRefused), "EndpointRefused", true, 0, false},
		"no region":            {identity(auth.CodeRegionMissing), "RegionMissing", true, 0, false},
		"option of a provider": {identity(auth.CodeOptionInvalid), "OptionInvalid", true, 0, false},
	} {
		t.Run(name, func(t *testing.T) {
			got := Explain(c.err, odd)
			if got.Reason != c.reason || got.Stalled != c.stalled || got.RetryAfter != c.after || got.AtInterval != c.seldom {
				t.Errorf("%+v, want %+v", got, c)
			}
			if c.reason == "InternalError" && !strings.Contains(got.Message, "; ") {
				t.Errorf("no next step: %q", got.Message)
			}
			if !strings.Contains(got.Message, c.err.Error()) && !errors.Is(c.err, errOdd) {
				t.Errorf("message %q lacks %q", got.Message, c.err)
			}
		})
	}
	if got := Explain(errors.New(strings.Repeat("ä", 5000)), odd); len(got.Message) > maxMessage || !strings.HasSuffix(got.Message, "ä…") {
		t.Errorf("a long message has %d bytes and ends in %q", len(got.Message), got.Message[len(got.Message)-8:])
	}
}

// The error names the missing RBAC rule, and does not quote the API server.
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
