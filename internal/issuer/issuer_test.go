package issuer_test

import (
	"encoding/json"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"

	identityv1 "github.com/lanyard-dev/lanyard/api/identity/v1alpha1"
	tokenv1 "github.com/lanyard-dev/lanyard/api/token/v1alpha1"
	"github.com/lanyard-dev/lanyard/internal/issuer"
)

const (
	apiAudience = "https://kubernetes.default.svc"
	uid         = "12b580fe-1f74-4195-852b-e1a74b03496a"
)

func newIssuer() *issuer.Issuer {
	return &issuer.Issuer{
		URL: "https://issuer.example.com", APIAudiences: []string{apiAudience},
		Limits: issuer.Limits{Min: 10 * time.Minute, Default: time.Hour, Max: 48 * time.Hour},
	}
}

// banana returns a valid WorkloadIdentity named banana-testing, with the given changes.
func banana(change ...func(*identityv1.WorkloadIdentity)) *identityv1.WorkloadIdentity {
	identity := &identityv1.WorkloadIdentity{
		ObjectMeta: metav1.ObjectMeta{Namespace: "garden-local", Name: "banana-testing", UID: uid},
		Spec: identityv1.WorkloadIdentitySpec{
			Audiences: []string{"team-foo"}, Duration: &metav1.Duration{Duration: 48 * time.Hour},
			SubjectFormat: identityv1.SubjectFormatUID, SigningAlgorithm: identityv1.RS256,
			TargetSystem: identityv1.TargetSystem{
				Type: "aws", ProviderConfig: &runtime.RawExtension{Raw: []byte(`{"apiVersion":"aws.authentication.lanyard.dev/v1alpha1","kind":"Config","iamRoleARN":"arn:aws:iam::112233445566:role/gardener-dev"}`)},
			},
		},
	}
	for _, c := range change {
		c(identity)
	}
	return identity
}

func config(target, config string) func(*identityv1.WorkloadIdentity) {
	return func(w *identityv1.WorkloadIdentity) {
		w.Spec.TargetSystem = identityv1.TargetSystem{Type: target, ProviderConfig: &runtime.RawExtension{Raw: []byte(config)}}
		w.Spec.Duration = nil
	}
}

