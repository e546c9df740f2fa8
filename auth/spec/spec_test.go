package spec_test

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/lanyard-dev/lanyard/auth"
	"github.com/lanyard-dev/lanyard/auth/grant"
	"github.com/lanyard-dev/lanyard/auth/spec"
)

// everything is a controller that can do all, for everybody.
var everything = spec.Rules{Providers: []string{"aws", "azure", "gcp"}, ControllerNamespaces: grant.Namespaces{All: true}}

// The truth table that the schema of OCIRepository follows too (config/crd).
func TestExclusions(t *testing.T) {
	data, err := os.ReadFile("testdata/exclusions.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var table struct {
		Rows []struct {
			Name     string          `json:"name"`
			Spec     json.RawMessage `json:"spec"`
			Accepted bool            `json:"accepted"`
			Field    string          `json:"field"`
			Message  string          `json:"message"`
		} `json:"rows"`
	}
	if err := yaml.UnmarshalStrict(data, &table); err != nil {
		t.Fatal(err)
	}
	// In Go an empty string is an absent one; the schema tells them apart. Absent, both fields mean no wider identity.
	absent := []string{"account name empty", "empty provider"}
	for _, row := range table.Rows {
		t.Run(row.Name, func(t *testing.T) {
			var written struct {
				Provider           string                 `json:"provider"`
				ServiceAccountName string                 `json:"serviceAccountName"`
				SecretRef          *struct{ Name string } `json:"secretRef"`
				CertSecretRef      *struct{ Name string } `json:"certSecretRef"`
				ProxySecretRef     *struct{ Name string } `json:"proxySecretRef"`
				Insecure           bool                   `json:"insecure"`
			}
			if err := yaml.UnmarshalStrict(row.Spec, &written); err != nil {
				t.Fatal(err)
			}
			fields := spec.Fields{
				Namespace: "tenant-a", Provider: written.Provider, ServiceAccountName: written.ServiceAccountName, Insecure: written.Insecure,
			}
			rules := everything
			if written.ServiceAccountName == "" && (written.CertSecretRef != nil || written.ProxySecretRef != nil) && written.Provider != "" {
				t.Fatal("whether this is accepted depends on grants: it does not belong into the table")
			}
			if written.SecretRef != nil {
				fields.SecretRef = &written.SecretRef.Name
			}
			if written.CertSecretRef != nil {
				fields.CertSecretRef = &written.CertSecretRef.Name
			}
			if written.ProxySecretRef != nil {
				fields.ProxySecretRef = &written.ProxySecretRef.Name
			}
			identity, err := spec.Resolve(t.Context(), fields, rules)
			if i := slices.Index(absent, row.Name); i >= 0 {
				absent = slices.Delete(absent, i, i+1)
				if row.Accepted || err != nil {
					t.Errorf("row %+v: %v", row, err)
				}
				return
			}
			if row.Accepted {
				if err != nil {
					t.Fatalf("refused: %v", err)
				}
				if identity.Source == "" {
					t.Errorf("accepted without a source: %+v", identity)
				}
				return
			}
			refused := checkRefusal(t, identity, err)
			if refused.Field != row.Field || !strings.Contains(refused.Message, row.Message) {
				t.Errorf("refused %q, want field %s and %q", refused, row.Field, row.Message)
			}
			if !spec.Terminal(err) {
				t.Error("an object that is wrong in itself must be stalled")
			}
		})
	}
	if len(absent) > 0 {
		t.Errorf("the table has no rows %q", absent)
	}
}

// checkRefusal holds for every refusal: stage, code, fix, field, and no identity.
func checkRefusal(t *testing.T, identity spec.Identity, err error) *spec.Refusal {
	t.Helper()
	if identity != (spec.Identity{}) {
		t.Errorf("a refusal with identity %+v", identity)
	}
	var typed *auth.Error
	var refused *spec.Refusal
	if !errors.As(err, &typed) || typed.Stage != auth.StageSubject || typed.Code == "" || typed.Fix == "" || !errors.As(err, &refused) {
		t.Fatalf("no refusal: %#v", err)
	}
	if !strings.Contains(err.Error(), refused.Field) || strings.ContainsAny(err.Error(), "\n\r\x1b") {
		t.Errorf("bad text: %q", err)
	}
	return refused
}

