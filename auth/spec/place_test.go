package spec_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/lanyard-dev/lanyard/auth"
	"github.com/lanyard-dev/lanyard/auth/grant"
	"github.com/lanyard-dev/lanyard/auth/spec"
)

// TestResolveAt checks whose credential an object gets at a cloud if the object's kind has no
// spec.provider.
func TestResolveAt(t *testing.T) {
	const path = "spec.decryption"
	name := func(s string) *string { return &s }
	clouds := []string{"aws", "azure", "gcp"}
	lent := grant.Namespaces{List: []string{"tenant-a"}}
	knows := func(context.Context, string, auth.Subject) error { return nil }
	role := &spec.IdentityRef{Kind: "AWSClusterRoleIdentity", Name: "role"}
	for title, test := range map[string]struct {
		fields  spec.Fields
		rules   spec.Rules
		cloud   string // empty if Resolve already refuses the fields
		subject string // empty if refused
		code    auth.Code
		field   string   // the refused field
		says    []string // parts of the error
	}{
		"an account at AWS":   {spec.Fields{ServiceAccountName: "kms"}, spec.Rules{Providers: clouds}, "aws", "system:serviceaccount:tenant-a:kms", "", "", nil},
		"an account at Azure": {spec.Fields{ServiceAccountName: "kms"}, spec.Rules{Providers: clouds}, "azure", "system:serviceaccount:tenant-a:kms", "", "", nil},
		"an account beside a Secret": {
			spec.Fields{ServiceAccountName: "kms", SecretRef: name("keys")}, spec.Rules{Providers: clouds}, "gcp", "system:serviceaccount:tenant-a:kms", "", "", nil,
		},
		"an identity": {
			spec.Fields{WorkloadIdentityName: "kms"}, spec.Rules{Providers: clouds, TokenServer: true}, "gcp", "lanyard.dev:workloadidentity:tenant-a:kms", "", "", nil,
		},
		"an AWS identity": {
			spec.Fields{IdentityRef: role}, spec.Rules{Providers: clouds, AWSIdentities: knows}, "aws", "lanyard.dev:awsclusterroleidentity:role", "", "", nil,
		},
		"the default account": {
			spec.Fields{}, spec.Rules{Providers: clouds, DefaultServiceAccount: "default", ControllerNamespaces: lent}, "gcp", "system:serviceaccount:tenant-a:default", "", "", nil,
		},
		"the controller": {spec.Fields{}, spec.Rules{Providers: clouds, ControllerNamespaces: lent}, "azure", "controller", "", "", nil},
		"the controller, with keys of nobody": {
			spec.Fields{SecretRef: name("keys")}, spec.Rules{Providers: clouds, ControllerNamespaces: lent}, "azure", "controller", "", "", nil,
		},

		"nobody is granted": {
			spec.Fields{}, spec.Rules{Providers: clouds}, "aws", "", auth.CodeNotGranted, path + ".serviceAccountName", []string{"set " + path + ".serviceAccountName"},
		},
		"a Secret is no grant": {
			spec.Fields{SecretRef: name("keys")}, spec.Rules{Providers: clouds}, "aws", "", auth.CodeNotGranted, path + ".serviceAccountName", nil,
		},
		"an account is required": {
			spec.Fields{},
			spec.Rules{Providers: clouds, RequireServiceAccount: true, ControllerNamespaces: lent},
			"gcp", "",
			auth.CodeNotGranted, path + ".serviceAccountName",
			[]string{"--default-service-account"},
		},
		"the controller at AWS needs two grants": {
			spec.Fields{}, spec.Rules{
				Providers: clouds, ControllerNamespaces: lent,
				AWSIdentities: func(context.Context, string, auth.Subject) error {
					return &auth.Error{Stage: auth.StageIdentity, Code: auth.CodeNotGranted, Fix: "admit it"}
				},
			}, "aws", "", auth.CodeNotGranted, "", []string{"admit it"},
		},
		"a cloud that is not built in": {
			spec.Fields{ServiceAccountName: "kms"}, spec.Rules{Providers: []string{"aws"}}, "gcp", "", auth.CodeOptionUnsupported, path, []string{`"gcp"`, "use one of aws"},
		},
		"an unknown cloud": {
			spec.Fields{ServiceAccountName: "kms"}, spec.Rules{Providers: []string{"oracle"}}, "oracle", "", auth.CodeOptionInvalid, path, []string{`"oracle"`, "aws, azure, gcp"},
		},
		"no cloud": {
			spec.Fields{ServiceAccountName: "kms"}, spec.Rules{Providers: clouds}, "generic", "", auth.CodeOptionInvalid, path, []string{`"generic"`, "of aws, azure, gcp"},
		},
		"a cloud with a newline": {
			spec.Fields{ServiceAccountName: "kms"}, spec.Rules{Providers: []string{"aws\n"}}, "aws\n", "", auth.CodeOptionInvalid, path, nil,
		},
		"an AWS identity elsewhere": {
			spec.Fields{IdentityRef: role}, spec.Rules{Providers: clouds, AWSIdentities: knows}, "azure", "", auth.CodeOptionInvalid, path + ".identityRef", []string{"instead"},
		},

		"an account of another namespace": {
			spec.Fields{ServiceAccountName: "tenant-b/kms"}, spec.Rules{Providers: clouds}, "", "", auth.CodeSubjectInvalid, path + ".serviceAccountName", nil,
		},
		"no namespace": {
			spec.Fields{Namespace: "A", ServiceAccountName: "kms"}, spec.Rules{Providers: clouds}, "", "", auth.CodeSubjectInvalid, "metadata.namespace", nil,
		},
		"two subjects": {
			spec.Fields{ServiceAccountName: "kms", WorkloadIdentityName: "kms"},
			spec.Rules{Providers: clouds, TokenServer: true},
			"", "",
			auth.CodeOptionInvalid, path + ".workloadIdentityName", nil,
		},
		"an account, the gate off": {
			spec.Fields{ServiceAccountName: "kms"}, spec.Rules{Providers: clouds, ControllerOnly: true}, "", "", auth.CodeNotGranted, path + ".serviceAccountName", nil,
		},
		"an identity without token server": {
			spec.Fields{WorkloadIdentityName: "kms"}, spec.Rules{Providers: clouds}, "", "", auth.CodeNotGranted, path + ".workloadIdentityName", nil,
		},
		"an AWS identity of a controller without any": {
			spec.Fields{IdentityRef: role}, spec.Rules{Providers: clouds}, "", "", auth.CodeNotGranted, path + ".identityRef", nil,
		},
		"a malformed Secret": {spec.Fields{SecretRef: name("../keys")}, spec.Rules{}, "", "", auth.CodeOptionInvalid, path + ".secretRef.name", nil},
		"a credential": {
			spec.Fields{ServiceAccountName: "kms", Address: "a/b", Credential: &spec.Credential{Type: spec.ServiceAccountToken}},
			spec.Rules{Providers: clouds},
			"", "",
			auth.CodeOptionInvalid, path + ".credential", nil,
		},
		"an SVID": {
			spec.Fields{Kind: "Kustomization", Name: "app", Credential: &spec.Credential{Type: spec.SpiffeJWT}},
			spec.Rules{Providers: clouds, TokenServer: true},
			"", "",
			auth.CodeOptionInvalid, path + ".credential", nil,
		},
	} {
		t.Run(title, func(t *testing.T) {
			fields := test.fields
			if fields.ProviderLater, fields.Path = true, path; fields.Namespace == "" {
				fields.Namespace = "tenant-a"
			}
			identity, err := spec.Resolve(t.Context(), fields, test.rules)
			if test.cloud != "" {
				want := spec.Identity{Source: spec.Later}
				if fields.SecretRef != nil {
					want.SecretName = *fields.SecretRef
				}
				if err != nil || identity != want || identity.Minted() {
					t.Errorf("without a cloud: %+v, %v", identity, err)
				}
				identity, err = spec.ResolveAt(t.Context(), test.cloud, fields, test.rules)
			}
			if test.subject != "" {
				if err != nil || identity.Source != spec.Cloud || identity.Provider != test.cloud || identity.Subject.String() != test.subject || identity.SecretName != "" {
					t.Errorf("%+v, %v", identity, err)
				}
				return
			}
			if auth.CodeOf(err) != test.code || identity != (spec.Identity{}) || !spec.Terminal(err) {
				t.Fatalf("%+v, %v", identity, err)
			}
			if test.field != "" {
				if refused := checkRefusal(t, identity, err); refused.Field != test.field {
					t.Errorf("refused %s, want %s", refused.Field, test.field)
				}
			}
			for _, says := range test.says {
				if !strings.Contains(err.Error(), says) {
					t.Errorf("%v, want %q", err, says)
				}
			}
			if strings.Contains(strings.ReplaceAll(err.Error(), path, ""), "spec.") {
				t.Errorf("another field is named: %v", err)
			}
		})
	}

	// If ProviderLater is false, only spec.provider may name the object's cloud. So ResolveAt,
	// whose argument names a cloud, fails for such an object.
	identity, err := spec.ResolveAt(t.Context(), "aws", spec.Fields{Namespace: "tenant-a", ServiceAccountName: "kms"}, everything)
	if refused := checkRefusal(t, identity, err); refused.Field != "spec.provider" || !spec.Terminal(err) {
		t.Errorf("%v", err)
	}
	// If ProviderLater is true, the field Provider must have no effect. So ResolveAt must refuse an
	// empty cloud, although Provider is "aws". Resolve must return the source Later, which means
	// that no cloud is decided yet.
	later := spec.Fields{Namespace: "tenant-a", Provider: "aws", ProviderLater: true}
	identity, err = spec.ResolveAt(t.Context(), "", later, everything)
	checkRefusal(t, identity, err)
	if identity, err = spec.Resolve(t.Context(), later, everything); err != nil || identity != (spec.Identity{Source: spec.Later}) {
		t.Errorf("%+v, %v", identity, err)
	}
}