// TestValidate checks the errors of Validate. Some cases come from the tests of Gardener's
// validation; the others are Lanyard's own.
func TestValidate(t *testing.T) {
	audiences := func(values ...string) func(*identityv1.WorkloadIdentity) {
		return func(w *identityv1.WorkloadIdentity) { w.Spec.Audiences = values }
	}
	named := func(target string, length int) func(*identityv1.WorkloadIdentity) {
		return func(w *identityv1.WorkloadIdentity) {
			w.Namespace, w.Name = "garden", strings.Repeat("x", length)
			w.Spec.TargetSystem, w.Spec.Duration = identityv1.TargetSystem{Type: target}, nil
		}
	}
	lives := func(target string, life time.Duration) func(*identityv1.WorkloadIdentity) {
		return func(w *identityv1.WorkloadIdentity) {
			w.Spec.TargetSystem, w.Spec.Duration = identityv1.TargetSystem{Type: target}, &metav1.Duration{Duration: life}
		}
	}
	const tenant, client = `"tenantID":"12345678-1234-1234-1234-123456789abc"`, `"clientID":"12345678-1234-1234-1234-123456789abc"`
	const pool = `"workloadIdentityProvider":"projects/123456/locations/global/workloadIdentityPools/pool/providers/lanyard"`
	prefix := len("lanyard.dev:workloadidentity:garden:")
	for _, c := range []struct {
		name   string
		change func(*identityv1.WorkloadIdentity)
		want   []string // type and field of each error
	}{
		{"as in the design", func(*identityv1.WorkloadIdentity) {}, nil},
		{"two audiences", audiences("foo", "bar"), nil},
		{"no audience", audiences(), []string{"FieldValueRequired spec.audiences"}},
		{"an empty audience", audiences(""), []string{"FieldValueRequired spec.audiences[0]"}},
		{
			"empty audiences", audiences("", "", ""),
			[]string{"FieldValueRequired spec.audiences[0]", "FieldValueRequired spec.audiences[1]", "FieldValueDuplicate spec.audiences[1]", "FieldValueRequired spec.audiences[2]", "FieldValueDuplicate spec.audiences[2]"},
		},
		{"an empty audience among others", audiences("foo", "", "bar"), []string{"FieldValueRequired spec.audiences[1]"}},
		{"an audience twice", audiences("foo", "bar", "bar"), []string{"FieldValueDuplicate spec.audiences[2]"}},
		{"a long audience", audiences(strings.Repeat("x", 256)), []string{"FieldValueTooLong spec.audiences[0]"}},
		{"an audience with a space", audiences("a b"), []string{"FieldValueInvalid spec.audiences[0]"}},
		{"an audience that is not ASCII", audiences("Ω"), []string{"FieldValueInvalid spec.audiences[0]"}},
		{"the API server's audience", audiences("sts.amazonaws.com", apiAudience), []string{"FieldValueForbidden spec.audiences[1]"}},

		{"another target", func(w *identityv1.WorkloadIdentity) { w.Spec.TargetSystem = identityv1.TargetSystem{Type: "foo"} }, nil},
		{"no target", func(w *identityv1.WorkloadIdentity) { w.Spec.TargetSystem = identityv1.TargetSystem{} }, []string{"FieldValueRequired spec.targetSystem.type"}},
		{"a target with a comma", func(w *identityv1.WorkloadIdentity) { w.Spec.TargetSystem = identityv1.TargetSystem{Type: "foo,bar"} }, []string{"FieldValueInvalid spec.targetSystem.type"}},

		{"the longest subject", named("foo", 255-prefix-37), nil},
		{"a subject that is too long", named("foo", 255-prefix-36), []string{"FieldValueInvalid metadata.name"}},
		{"the longest subject at Google", named("gcp", 127-prefix-37), nil},
		{"a subject that is too long for Google", named("gcp", 127-prefix-36), []string{"FieldValueInvalid metadata.name"}},
		{"a longer name without UID in the subject", func(w *identityv1.WorkloadIdentity) {
			named("foo", 255-prefix)(w)
			w.Spec.SubjectFormat = identityv1.SubjectFormatName
		}, nil},
		{"a name with a colon", func(w *identityv1.WorkloadIdentity) { w.Name = "a:b" }, []string{"FieldValueInvalid metadata.name"}},
		{"a namespace with a colon", func(w *identityv1.WorkloadIdentity) { w.Namespace = "a:b" }, []string{"FieldValueInvalid metadata.name"}},
		{"an unknown format of the subject", func(w *identityv1.WorkloadIdentity) { w.Spec.SubjectFormat = "Hash" }, []string{"FieldValueNotSupported spec.subjectFormat"}},
		{"no UID", func(w *identityv1.WorkloadIdentity) { w.UID = "" }, []string{"FieldValueRequired metadata.uid"}},

		{"24 hours at Entra", lives("azure", 24*time.Hour), nil},
		{"more than 24 hours at Entra", lives("azure", 24*time.Hour+time.Second), []string{"FieldValueInvalid spec.duration"}},
		{"almost 48 hours at Google", lives("gcp", 48*time.Hour-time.Second), nil},
		{"less than the issuer's minimum", lives("foo", 10*time.Minute-time.Second), []string{"FieldValueInvalid spec.duration"}},
		{"48 hours at Google", lives("gcp", 48*time.Hour), []string{"FieldValueInvalid spec.duration"}},
		{"ES256 at Entra", func(w *identityv1.WorkloadIdentity) {
			lives("azure", time.Hour)(w)
			w.Spec.SigningAlgorithm = identityv1.ES256
		}, []string{"FieldValueNotSupported spec.signingAlgorithm"}},
		{"an unknown algorithm", func(w *identityv1.WorkloadIdentity) { w.Spec.SigningAlgorithm = "none" }, []string{"FieldValueNotSupported spec.signingAlgorithm"}},

		{"AWS without a role", config("aws", `{}`), []string{"FieldValueRequired spec.targetSystem.providerConfig.iamRoleARN"}},
		{"AWS with two lines", config("aws", `{"iamRoleARN":"arn:aws:iam::112233445566:role/a\ncredential_process=/bin/sh"}`), []string{"FieldValueInvalid spec.targetSystem.providerConfig.iamRoleARN"}},
		{"AWS with a number", config("aws", `{"iamRoleARN":7}`), []string{"FieldValueTypeInvalid spec.targetSystem.providerConfig.iamRoleARN"}},
		{"AWS with a foreign field", config("aws", `{"iamRoleARN":"arn:aws:iam::112233445566:role/a","credential_process":"x"}`), []string{"FieldValueForbidden spec.targetSystem.providerConfig.credential_process"}},
		{"Azure", config("azure", `{`+tenant+`,`+client+`}`), nil},
		{"Azure without a client", config("azure", `{`+tenant+`}`), []string{"FieldValueRequired spec.targetSystem.providerConfig.clientID"}},
		{"Azure with a common tenant", config("azure", `{"tenantID":"common",`+client+`}`), []string{"FieldValueInvalid spec.targetSystem.providerConfig.tenantID"}},
		{"Google", config("gcp", `{`+pool+`,"serviceAccountEmail":"puller@tenant-a.iam.gserviceaccount.com","projectID":"tenant-a"}`), nil},
		{"Google with an URL", config("gcp", `{`+pool+`,"token_url":"https://evil.example.com"}`), []string{"FieldValueForbidden spec.targetSystem.providerConfig.token_url"}},
		{"Google with a foreign address", config("gcp", `{`+pool+`,"serviceAccountEmail":"../../x"}`), []string{"FieldValueInvalid spec.targetSystem.providerConfig.serviceAccountEmail"}},
		{"not an object", config("gcp", `[]`), []string{"FieldValueInvalid spec.targetSystem.providerConfig"}},
		{"a kind with two lines", config("aws", `{"iamRoleARN":"arn:aws:iam::112233445566:role/a","kind":"a\nb"}`), []string{"FieldValueInvalid spec.targetSystem.providerConfig.kind"}},
		{"a version that is an object", config("aws", `{"iamRoleARN":"arn:aws:iam::112233445566:role/a","apiVersion":{}}`), []string{"FieldValueTypeInvalid spec.targetSystem.providerConfig.apiVersion"}},
		{"anything for another target", config("foo", `{"x":[1,2]}`), nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := fields(newIssuer().Validate(banana(c.change))); !slices.Equal(got, c.want) {
				t.Errorf("Validate finds\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(c.want, "\n"))
			}
		})
	}
}

