package kube_test

import (
	"maps"
	"net/http"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/lanyard-dev/lanyard/auth"
	"github.com/lanyard-dev/lanyard/auth/internal/must"
	"github.com/lanyard-dev/lanyard/auth/kube"
)

// TestLive checks that Live returns the same accounts as Accounts, and sends only GETs.
func TestLive(t *testing.T) {
	s := newAPIServer(t)
	const role = "eks.amazonaws.com/role-arn"
	s.put("a", "good", "uid-1", map[string]string{role: roleA, "note": "x"})
	s.put("a", "long", "uid-2", map[string]string{role: strings.Repeat("x", kube.MaxAnnotation+1)})
	s.intercept = func(w http.ResponseWriter, r *http.Request) bool {
		hidden := strings.HasSuffix(r.URL.Path, "/hidden")
		if hidden {
			refuse(w, errors.NewForbidden(schema.GroupResource{Resource: "serviceaccounts"}, "hidden", nil))
		}
		return hidden
	}
	mapper := meta.NewDefaultRESTMapper(nil)
	mapper.Add(corev1.SchemeGroupVersion.WithKind("ServiceAccount"), meta.RESTScopeNamespace)
	reader, err := client.New(s.config(), client.Options{Mapper: mapper})
	must.Succeed(t, err)
	live := kube.NewLive(reader)
	for name, code := range map[string]auth.Code{
		"good": "", "long": auth.CodeIdentityInvalid, "missing": auth.CodeSubjectNotFound, "hidden": auth.CodeProofDenied,
	} {
		subject, err := auth.ServiceAccount("a", name)
		must.Succeed(t, err)
		account, err := live.Lookup(t.Context(), subject)
		if auth.CodeOf(err) != code {
			t.Errorf("%s: %v", name, err)
		}
		if code == "" && (account.UID != "uid-1" || !maps.Equal(account.Attributes, map[string]string{role: roleA})) {
			t.Errorf("%s: %+v", name, account)
		}
		if code == auth.CodeProofDenied && !strings.Contains(err.Error(), `grant "get" on serviceaccounts in namespace a to the user who asks`) {
			t.Errorf("%s: %v", name, err)
		}
		if _, err := live.Prove(t.Context(), account, auth.ProofRequest{Form: auth.FormJWT, Audiences: []string{"x"}}); auth.CodeOf(err) != auth.CodeOptionUnsupported {
			t.Errorf("%s: it proves: %v", name, err)
		}
	}
	object, err := auth.Object("OCIRepository", "a", "x")
	must.Succeed(t, err)
	if _, err := live.Read(t.Context(), object); auth.CodeOf(err) != auth.CodeSubjectInvalid {
		t.Errorf("an object that is no account: %v", err)
	}
	for _, call := range s.calls() {
		if !strings.HasPrefix(call, "GET ") {
			t.Errorf("it asks to %s", call)
		}
	}
}