func TestIdentities(t *testing.T) {
	name := func(s string) *string { return &s }
	account, err := auth.ServiceAccount("tenant-a", "puller")
	if err != nil {
		t.Fatal(err)
	}
	for title, test := range map[string]struct {
		fields spec.Fields
		want   spec.Identity
	}{
		"nothing": {
			spec.Fields{Namespace: "tenant-a"},
			spec.Identity{Source: spec.Anonymous, Provider: "generic"},
		},
		"secret": {
			spec.Fields{Namespace: "tenant-a", SecretRef: name("pull"), CertSecretRef: name("ca"), ProxySecretRef: name("proxy"), Insecure: true},
			spec.Identity{Source: spec.StaticSecret, Provider: "generic", SecretName: "pull", CertSecretName: "ca", ProxySecretName: "proxy", Insecure: true},
		},
		"pull secrets": {
			spec.Fields{Namespace: "tenant-a", ServiceAccountName: "puller"},
			spec.Identity{Source: spec.PullSecrets, Provider: "generic", ServiceAccountName: "puller"},
		},
		"account": {
			spec.Fields{Namespace: "tenant-a", Provider: "aws", ServiceAccountName: "puller", CertSecretRef: name("ca"), ProxySecretRef: name("proxy")},
			spec.Identity{Source: spec.Cloud, Provider: "aws", Subject: account, CertSecretName: "ca", ProxySecretName: "proxy"},
		},
		"controller": {
			spec.Fields{Namespace: "tenant-a", Provider: "aws"},
			spec.Identity{Source: spec.Cloud, Provider: "aws", Subject: auth.Controller()},
		},
	} {
		got, err := spec.Resolve(t.Context(), test.fields, everything)
		if err != nil || got != test.want {
			t.Errorf("%s: %+v, %v, want %+v", title, got, err, test.want)
		}
	}
}