func fields(errs field.ErrorList) []string {
	var found []string
	for _, err := range errs {
		found = append(found, string(err.Type)+" "+err.Field)
	}
	return found
}

// TestLifetime asserts that a token gets the shortest life that the request, the identity or the
// issuer sets. A life below the minimum is refused, never raised.
func TestLifetime(t *testing.T) {
	seconds := func(n int64) *int64 { return &n }
	for _, c := range []struct {
		name     string
		target   string
		duration time.Duration // 0: absent
		max      time.Duration
		request  *int64
		want     time.Duration // 0: refused
	}{
		{"nobody says anything", "foo", 0, 48 * time.Hour, nil, time.Hour},
		{"the identity", "foo", 2 * time.Hour, 48 * time.Hour, nil, 2 * time.Hour},
		{"the request shortens", "foo", 2 * time.Hour, 48 * time.Hour, seconds(600), 10 * time.Minute},
		{"the request does not lengthen", "foo", 2 * time.Hour, 48 * time.Hour, seconds(43200), 2 * time.Hour},
		{"nor lengthen the default", "foo", 0, 48 * time.Hour, seconds(43200), time.Hour},
		{"the issuer caps", "foo", 48 * time.Hour, 24 * time.Hour, nil, 24 * time.Hour},
		{"below the minimum", "foo", 0, 48 * time.Hour, seconds(599), 0},
		{"negative", "foo", 0, 48 * time.Hour, seconds(-1), 0},
		{"zero", "foo", 0, 48 * time.Hour, seconds(0), 0},
		{"2^32 seconds", "foo", 0, 48 * time.Hour, seconds(1 << 32), time.Hour},
		{"more than a Duration holds", "foo", 0, 48 * time.Hour, seconds(math.MaxInt64), time.Hour},
		{"an identity below the minimum", "foo", time.Minute, 48 * time.Hour, nil, 0},
		{"an identity below the minimum, asked for more", "foo", time.Minute, 48 * time.Hour, seconds(3600), 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			i := newIssuer()
			i.Limits.Max = c.max
			identity := banana(func(w *identityv1.WorkloadIdentity) {
				w.Spec.TargetSystem, w.Spec.Duration = identityv1.TargetSystem{Type: c.target}, nil
				if c.duration != 0 {
					w.Spec.Duration = &metav1.Duration{Duration: c.duration}
				}
			})
			claims, errs := i.Claims(identity, &tokenv1.TokenRequestSpec{ExpirationSeconds: c.request}, nil, "id", time.Unix(1707312142, 0))
			if c.want == 0 {
				at := "spec.expirationSeconds" // a field of the token request
				if c.duration == time.Minute {
					at = "spec.duration" // a field of the WorkloadIdentity
				}
				if got := fields(errs); !slices.Equal(got, []string{"FieldValueInvalid " + at}) {
					t.Errorf("the errors are %s", got)
				}
				return
			}
			if got := time.Duration(claims.ExpiresAt-claims.IssuedAt) * time.Second; len(errs) > 0 || got != c.want {
				t.Errorf("the token lives %s, %v; want %s", got, errs, c.want)
			}
		})
	}
}

