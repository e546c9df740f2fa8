package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/lanyard-dev/lanyard/api/identity/v1alpha1"
	"github.com/lanyard-dev/lanyard/api/meta"
	"github.com/lanyard-dev/lanyard/internal/keyring"
	"github.com/lanyard-dev/lanyard/internal/local"
)

// TestDayOne installs an issuer whose public keys a person publishes. docs/issuer.md describes this
// for a bucket. Nobody gets a token until the person confirms the first key. Until then, the
// conditions of WorkloadIdentities say what to do.
func TestDayOne(t *testing.T) {
	beside(t, lane4)
	cluster := startCluster(t, "dayone", "", nil)
	w := &issuerWorld{Cluster: cluster, people: cluster.Client()}
	typed, err := kubernetes.NewForConfig(cluster.Config())
	must(t, "make a client", err)
	w.api = typed.CoreV1().RESTClient()
	w.putNamespace(t, grantedNamespace)
	must(t, "install the chart", cluster.InstallChart(t.Context(), map[string]any{
		"issuer": map[string]any{
			"url":  "https://dayone.e2e.example.com",
			"keys": map[string]any{"confirmManually": true, "algorithms": []any{string(v1alpha1.RS256)}},
		},
		"rbac": map[string]any{"tenantNamespaces": []any{grantedNamespace}},
	}))
	must(t, "start the programs", w.StartPrograms(t.Context(), []local.ProgramOptions{
		{Workload: tokenServer, Binary: daemon(tokenServer)}, {Workload: identityController, Binary: daemon(identityController)},
	}, func(p *local.Program) {
		if p.Workload == tokenServer {
			w.tokenServer = p
		}
	}))

	w.awaitRing(t, "two keys", func(ring *v1alpha1.KeyRing) error {
		return wantf(len(ring.Status.Keys) == 2, "the keys are %+v", ring.Status.Keys)
	})
	first, second := w.ring(t).Status.Keys[0].KID, w.ring(t).Status.Keys[1].KID
	identity := w.newIdentity(t, grantedNamespace, "app", stsAudience)
	ready := func(ctx context.Context) metav1.Condition {
		if err := w.people.Get(ctx, client.ObjectKeyFromObject(identity), identity); err != nil {
			return metav1.Condition{Message: err.Error()}
		}
		if c := apimeta.FindStatusCondition(identity.Status.Conditions, meta.ConditionReady); c != nil {
			return *c
		}
		return metav1.Condition{}
	}
	// The condition's message can be late by up to two minutes.
	within(t, 3*time.Minute, "the identity says what to do", func(ctx context.Context) error {
		c := ready(ctx)
		told := c.Reason == meta.ReasonIssuerNotPublished && strings.Contains(c.Message, "lanyard keys confirm "+first)
		return wantf(c.Status == metav1.ConditionFalse && told, "%+v", c)
	})
	list := w.keys(t, "list")
	for _, kid := range []string{first, second} {
		if !strings.Contains(list, kid) {
			t.Errorf("lanyard keys list does not show the key %s:\n%s", kid, list)
		}
	}
	if !strings.Contains(list, string(v1alpha1.KeyPending)) {
		t.Errorf("lanyard keys list does not show that keys are pending:\n%s", list)
	}
	if _, err := w.mint(t.Context(), identity, stsAudience); !apierrors.IsServiceUnavailable(err) {
		t.Errorf("a token before the keys are published: %v", err)
	}

	dir := t.TempDir()
	if out, err := w.command(t, "discovery", "export", dir); err != nil {
		t.Fatalf("export the documents: %v\n%s", err, out)
	}
	data, err := os.ReadFile(filepath.Join(dir, "jwks"))
	must(t, "read the document", err)
	document, err := keyring.ParseDocument(data)
	must(t, "read the document", err)
	if !slices.Equal(document.KIDs, []string{first, second}) {
		t.Errorf("the document has the keys %q, want %s and %s", document.KIDs, first, second)
	}
	w.keys(t, "confirm", first)
	var token string
	eventually(t, "the first token", func(ctx context.Context) error {
		var err error
		token, err = w.mint(ctx, identity, stsAudience)
		c := ready(ctx)
		return errors.Join(err, wantf(c.Status == metav1.ConditionTrue, "%+v", c))
	})
	parsed, err := jose.ParseSignedCompact(token, []jose.SignatureAlgorithm{jose.RS256})
	must(t, "read the token", err)
	if kid := parsed.Signatures[0].Header.KeyID; kid != first {
		t.Errorf("the key %s signs, want the confirmed one, %s", kid, first)
	}
	if got, want := identity.Status.KeyRing, string(w.ring(t).UID); got != want {
		t.Errorf("the identity remembers the KeyRing %q, want %q", got, want)
	}
	var claims struct {
		ID string `json:"jti"`
	}
	must(t, "read the claims", json.Unmarshal(parsed.UnsafePayloadWithoutVerification(), &claims))
	eventually(t, "both audit logs have the request", func(context.Context) error { return sameRequest(w, claims.ID) })
}

// sameRequest returns an error unless one request is in both audit logs. It searches the token
// server's log for the jti of the token. The line that it finds has an audit ID. It then searches
// the API server's log for this audit ID.
func sameRequest(w *issuerWorld, jti string) error {
	made, err := lineWith(w.tokenServer.Log, jti)
	if err != nil {
		return err
	}
	var event struct{ AuditID string }
	if err := json.Unmarshal(made, &event); err != nil {
		return err
	}
	request, err := lineWith(w.Path("cluster", "audit.log"), `"auditID":"`+event.AuditID+`"`)
	if err != nil {
		return err
	}
	return wantf(event.AuditID != "" && bytes.Contains(request, []byte("/apis/token.lanyard.dev/")), "it is another request: %s", request)
}

// lineWith searches a file, and returns the first line that contains the text.
func lineWith(path, text string) ([]byte, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	for line := range bytes.Lines(data) {
		if bytes.Contains(line, []byte(text)) {
			return line, nil
		}
	}
	return nil, fmt.Errorf("%s has no line with %s", path, text)
}