// What depends on the controller and its administrator.
func TestRules(t *testing.T) {
	name := func(s string) *string { return &s }
	errLabels := errors.New("the API server is down")
	labels := func(labels map[string]string, err error) func(context.Context, string) (map[string]string, error) {
		return func(context.Context, string) (map[string]string, error) { return labels, err }
	}
	selector := grant.Namespaces{List: []string{"tenant-b"}, Selector: &grant.Selector{MatchLabels: map[string]string{"lend": "yes"}}}
	for title, test := range map[string]struct {
		fields   spec.Fields
		rules    spec.Rules
		code     auth.Code // empty: accepted
		field    string
		fix      []string
		terminal bool
	}{
		"nobody is granted": {
			fields: spec.Fields{Namespace: "tenant-a", Provider: "aws"}, rules: spec.Rules{Providers: []string{"aws"}},
			code: auth.CodeNotGranted, field: "spec.serviceAccountName", fix: []string{"spec.serviceAccountName", "--controller-identity-namespaces"}, terminal: true,
		},
		"another is granted": {
			fields: spec.Fields{Namespace: "tenant-a", Provider: "aws"},
			rules:  spec.Rules{Providers: []string{"aws"}, ControllerNamespaces: grant.Namespaces{List: []string{"tenant-b"}}},
			code:   auth.CodeNotGranted, field: "spec.serviceAccountName", fix: []string{"--controller-identity-namespaces"}, terminal: true,
		},
		"granted by name": {
			fields: spec.Fields{Namespace: "tenant-a", Provider: "aws"},
			rules:  spec.Rules{Providers: []string{"aws"}, ControllerNamespaces: grant.Namespaces{List: []string{"tenant-a"}}},
		},
		"granted by label": {
			fields: spec.Fields{Namespace: "tenant-a", Provider: "aws"},
			rules:  spec.Rules{Providers: []string{"aws"}, ControllerNamespaces: selector, NamespaceLabels: labels(map[string]string{"lend": "yes"}, nil)},
		},
		"granted by name, labels unreadable": {
			fields: spec.Fields{Namespace: "tenant-b", Provider: "aws"},
			rules:  spec.Rules{Providers: []string{"aws"}, ControllerNamespaces: selector, NamespaceLabels: labels(nil, errLabels)},
		},
		"not granted by label": {
			fields: spec.Fields{Namespace: "tenant-a", Provider: "aws"},
			rules:  spec.Rules{Providers: []string{"aws"}, ControllerNamespaces: selector, NamespaceLabels: labels(map[string]string{"lend": "no"}, nil)},
			code:   auth.CodeNotGranted, field: "spec.serviceAccountName", fix: []string{"--controller-identity-namespaces"},
		},
		"labels unknown": {
			fields: spec.Fields{Namespace: "tenant-a", Provider: "aws"}, rules: spec.Rules{Providers: []string{"aws"}, ControllerNamespaces: selector},
			code: auth.CodeNotGranted, field: "spec.serviceAccountName", fix: []string{"--controller-identity-namespaces"},
		},
		"no labels, no error": {
			fields: spec.Fields{Namespace: "tenant-a", Provider: "aws"},
			rules:  spec.Rules{Providers: []string{"aws"}, ControllerNamespaces: selector, NamespaceLabels: labels(nil, nil)},
			code:   auth.CodeNotGranted, field: "spec.serviceAccountName", fix: []string{"--controller-identity-namespaces"},
		},
		"an account needs no grant": {
			fields: spec.Fields{Namespace: "tenant-a", Provider: "aws", ServiceAccountName: "puller"}, rules: spec.Rules{Providers: []string{"aws"}},
		},
		"generic needs no grant": {
			fields: spec.Fields{Namespace: "tenant-a"}, rules: spec.Rules{},
		},
		"the controller through a tenant's proxy": {
			fields: spec.Fields{Namespace: "tenant-a", Provider: "aws", ProxySecretRef: name("proxy")}, rules: everything,
			code: auth.CodeOptionInvalid, field: "spec.proxySecretRef", fix: []string{"remove spec.proxySecretRef"}, terminal: true,
		},
		"the controller with a tenant's CA": {
			fields: spec.Fields{Namespace: "tenant-a", Provider: "aws", CertSecretRef: name("ca")}, rules: everything,
			code: auth.CodeOptionInvalid, field: "spec.certSecretRef", fix: []string{"remove spec.certSecretRef"}, terminal: true,
		},
		"azure is not built in": {
			fields: spec.Fields{Namespace: "tenant-a", Provider: "azure", ServiceAccountName: "puller"}, rules: spec.Rules{Providers: []string{"aws"}},
			code: auth.CodeOptionUnsupported, field: "spec.provider", fix: []string{"generic, aws"}, terminal: true,
		},
		"gcp is not built in, and nobody is named": {
			fields: spec.Fields{Namespace: "tenant-a", Provider: "gcp"}, rules: spec.Rules{ControllerNamespaces: grant.Namespaces{All: true}},
			code: auth.CodeOptionUnsupported, field: "spec.provider", fix: []string{"generic"}, terminal: true,
		},
		"a provider that is registered and unknown": {
			fields: spec.Fields{Namespace: "tenant-a", Provider: "oracle", ServiceAccountName: "puller"}, rules: spec.Rules{Providers: []string{"oracle"}},
			code: auth.CodeOptionInvalid, field: "spec.provider", fix: []string{"generic, aws, azure, gcp"}, terminal: true,
		},
		"no namespace": {
			fields: spec.Fields{}, rules: everything,
			code: auth.CodeSubjectInvalid, field: "metadata.namespace", fix: []string{"namespace"}, terminal: true,
		},
		"no namespace with a cloud": {
			fields: spec.Fields{Provider: "aws"}, rules: everything,
			code: auth.CodeSubjectInvalid, field: "metadata.namespace", fix: []string{"namespace"}, terminal: true,
		},
	} {
		t.Run(title, func(t *testing.T) {
			identity, err := spec.Resolve(t.Context(), test.fields, test.rules)
			if test.code == "" {
				if err != nil {
					t.Errorf("refused: %v", err)
				}
				return
			}
			refused := checkRefusal(t, identity, err)
			var typed *auth.Error
			if errors.As(err, &typed); typed.Code != test.code || refused.Field != test.field || spec.Terminal(err) != test.terminal {
				t.Errorf("%v: %s on %s, terminal %t; want %s on %s, terminal %t",
					err, typed.Code, refused.Field, spec.Terminal(err), test.code, test.field, test.terminal)
			}
			for _, part := range test.fix {
				if !strings.Contains(typed.Fix, part) {
					t.Errorf("fix %q does not name %q", typed.Fix, part)
				}
			}
		})
	}

	// A failure to decide is no decision.
	rules := spec.Rules{Providers: []string{"aws"}, ControllerNamespaces: selector, NamespaceLabels: labels(nil, errLabels)}
	identity, err := spec.Resolve(t.Context(), spec.Fields{Namespace: "tenant-a", Provider: "aws"}, rules)
	if identity != (spec.Identity{}) || !errors.Is(err, errLabels) || !auth.IsTemporary(err) || spec.Terminal(err) {
		t.Errorf("labels unreadable: %+v, %v", identity, err)
	}
}

// Labels cost an API call and are asked for only when they decide.
func TestLabelsAreReadWhenTheyDecide(t *testing.T) {
	asked := 0
	rules := everything
	rules.NamespaceLabels = func(context.Context, string) (map[string]string, error) {
		asked++
		return nil, nil
	}
	resolve := func(fields spec.Fields) {
		fields.Namespace = "tenant-a"
		_, _ = spec.Resolve(t.Context(), fields, rules)
	}
	resolve(spec.Fields{})
	resolve(spec.Fields{Provider: "aws"})
	rules.ControllerNamespaces = grant.Namespaces{List: []string{"tenant-b"}}
	resolve(spec.Fields{Provider: "aws"})
	rules.ControllerNamespaces = grant.Namespaces{List: []string{"tenant-a"}, Selector: &grant.Selector{}}
	resolve(spec.Fields{Provider: "aws"})
	resolve(spec.Fields{Provider: "aws", ServiceAccountName: "puller"})
	if asked != 0 {
		t.Errorf("labels were asked for %d times", asked)
	}
}