// TestAudiences asserts that a request can select audiences of the identity, but cannot add others.
func TestAudiences(t *testing.T) {
	identity := banana(func(w *identityv1.WorkloadIdentity) { w.Spec.Audiences = []string{"foo", "bar"} })
	for _, c := range []struct {
		name  string
		asked []string
		want  []string
		errs  []string
	}{
		{"none", nil, []string{"foo", "bar"}, nil},
		{"one", []string{"bar"}, []string{"bar"}, nil},
		{"another", []string{"bar", "sts.amazonaws.com"}, nil, []string{"FieldValueNotSupported spec.audiences[1]"}},
		{"one twice", []string{"bar", "bar"}, nil, []string{"FieldValueDuplicate spec.audiences[1]"}},
		{"an empty one", []string{""}, nil, []string{"FieldValueNotSupported spec.audiences[0]"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			claims, errs := newIssuer().Claims(identity, &tokenv1.TokenRequestSpec{Audiences: c.asked}, nil, "id", time.Unix(0, 0))
			if got := fields(errs); !slices.Equal(got, c.errs) || !slices.Equal(claims.Audiences, c.want) {
				t.Errorf("audiences %q, errors %s; want %q, %s", claims.Audiences, got, c.want, c.errs)
			}
		})
	}
}

// TestPayload asserts the bytes of a token's payload.
func TestPayload(t *testing.T) {
	object := &issuer.Context{
		Object:  issuer.Reference{APIVersion: "toolkit.lanyard.dev/v1alpha1", Kind: "OCIRepository", Namespace: "garden-local", Name: "foo", UID: "54d09554-6a68-4f46-a23a-e3592385d820"},
		Further: map[string]any{"seed": map[string]string{"name": "s1"}},
	}
	claims, errs := newIssuer().Claims(banana(), &tokenv1.TokenRequestSpec{}, object, "the-id", time.Unix(1707312142, 0))
	if len(errs) > 0 {
		t.Fatal(errs)
	}
	claims.Lanyard.Cluster = &issuer.Cluster{ID: "prod-1"}
	got, err := json.Marshal(claims)
	if err != nil {
		t.Fatal(err)
	}
	const want = `{"iss":"https://issuer.example.com","sub":"lanyard.dev:workloadidentity:garden-local:banana-testing:` + uid + `","aud":["team-foo"],` +
		`"exp":1707484942,"iat":1707312142,"nbf":1707312082,"jti":"the-id",` +
		`"lanyard.dev":{"workloadIdentity":{"namespace":"garden-local","name":"banana-testing","uid":"` + uid + `"},` +
		`"context":{"apiVersion":"toolkit.lanyard.dev/v1alpha1","kind":"OCIRepository","namespace":"garden-local","name":"foo","uid":"54d09554-6a68-4f46-a23a-e3592385d820"},` +
		`"cluster":{"id":"prod-1"}},"seed":{"name":"s1"}}`
	if string(got) != want {
		t.Errorf("the payload is\n%s\nwant\n%s", got, want)
	}
	for _, name := range issuer.Reserved() {
		claims.Further = map[string]any{name: "forged"}
		if _, err := json.Marshal(claims); err == nil {
			t.Errorf("the claim %s can be set", name)
		}
	}
}

func TestCheck(t *testing.T) {
	for _, c := range []struct {
		url  string
		good bool
	}{
		{"https://issuer.example.com", true},
		{"https://issuer.example.com/tenants/1", true},
		{"https://issuer.example.com:8443", true},
		{"", false},
		{"://issuer.example.com", false},
		{"http://issuer.example.com", false},
		{"https://", false},
		{"https://issuer.example.com/", false},
		{"https://issuer.example.com?", false},
		{"https://issuer.example.com?a=b", false},
		{"https://issuer.example.com#a", false},
		{"https://user:secret@issuer.example.com", false},
	} {
		i := newIssuer()
		i.URL = c.url
		if err := i.Check(); (err == nil) != c.good {
			t.Errorf("Check with the URL %q = %v", c.url, err)
		}
	}
	for name, change := range map[string]func(*issuer.Issuer){
		"a default below the minimum": func(i *issuer.Issuer) { i.Limits.Default = time.Minute },
		"a default above the maximum": func(i *issuer.Issuer) { i.Limits.Max = time.Minute * 30 },
		"no minimum":                  func(i *issuer.Issuer) { i.Limits.Min = 0 },
		"a minimum above the life that our controllers ask for": func(i *issuer.Issuer) { i.Limits.Min = 10*time.Minute + time.Second },
		"no audiences of the API":                               func(i *issuer.Issuer) { i.APIAudiences = nil },
	} {
		i := newIssuer()
		change(i)
		if i.Check() == nil {
			t.Errorf("Check passes with %s", name)
		}
	}
}