// TestReference checks which identity an object gets from another object. The fields of the other
// object must decide. Refusals must name the field that refers to the other object.
func TestReference(t *testing.T) {
	errDown := errors.New("the API server is down")
	repo := spec.Fields{Kind: "GitRepository", Namespace: "tenant-a", Name: "app", Provider: "azure", ServiceAccountName: "git"}
	edit := func(change func(*spec.Fields)) spec.Fields {
		f := repo
		change(&f)
		return f
	}
	ref := spec.Reference{Field: "spec.sourceRef", From: "tenant-a", Kind: "GitRepository", Namespace: "tenant-a", Name: "app"}
	at := func(change func(*spec.Reference)) spec.Reference {
		r := ref
		change(&r)
		return r
	}
	labels := everything
	labels.ControllerNamespaces = grant.Namespaces{Selector: &grant.Selector{MatchLabels: map[string]string{"lend": "yes"}}}
	labels.NamespaceLabels = func(context.Context, string) (map[string]string, error) { return nil, errDown }
	lends := labels
	lends.NamespaceLabels = nil
	for title, test := range map[string]struct {
		fields  spec.Fields
		ref     spec.Reference
		rules   spec.Rules
		subject string // empty if refused
		code    auth.Code
		says    string
		passing bool // whether a retry may succeed
	}{
		"an account":   {repo, ref, everything, "system:serviceaccount:tenant-a:git", "", "", false},
		"an identity":  {edit(func(f *spec.Fields) { f.ServiceAccountName, f.WorkloadIdentityName = "", "git" }), ref, everything, "lanyard.dev:workloadidentity:tenant-a:git", "", "", false},
		"the lent one": {edit(func(f *spec.Fields) { f.ServiceAccountName = "" }), ref, everything, "controller", "", "", false},
		"an identity's token": {
			edit(func(f *spec.Fields) {
				f.Provider, f.ServiceAccountName, f.WorkloadIdentityName = "", "", "git"
				f.Address, f.Credential = "https://git.example.com/app", &spec.Credential{Type: spec.WorkloadIdentityToken}
			}), ref, everything, "lanyard.dev:workloadidentity:tenant-a:git", "", "", false,
		},
		"not granted": {
			edit(func(f *spec.Fields) { f.ServiceAccountName = "" }), ref,
			spec.Rules{Providers: []string{"azure"}},
			"", auth.CodeNotGranted,
			"spec.sourceRef: GitRepository app: spec.serviceAccountName: no ServiceAccount is named, and the controller's identity is not lent to namespace tenant-a: " +
				"the grant names no namespace; in GitRepository app, set spec.serviceAccountName, or", false,
		},
		"not granted by label": {
			edit(func(f *spec.Fields) { f.ServiceAccountName = "" }), ref, lends, "", auth.CodeNotGranted, "spec.sourceRef: GitRepository app: spec.serviceAccountName: ", true,
		},
		"labels that cannot be read": {
			edit(func(f *spec.Fields) { f.ServiceAccountName = "" }), ref, labels, "", auth.CodeUnavailable, "spec.sourceRef: GitRepository app: subject: labels of namespace tenant-a: the API server", true,
		},
		"a provider that is not known": {
			edit(func(f *spec.Fields) { f.Provider = "oracle" }), ref, everything, "", auth.CodeOptionInvalid, `spec.sourceRef: GitRepository app: spec.provider: Unsupported value: "oracle"`, false,
		},
		"fields that exclude each other": {
			edit(func(f *spec.Fields) { f.Credential = &spec.Credential{Type: spec.SpiffeJWT} }), ref, everything, "", auth.CodeOptionInvalid, "spec.sourceRef: GitRepository app: spec.credential: ", false,
		},
		"fields below another path": {
			edit(func(f *spec.Fields) { f.Path, f.ServiceAccountName = "spec.git", "b/git" }), ref, everything, "", auth.CodeSubjectInvalid,
			"spec.sourceRef: GitRepository app: spec.git.serviceAccountName: ", false,
		},
		"another namespace": {
			edit(func(f *spec.Fields) { f.Namespace = "tenant-b" }), at(func(r *spec.Reference) { r.Namespace = "tenant-b" }), everything, "", auth.CodeNotGranted,
			"spec.sourceRef: GitRepository app is in namespace tenant-b, and", false,
		},
		"fields of another namespace": {edit(func(f *spec.Fields) { f.Namespace = "tenant-b" }), ref, everything, "", auth.CodeSubjectInvalid, "spec.sourceRef: ", false},
		"fields of another object":    {edit(func(f *spec.Fields) { f.Name = "other" }), ref, everything, "", auth.CodeSubjectInvalid, `"other", not of GitRepository app`, false},
		"fields of another kind":      {edit(func(f *spec.Fields) { f.Kind = "Bucket" }), ref, everything, "", auth.CodeSubjectInvalid, "spec.sourceRef: ", false},
		"nobody's namespace":          {repo, at(func(r *spec.Reference) { r.From = "" }), everything, "", auth.CodeNotGranted, "spec.sourceRef: ", false},
		"no namespace":                {repo, at(func(r *spec.Reference) { r.Namespace = "" }), everything, "", auth.CodeSubjectInvalid, "spec.sourceRef: ", false},
		"no namespace at all": {
			edit(func(f *spec.Fields) { f.Namespace = "" }), at(func(r *spec.Reference) { r.Namespace, r.From = "", "" }), everything, "", auth.CodeSubjectInvalid, "spec.sourceRef: ", false,
		},
		"no name": {edit(func(f *spec.Fields) { f.Name = "" }), at(func(r *spec.Reference) { r.Name = "" }), everything, "", auth.CodeSubjectInvalid, "spec.sourceRef: ", false},
		"a path for a name": {
			edit(func(f *spec.Fields) { f.Name = "../app" }), at(func(r *spec.Reference) { r.Name = "../app" }), everything, "", auth.CodeSubjectInvalid, "spec.sourceRef: ", false,
		},
		"a kind with a newline": {
			edit(func(f *spec.Fields) { f.Kind = "Git\n" }), at(func(r *spec.Reference) { r.Kind = "Git\n" }), everything, "", auth.CodeSubjectInvalid, "spec.sourceRef: ", false,
		},
	} {
		t.Run(title, func(t *testing.T) {
			test.fields.Via = &test.ref
			identity, err := spec.Resolve(t.Context(), test.fields, test.rules)
			if test.subject != "" {
				if err != nil || identity.Subject.String() != test.subject {
					t.Errorf("%+v, %v", identity, err)
				}
				return
			}
			if auth.CodeOf(err) != test.code || identity != (spec.Identity{}) || spec.Terminal(err) == test.passing || !strings.Contains(err.Error(), test.says) {
				t.Fatalf("%+v, %v, want %s, %q", identity, err, test.code, test.says)
			}
			if test.code == auth.CodeUnavailable {
				return
			}
			if refused := checkRefusal(t, identity, err); refused.Field != "spec.sourceRef" {
				t.Errorf("refused %s", refused.Field)
			}
			if named := test.rules.Named(test.fields); named.Namespace() == "tenant-b" {
				t.Errorf("depends on %s", named)
			}
		})
	}
}