func TestTerminal(t *testing.T) {
	stalls := map[auth.Code]bool{
		auth.CodeSubjectInvalid: true, auth.CodeSubjectNotFound: true, auth.CodeSubjectReplaced: false,
		auth.CodeIdentityMissing: true, auth.CodeIdentityInvalid: true, auth.CodeNotGranted: true,
		auth.CodeOptionUnsupported: true, auth.CodeOptionInvalid: true, auth.CodeEndpointRefused: true,
		auth.CodeRegionMissing: true, auth.CodeAudienceRefused: true,
		auth.CodeProofDenied: false, auth.CodeProofInvalid: false, auth.CodeTrustRefused: false, auth.CodePermissionDenied: false,
		auth.CodeRefused: false, auth.CodeResponseInvalid: false,
		auth.CodeThrottled: false, auth.CodeUnavailable: false, auth.CodeUnreachable: false,
	}
	for _, code := range slices.Sorted(maps.Keys(stalls)) {
		err := error(&auth.Error{Stage: auth.StageSubject, Code: code})
		if spec.Terminal(err) != stalls[code] {
			t.Errorf("%s: terminal %t", code, spec.Terminal(err))
		}
		if spec.Terminal(err) && auth.IsTemporary(err) {
			t.Errorf("%s is terminal and temporary", code)
		}
	}
	for _, err := range []error{nil, errors.New("other"), context.DeadlineExceeded} {
		if spec.Terminal(err) {
			t.Errorf("%v is terminal", err)
		}
	}
}

type nobody struct{ auth.Accounts }

func TestOption(t *testing.T) {
	account, err := auth.ServiceAccount("tenant-a", "puller")
	if err != nil {
		t.Fatal(err)
	}
	for _, subject := range []auth.Subject{account, auth.Controller(), {}} {
		var options auth.Options
		spec.Identity{Subject: subject}.Option(nobody{})(&options)
		if options.Subject != subject {
			t.Errorf("subject %s, want %s", options.Subject, subject)
		}
		if proven := options.Prover != nil; proven != (subject != auth.Controller()) {
			t.Errorf("%s: a prover is there: %t", subject, proven)
		}
	}
}

// Whatever a tenant writes, it gets its own namespace's accounts, or the controller's identity where it is lent.
func FuzzResolve(f *testing.F) {
	f.Add("tenant-a", "aws", "puller", "", "", "", uint8(0))
	f.Add("tenant-a", "aws", "", "", "", "", uint8(16))
	f.Add("tenant-a", "generic", "", "pull", "ca", "proxy", uint8(1|2|4|8))
	f.Add("tenant-a", "aws", "tenant-b/puller", "../x", "", "a\nb", uint8(15))
	f.Fuzz(func(t *testing.T, namespace, provider, account, secret, cert, proxy string, bits uint8) {
		fields := spec.Fields{Namespace: namespace, Provider: provider, ServiceAccountName: account, Insecure: bits&8 != 0}
		if bits&1 != 0 {
			fields.SecretRef = &secret
		}
		if bits&2 != 0 {
			fields.CertSecretRef = &cert
		}
		if bits&4 != 0 {
			fields.ProxySecretRef = &proxy
		}
		rules := spec.Rules{Providers: []string{"aws"}}
		lent := bits&16 != 0
		if lent {
			rules.ControllerNamespaces = grant.Namespaces{List: []string{"tenant-a"}}
		}
		identity, err := spec.Resolve(t.Context(), fields, rules)
		if err != nil {
			checkRefusal(t, identity, err)
			return
		}
		cloud := identity.Source == spec.Cloud
		if cloud != (provider == "aws") || cloud == identity.Subject.IsZero() {
			t.Errorf("%+v: %+v", fields, identity)
		}
		switch kind := identity.Subject.Kind(); kind {
		case auth.KindController:
			if account != "" || !lent || namespace != "tenant-a" || bits&(1|2|4|8) != 0 {
				t.Errorf("%+v has the controller's identity", fields)
			}
		case auth.KindServiceAccount:
			if identity.Subject.Namespace() != namespace || identity.Subject.Name() != account || fields.Insecure || fields.SecretRef != nil {
				t.Errorf("%+v: %+v", fields, identity)
			}
		default:
			if cloud {
				t.Errorf("a subject of kind %q", kind)
			}
		}
		for _, name := range []string{identity.SecretName, identity.CertSecretName, identity.ProxySecretName, identity.ServiceAccountName} {
			if strings.Trim(name, "abcdefghijklmnopqrstuvwxyz0123456789-.") != "" || strings.Contains(name, "..") {
				t.Errorf("name %q", name)
			}
		}
	})
}
