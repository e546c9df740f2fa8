package delivery_test

import (
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	identityv1 "github.com/lanyard-dev/lanyard/api/identity/v1alpha1"
	"github.com/lanyard-dev/lanyard/auth"
	"github.com/lanyard-dev/lanyard/config/admission/admissiontest"
	"github.com/lanyard-dev/lanyard/config/crd/crdtest"
	"github.com/lanyard-dev/lanyard/internal/delivery"
	"github.com/lanyard-dev/lanyard/internal/issuer"
	"github.com/lanyard-dev/lanyard/internal/issuer/issuertest"
	"github.com/lanyard-dev/lanyard/internal/must"
)

// readPage reads docs/delivery.md.
func readPage(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("../../docs/delivery.md")
	must.Succeed(t, err)
	return string(text)
}

// TestPage validates the manifests of docs/delivery.md as the API server and the issuer do. It
// renders the Secret of each binding that delivers a token. For each type of target, the page must
// have a binding that delivers a token.
func TestPage(t *testing.T) {
	const crd = "../../config/crd/identity.lanyard.dev_"
	schemas := map[string]interface {
		Admit(map[string]any) []string
	}{
		identityv1.WorkloadIdentityKind: schema{t, crd + "workloadidentities.yaml", "../../config/admission/workloadidentities.yaml"},
		"WorkloadIdentityBinding":       schema{t, crd + "workloadidentitybindings.yaml", ""},
	}
	targets := map[string]bool{}
	for section := range strings.SplitSeq(readPage(t), "\n## ") {
		heading, _, _ := strings.Cut(section, "\n")
		var identity *identityv1.WorkloadIdentity
		for _, block := range regexp.MustCompile("(?s)```yaml\n(.*?)```").FindAllStringSubmatch(section, -1) {
			for manifest := range strings.SplitSeq(block[1], "---\n") {
				var object map[string]any
				if err := yaml.UnmarshalStrict([]byte(manifest), &object); err != nil {
					t.Fatalf("%s: %v", heading, err)
				}
				kind, _ := object["kind"].(string)
				judge, known := schemas[kind]
				if !known {
					continue // a Pod: it has no schema here
				}
				if refusals := judge.Admit(object); len(refusals) > 0 {
					t.Errorf("%s: %s: %q", heading, kind, refusals)
				}
				switch kind {
				case identityv1.WorkloadIdentityKind:
					identity = read[identityv1.WorkloadIdentity](t, object)
				default:
					binding := read[identityv1.WorkloadIdentityBinding](t, object)
					if delivery.Exchanged(binding.Spec.Store.Format) {
						continue
					}
					renderPage(t, heading, identity, binding)
					targets[identity.Spec.TargetSystem.Type] = true
				}
			}
		}
	}
	for _, target := range []string{"aws", "azure", "gcp", "alibaba", "vault", "kubernetes", "example-dns"} {
		if !targets[target] {
			t.Errorf("the page has no binding for %s", target)
		}
	}
}

// renderPage renders the Secret of a binding, and checks that docs/delivery.md mentions the
// Secret's keys.
func renderPage(t *testing.T, heading string, identity *identityv1.WorkloadIdentity, binding *identityv1.WorkloadIdentityBinding) {
	t.Helper()
	identity.UID = issuertest.UID
	made := &issuer.Issuer{Limits: issuer.Limits{Min: 10 * time.Minute, Default: time.Hour, Max: 48 * time.Hour}}
	if errs := made.Validate(identity); len(errs) > 0 {
		t.Errorf("%s: %v", heading, errs)
	}
	store := binding.Spec.Store
	content, err := delivery.Render(delivery.Input{Format: store.Format, Target: identity.Spec.TargetSystem, Token: auth.NewSecret(jwt), MountPath: store.MountPath})
	if err != nil {
		t.Errorf("%s: %v", heading, err)
	}
	page := readPage(t)
	for key := range content.Data {
		if !strings.Contains(page, "`"+key+"`") && !strings.Contains(page, "$"+key) {
			t.Errorf("%s: the page does not mention the key %s", heading, key)
		}
	}
}

// schema has the paths of a CRD and of an admission policy; policy may be empty.
type schema struct {
	t           *testing.T
	crd, policy string
}

// Admit sets the defaults of an object, and returns the reasons for which the object is refused.
func (s schema) Admit(object map[string]any) []string {
	var refusals []string
	for _, err := range crdtest.New(s.t, s.crd).Admit(s.t.Context(), object) {
		refusals = append(refusals, err.Error())
	}
	if s.policy != "" {
		refusals = append(refusals, admissiontest.New(s.t, s.policy, identityv1.Version).Admit(s.t, object, nil)...)
	}
	return refusals
}

func read[T any](t *testing.T, object map[string]any) *T {
	t.Helper()
	var typed T
	must.Succeed(t, runtime.DefaultUnstructuredConverter.FromUnstructured(object, &typed))
	return &typed
}

// TestPageOfRefusals checks that docs/delivery.md has the text of Render's error for a role ARN of
// two lines.
func TestPageOfRefusals(t *testing.T) {
	_, err := delivery.Render(input("aws", `{"iamRoleARN":"arn:aws:iam::123456789123:role/dns\ncredential_process = /bin/sh"}`))
	if err == nil {
		t.Fatal("a role with two lines is rendered")
	}
	words := func(text string) string { return strings.Join(strings.Fields(text), " ") }
	if !strings.Contains(words(readPage(t)), words(err.Error())) {
		t.Errorf("the page does not have the message:\n%v", err)
	}
}
