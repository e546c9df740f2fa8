package issuer_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"
	"unicode"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	identityv1 "github.com/lanyard-dev/lanyard/api/identity/v1alpha1"
	tokenv1 "github.com/lanyard-dev/lanyard/api/token/v1alpha1"
	"github.com/lanyard-dev/lanyard/internal/issuer"
	"github.com/lanyard-dev/lanyard/internal/issuer/issuertest"
)

// FuzzValidate checks that a valid identity cannot put a control character, such as a line end,
// into a token. It checks the token's subject and audiences. It also checks the providerConfig,
// which a cloud gets together with the token.
func FuzzValidate(f *testing.F) {
	for _, row := range issuertest.Rows(f) {
		object := row.Object()
		spec, err := json.Marshal(object["spec"])
		if err != nil {
			f.Fatal(err)
		}
		name, _ := object["metadata"].(map[string]any)["name"].(string)
		f.Add("garden", name, issuertest.UID, string(spec))
	}
	f.Add("gar\nden", "banana", issuertest.UID, `{}`)
	f.Add("garden", "banana", "u\nid", `{"audiences":["a"],"targetSystem":{"type":"foo"}}`)
	f.Fuzz(func(t *testing.T, namespace, name, uid, spec string) {
		identity := &identityv1.WorkloadIdentity{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: types.UID(uid)}}
		// The schema's defaults.
		identity.Spec.SubjectFormat, identity.Spec.SigningAlgorithm = identityv1.SubjectFormatUID, identityv1.RS256
		if json.Unmarshal([]byte(spec), &identity.Spec) != nil {
			return // not a spec: it cannot be decoded
		}
		if len(newIssuer().Validate(identity)) > 0 {
			return
		}
		clean(t, "sub", issuer.Subject(identity))
		if parts := strings.Split(issuer.Subject(identity), ":"); parts[2] != namespace || parts[3] != name {
			t.Errorf("the subject %q can be another identity's", issuer.Subject(identity))
		}
		for _, audience := range identity.Spec.Audiences {
			clean(t, "audience", audience)
		}
		claims, errs := newIssuer().Claims(identity, &tokenv1.TokenRequestSpec{}, nil, "id", time.Unix(0, 0))
		if len(errs) > 0 {
			t.Errorf("the identity is valid, and a token is refused: %v", errs)
		}
		if life := claims.ExpiresAt - claims.IssuedAt; life < 600 || life > 48*3600 {
			t.Errorf("a token lives %d seconds", life)
		}
		switch target := identity.Spec.TargetSystem; target.Type {
		case identityv1.TargetAWS, identityv1.TargetAzure, identityv1.TargetGCP:
			config := map[string]string{} // all values must be strings
			if target.ProviderConfig == nil {
				return
			}
			if err := json.Unmarshal(target.ProviderConfig.Raw, &config); err != nil {
				t.Errorf("the providerConfig %s is accepted: %v", target.ProviderConfig.Raw, err)
			}
			for name, value := range config {
				clean(t, name, value)
				clean(t, "name of a field", name)
			}
		}
	})
}

func clean(t *testing.T, what, value string) {
	t.Helper()
	if strings.ContainsFunc(value, func(r rune) bool { return unicode.IsControl(r) || r > unicode.MaxASCII }) {
		t.Errorf("%s %q has a character that could end a line", what, value)
	}
}
