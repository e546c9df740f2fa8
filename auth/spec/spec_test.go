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
	"github.com/lanyard-dev/lanyard/auth/endpoint"
	"github.com/lanyard-dev/lanyard/auth/grant"
	"github.com/lanyard-dev/lanyard/auth/internal/must"
	"github.com/lanyard-dev/lanyard/auth/spec"
)

// everything is the set of rules of a controller that supports all clouds and the token server. The
// controller's identity is lent to all namespaces.
var everything = spec.Rules{
	Providers: []string{"aws", "azure", "gcp"}, TokenServer: true, ControllerNamespaces: grant.Namespaces{All: true}, CredentialHosts: hosts("registry.example.com"),
	AWSIdentities: func(context.Context, string, auth.Subject) error { return nil },
}

func hosts(entries ...string) endpoint.Allowed {
	list, err := endpoint.ParseAllowed(entries...)
	if err != nil {
		panic(err)
	}
	return list
}

// TestExclusions checks Resolve against the truth table testdata/exclusions.yaml. The schemas of
// all kinds (config/crd) follow the same table.
func TestExclusions(t *testing.T) {
	data, err := os.ReadFile("testdata/exclusions.yaml")
	must.Succeed(t, err)
	var table struct {
		Rows []struct {
			Name     string          `json:"name"`
			Kinds    []string        `json:"kinds"`
			Spec     json.RawMessage `json:"spec"`
			Accepted bool            `json:"accepted"`
			Field    string          `json:"field"`
			Message  string          `json:"message"`
		} `json:"rows"`
	}
	must.Succeed(t, yaml.UnmarshalStrict(data, &table))
	// Resolve treats an empty string as an absent field. So it accepts these rows, which the schema
	// refuses. A tenant gains nothing by an empty field: an absent field gives the same identity.
	absent := []string{"account name empty", "identity name empty", "empty provider"}
	for _, row := range table.Rows {
		t.Run(row.Name, func(t *testing.T) {
			// Leave PullSecrets false if the row is only for Buckets, because a Bucket does not use
			// the pull secrets of an account.
			bucket := slices.Equal(row.Kinds, []string{"Bucket"})
			var written struct {
				Provider             string                 `json:"provider"`
				ServiceAccountName   string                 `json:"serviceAccountName"`
				WorkloadIdentityName string                 `json:"workloadIdentityName"`
				SecretRef            *struct{ Name string } `json:"secretRef"`
				CertSecretRef        *struct{ Name string } `json:"certSecretRef"`
				ProxySecretRef       *struct{ Name string } `json:"proxySecretRef"`
				Insecure             bool                   `json:"insecure"`
				STS                  *spec.TokenService     `json:"sts"`
				Credential           *spec.Credential       `json:"credential"`
				IdentityRef          *spec.IdentityRef      `json:"identityRef"`
			}
			must.Succeed(t, yaml.UnmarshalStrict(row.Spec, &written))
			fields := spec.Fields{
				Namespace: "tenant-a", Provider: written.Provider, ServiceAccountName: written.ServiceAccountName,
				WorkloadIdentityName: written.WorkloadIdentityName, Insecure: written.Insecure, PullSecrets: !bucket, STS: written.STS,
				Kind: "OCIRepository", Name: "app", Address: "oci://registry.example.com/tenant-a/app", Credential: written.Credential,
				IdentityRef: written.IdentityRef,
			}
			rules := everything
			if written.ServiceAccountName+written.WorkloadIdentityName == "" && written.IdentityRef == nil && (written.CertSecretRef != nil || written.ProxySecretRef != nil) && written.Provider != "" {
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
			// The row is for all kinds, so PullSecrets must make no difference.
			if row.Kinds == nil {
				fields.PullSecrets = false
				other, otherErr := spec.Resolve(t.Context(), fields, rules)
				if other != identity || (err == nil) != (otherErr == nil) {
					t.Errorf("without pull secrets: %+v, %v; with: %+v, %v", other, otherErr, identity, err)
				}
			}
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

// checkRefusal checks that a refusal has a stage, a code, a fix and a field, and that there is no
// identity.
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
	must.Succeed(t, err)
	identity, err := auth.WorkloadIdentity("tenant-a", "puller")
	must.Succeed(t, err)
	object, err := auth.Object("OCIRepository", "tenant-a", "app")
	must.Succeed(t, err)
	list := func(values ...string) auth.List {
		l, err := auth.NewList(values...)
		must.Succeed(t, err)
		return l
	}
	const address = "oci://registry.example.com/tenant-a/app"
	service := &spec.TokenService{Provider: "aws", Endpoint: "https://minio.example.com"}
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
			spec.Fields{Namespace: "tenant-a", ServiceAccountName: "puller", PullSecrets: true},
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
		"token service of a cloud": {
			spec.Fields{Namespace: "tenant-a", Provider: "aws", ServiceAccountName: "puller", STS: service},
			spec.Identity{Source: spec.Cloud, Provider: "aws", Subject: account, STSEndpoint: service.Endpoint},
		},
		"token service of nobody": {
			spec.Fields{Namespace: "tenant-a", ServiceAccountName: "puller", STS: service, ProxySecretRef: name("proxy")},
			spec.Identity{Source: spec.STS, Provider: "aws", Subject: account, STSEndpoint: service.Endpoint, ProxySecretName: "proxy"},
		},
		"account token": {
			spec.Fields{
				Namespace: "tenant-a", ServiceAccountName: "puller", PullSecrets: true, Address: address, CertSecretRef: name("ca"), ProxySecretRef: name("proxy"),
				Credential: &spec.Credential{Type: spec.ServiceAccountToken},
			},
			spec.Identity{
				Source: spec.Proof, Provider: "generic", Subject: account, Credential: spec.ServiceAccountToken, Audiences: list(address),
				CertSecretName: "ca", ProxySecretName: "proxy",
			},
		},
		"account token with audiences": {
			spec.Fields{
				Namespace: "tenant-a", ServiceAccountName: "puller", PullSecrets: true, Address: address,
				Credential: &spec.Credential{Type: spec.ServiceAccountToken, Audiences: []string{"b", "a"}},
			},
			spec.Identity{Source: spec.Proof, Provider: "generic", Subject: account, Credential: spec.ServiceAccountToken, Audiences: list("b", "a")},
		},
		"account token of the controller": {
			spec.Fields{Namespace: "tenant-a", Address: address, Credential: &spec.Credential{Type: spec.ServiceAccountToken}},
			spec.Identity{Source: spec.Proof, Provider: "generic", Subject: auth.Controller(), Credential: spec.ServiceAccountToken, Audiences: list(address)},
		},
		"identity token": {
			spec.Fields{Namespace: "tenant-a", WorkloadIdentityName: "puller", Address: address, Credential: &spec.Credential{Type: spec.WorkloadIdentityToken}},
			spec.Identity{Source: spec.Proof, Provider: "generic", Subject: identity, Credential: spec.WorkloadIdentityToken, Audiences: list(address)},
		},
		"SPIFFE JWT": {
			spec.Fields{Kind: "OCIRepository", Namespace: "tenant-a", Name: "app", Address: address, Credential: &spec.Credential{Type: spec.SpiffeJWT}},
			spec.Identity{Source: spec.Proof, Provider: "generic", Subject: object, Credential: spec.SpiffeJWT, Audiences: list(address)},
		},
		"SPIFFE certificate": {
			spec.Fields{Kind: "OCIRepository", Namespace: "tenant-a", Name: "app", Address: address, Credential: &spec.Credential{Type: spec.SpiffeCertificate}},
			spec.Identity{Source: spec.Proof, Provider: "generic", Subject: object, Credential: spec.SpiffeCertificate},
		},
	} {
		got, err := spec.Resolve(t.Context(), test.fields, everything)
		if err != nil || got != test.want {
			t.Errorf("%s: %+v, %v, want %+v", title, got, err, test.want)
		}
	}
}

// credential returns an object that names no account or identity, with a credential of this type.
func credential(form spec.CredentialType, address string) spec.Fields {
	return spec.Fields{
		Kind: "OCIRepository", Namespace: "tenant-a", Name: "app", PullSecrets: true, Address: address, Credential: &spec.Credential{Type: form},
	}
}

func withProxy(f spec.Fields) spec.Fields {
	name := "proxy"
	f.ProxySecretRef = &name
	return f
}

// TestAudiences checks that an audience is refused if a token service accepts it. The tenant
// chooses the server that gets the token. That server could send the token to a token service.
func TestAudiences(t *testing.T) {
	for _, form := range []spec.CredentialType{spec.ServiceAccountToken, spec.WorkloadIdentityToken, spec.SpiffeJWT} {
		for audience, refused := range map[string]bool{
			"registry.example.com": false, "oci://registry.example.com/app": false, "zot.zot.svc.cluster.local": false,
			"sts.amazonaws.com": true, "api://AzureADTokenExchange": true, "https://iam.googleapis.com/projects/1/locations/global/workloadIdentityPools/p/providers/q": true,
		} {
			fields := credential(form, "oci://registry.example.com/app")
			if fields.Credential.Audiences = []string{"fine.example.com", audience}; form == spec.WorkloadIdentityToken {
				fields.WorkloadIdentityName = "puller"
			}
			identity, err := spec.Resolve(t.Context(), fields, everything)
			if !refused {
				if err != nil {
					t.Errorf("%s, %s: %v", form, audience, err)
				}
				continue
			}
			field := checkRefusal(t, identity, err).Field
			if auth.CodeOf(err) != auth.CodeAudienceRefused || field != "spec.credential.audiences" || !spec.Terminal(err) {
				t.Errorf("%s, %s: %v", form, audience, err)
			}
		}
	}
	// If the object names no audience, its address is the audience. Resolve must accept the address
	// of an ordinary server, and must refuse that of a token service.
	brokered, err := spec.Resolve(t.Context(), credential(spec.SpiffeJWT, "oci://a/b"), spec.Rules{SPIFFEBroker: true})
	if err != nil || brokered.Credential != spec.SpiffeJWT {
		t.Errorf("with a broker and without token server: %+v, %v", brokered, err)
	}
	identity, err := spec.Resolve(t.Context(), credential(spec.SpiffeJWT, "sts.amazonaws.com/app"), everything)
	if checkRefusal(t, identity, err); auth.CodeOf(err) != auth.CodeAudienceRefused {
		t.Errorf("%v", err)
	}
}

// TestRules checks decisions that depend on the controller and its administrator.
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
		code     auth.Code // empty if accepted
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
		"the controller at a tenant's token service": {
			fields: spec.Fields{Namespace: "tenant-a", Provider: "aws", STS: &spec.TokenService{Provider: "aws", Endpoint: "https://minio.example.com"}}, rules: everything,
			code: auth.CodeOptionInvalid, field: "spec.sts", fix: []string{"remove spec.sts"}, terminal: true,
		},
		"a token service whose protocol is not built in": {
			fields: spec.Fields{Namespace: "tenant-a", ServiceAccountName: "puller", STS: &spec.TokenService{Provider: "aws", Endpoint: "https://minio.example.com"}},
			rules:  spec.Rules{Providers: []string{"gcp"}},
			code:   auth.CodeOptionUnsupported, field: "spec.provider", fix: []string{"generic, gcp"}, terminal: true,
		},
		"a default that is no name": {
			fields: spec.Fields{Namespace: "tenant-a", Provider: "aws"},
			rules:  spec.Rules{Providers: []string{"aws"}, DefaultServiceAccount: "tenant-b/puller", ControllerNamespaces: grant.Namespaces{All: true}},
			code:   auth.CodeSubjectInvalid, field: "spec.serviceAccountName", fix: []string{"--default-service-account"}, terminal: true,
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
		"the controller's token for a host that nobody listed": {
			fields: credential(spec.ServiceAccountToken, "oci://registry.example.com:5000/app"), rules: everything,
			code: auth.CodeNotGranted, field: "spec.serviceAccountName", fix: []string{"spec.serviceAccountName", "--controller-credential-hosts"}, terminal: true,
		},
		"the controller's token for nobody's namespace": {
			fields: credential(spec.ServiceAccountToken, "oci://registry.example.com/app"),
			rules:  spec.Rules{CredentialHosts: hosts("registry.example.com")},
			code:   auth.CodeNotGranted, field: "spec.serviceAccountName", fix: []string{"--controller-identity-namespaces"}, terminal: true,
		},
		"the controller's token for a listed host": {
			fields: credential(spec.ServiceAccountToken, "registry.example.com:443/app"), rules: everything,
		},
		"the controller's token with a tenant's proxy": {
			fields: withProxy(credential(spec.ServiceAccountToken, "oci://registry.example.com/app")), rules: everything,
			code: auth.CodeOptionInvalid, field: "spec.proxySecretRef", fix: []string{"remove spec.proxySecretRef"}, terminal: true,
		},
		"a token of nobody where an account is required": {
			fields: credential(spec.ServiceAccountToken, "oci://registry.example.com/app"),
			rules:  spec.Rules{RequireServiceAccount: true, ControllerNamespaces: grant.Namespaces{All: true}, CredentialHosts: hosts("registry.example.com")},
			code:   auth.CodeNotGranted, field: "spec.serviceAccountName", fix: []string{"--default-service-account"}, terminal: true,
		},
		"a token of an account, the gate off": {
			fields: spec.Fields{
				Namespace: "tenant-a", ServiceAccountName: "puller", PullSecrets: true, Address: "oci://a/b", Credential: &spec.Credential{Type: spec.ServiceAccountToken},
			},
			rules: spec.Rules{ControllerOnly: true},
			code:  auth.CodeNotGranted, field: "spec.serviceAccountName", fix: []string{"--feature-gates=ObjectLevelWorkloadIdentity=true"}, terminal: true,
		},
		"an SVID without token server": {
			fields: credential(spec.SpiffeJWT, "oci://a/b"), rules: spec.Rules{},
			code: auth.CodeNotGranted, field: "spec.credential.type", fix: []string{"spiffe.trustDomain", "spiffe.broker", "--spiffe-trust-domain", "--spiffe-broker-endpoint"}, terminal: true,
		},
		"an SVID, the gate off": {
			fields: credential(spec.SpiffeCertificate, "oci://a/b"), rules: spec.Rules{TokenServer: true, ControllerOnly: true},
		},
		"an identity's token without token server": {
			fields: spec.Fields{Namespace: "tenant-a", WorkloadIdentityName: "puller", Address: "a/b", Credential: &spec.Credential{Type: spec.WorkloadIdentityToken}},
			rules:  spec.Rules{},
			code:   auth.CodeNotGranted, field: "spec.workloadIdentityName", fix: []string{"issuer.url"}, terminal: true,
		},
		"a credential of an object without address": {
			fields: credential(spec.SpiffeJWT, ""), rules: everything,
			code: auth.CodeOptionInvalid, field: "spec.credential.audiences", fix: []string{"name the audience"}, terminal: true,
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

	// If the labels cannot be read, the result is neither a grant nor a refusal, but a temporary
	// error.
	rules := spec.Rules{Providers: []string{"aws"}, ControllerNamespaces: selector, NamespaceLabels: labels(nil, errLabels)}
	identity, err := spec.Resolve(t.Context(), spec.Fields{Namespace: "tenant-a", Provider: "aws"}, rules)
	if identity != (spec.Identity{}) || !errors.Is(err, errLabels) || !auth.IsTemporary(err) || spec.Terminal(err) {
		t.Errorf("labels unreadable: %+v, %v", identity, err)
	}
}

// TestWhoseIdentity checks whose identity is used with a cloud's provider. It has one row for each
// combination of what the object names and what the administrator has set.
func TestWhoseIdentity(t *testing.T) {
	const table = `
		account  default  require  gate  grant   whose
		-        -        -        on    -       refused: --controller-identity-namespaces
		-        -        -        on    lent    controller
		-        -        -        off   -       refused: --controller-identity-namespaces
		-        -        -        off   lent    controller
		-        -        require  on    -       refused: --require-service-account-for-provider-auth
		-        -        require  on    lent    refused: --require-service-account-for-provider-auth
		-        -        require  off   -       refused: --require-service-account-for-provider-auth
		-        -        require  off   lent    refused: --require-service-account-for-provider-auth
		-        default  -        on    -       tenant-a/default
		-        default  -        on    lent    tenant-a/default
		-        default  -        off   -       refused: ObjectLevelWorkloadIdentity
		-        default  -        off   lent    refused: ObjectLevelWorkloadIdentity
		-        default  require  on    -       tenant-a/default
		-        default  require  on    lent    tenant-a/default
		-        default  require  off   -       refused: ObjectLevelWorkloadIdentity
		-        default  require  off   lent    refused: ObjectLevelWorkloadIdentity
		puller   -        -        on    -       tenant-a/puller
		puller   -        -        on    lent    tenant-a/puller
		puller   -        -        off   -       refused: ObjectLevelWorkloadIdentity
		puller   -        -        off   lent    refused: ObjectLevelWorkloadIdentity
		puller   -        require  on    -       tenant-a/puller
		puller   -        require  on    lent    tenant-a/puller
		puller   -        require  off   -       refused: ObjectLevelWorkloadIdentity
		puller   -        require  off   lent    refused: ObjectLevelWorkloadIdentity
		puller   default  -        on    -       tenant-a/puller
		puller   default  -        on    lent    tenant-a/puller
		puller   default  -        off   -       refused: ObjectLevelWorkloadIdentity
		puller   default  -        off   lent    refused: ObjectLevelWorkloadIdentity
		puller   default  require  on    -       tenant-a/puller
		puller   default  require  on    lent    tenant-a/puller
		puller   default  require  off   -       refused: ObjectLevelWorkloadIdentity
		puller   default  require  off   lent    refused: ObjectLevelWorkloadIdentity`
	rows := strings.Split(strings.TrimSpace(table), "\n")[1:]
	seen := map[string]bool{}
	pull := "pull"
	for _, row := range rows {
		cells := strings.Fields(row)
		title := strings.Join(cells[:5], " ")
		if seen[title] {
			t.Fatalf("two rows for %s", title)
		}
		seen[title] = true
		or := func(cell, value string) string {
			if cell == "-" {
				return ""
			}
			return value
		}
		fields := spec.Fields{Namespace: "tenant-a", Provider: "aws", ServiceAccountName: or(cells[0], "puller")}
		// With a credential of the type ServiceAccountToken, Resolve must choose the same subject
		// as with provider aws.
		token := credential(spec.ServiceAccountToken, "oci://registry.example.com/app")
		token.ServiceAccountName = fields.ServiceAccountName
		rules := spec.Rules{
			Providers: []string{"aws"}, DefaultServiceAccount: or(cells[1], "default"), RequireServiceAccount: cells[2] == "require",
			ControllerOnly: cells[3] == "off",
		}
		if cells[4] == "lent" {
			rules.ControllerNamespaces = grant.Namespaces{All: true}
		}
		rules.CredentialHosts = hosts("registry.example.com")
		identity, err := spec.Resolve(t.Context(), fields, rules)
		other, otherErr := spec.Resolve(t.Context(), token, rules)
		if (err == nil) != (otherErr == nil) || auth.CodeOf(err) != auth.CodeOf(otherErr) || other.Subject != identity.Subject || other.Defaulted != identity.Defaulted {
			t.Errorf("%s: a token of %+v, %v, want the identity of the cloud: %+v, %v", title, other, otherErr, identity, err)
		}
		if cells[5] == "refused:" {
			checkRefusal(t, identity, err)
			if !strings.Contains(err.Error(), cells[6]) || !spec.Terminal(err) || auth.CodeOf(err) != auth.CodeNotGranted {
				t.Errorf("%s: %v, want %s named and stalled", title, err, cells[6])
			}
			continue
		}
		whose := identity.Subject.Namespace() + "/" + identity.Subject.Name()
		if identity.Subject.Kind() == auth.KindController {
			whose = "controller"
		}
		if err != nil || whose != cells[5] || identity.Defaulted != (whose == "tenant-a/default") {
			t.Errorf("%s: %+v, %v", title, identity, err)
		}
		// Without a cloud the default account is not used.
		for name, fields := range map[string]spec.Fields{
			"anonymous":    {Namespace: "tenant-a"},
			"secret":       {Namespace: "tenant-a", SecretRef: &pull},
			"pull secrets": {Namespace: "tenant-a", ServiceAccountName: "puller", PullSecrets: true},
		} {
			identity, err := spec.Resolve(t.Context(), fields, rules)
			named := rules.Named(fields).Name()
			if err != nil || identity.Minted() || identity.ServiceAccountName != fields.ServiceAccountName || named != fields.ServiceAccountName {
				t.Errorf("%s, %s: %+v, %v", title, name, identity, err)
			}
		}
	}
	if len(seen) != 32 {
		t.Errorf("the table has %d rows, want one for each of 32 combinations", len(seen))
	}
}

// TestNamed checks which subject an object depends on.
func TestNamed(t *testing.T) {
	rules := spec.Rules{DefaultServiceAccount: "default"}
	lending := spec.Rules{AWSIdentities: everything.AWSIdentities}
	for _, c := range []struct {
		want   string
		rules  spec.Rules
		fields spec.Fields
	}{
		{"system:serviceaccount:a:puller", rules, spec.Fields{Provider: "aws", ServiceAccountName: "puller"}},
		{"system:serviceaccount:a:default", rules, spec.Fields{Provider: "gcp"}},
		{"lanyard.dev:workloadidentity:a:puller", rules, spec.Fields{Provider: "gcp", WorkloadIdentityName: "puller"}}, // the WorkloadIdentity, not the default account
		{"lanyard.dev:workloadidentity:a:s3", rules, spec.Fields{WorkloadIdentityName: "s3", STS: &spec.TokenService{Provider: "aws"}}},
		{"system:serviceaccount:a:token", rules, spec.Fields{ServiceAccountName: "token", Credential: &spec.Credential{Type: spec.ServiceAccountToken}}},
		{"lanyard.dev:workloadidentity:a:token", rules, spec.Fields{WorkloadIdentityName: "token", Credential: &spec.Credential{Type: spec.WorkloadIdentityToken}}},
		{"lanyard.dev:ocirepository:a:app", rules, spec.Fields{Kind: "OCIRepository", Name: "app", Credential: &spec.Credential{Type: spec.SpiffeJWT}}},
		{"nobody", rules, spec.Fields{Provider: "generic"}},
		{"nobody", rules, spec.Fields{Provider: "aws", ServiceAccountName: "b/puller"}},
		{"lanyard.dev:awsclusterroleidentity:role", rules, spec.Fields{Provider: "aws", IdentityRef: &spec.IdentityRef{Kind: "AWSClusterRoleIdentity", Name: "role"}}},
		{"lanyard.dev:awsserviceaccountidentity:a:own", rules, spec.Fields{Provider: "aws", IdentityRef: &spec.IdentityRef{Kind: "AWSServiceAccountIdentity", Name: "own"}}},
		// Without a named or default identity, an object at AWS uses the controller's identity. The
		// AWSClusterControllerIdentity must admit the object's namespace, so the object depends on
		// it.
		{"lanyard.dev:awsclustercontrolleridentity:default", lending, spec.Fields{Provider: "aws"}},
		{"nobody", lending, spec.Fields{Provider: "gcp"}},
		{"system:serviceaccount:a:kms", rules, spec.Fields{ProviderLater: true, ServiceAccountName: "kms"}},
		{"system:serviceaccount:a:default", rules, spec.Fields{ProviderLater: true}},
		{"lanyard.dev:awsclustercontrolleridentity:default", lending, spec.Fields{ProviderLater: true}},
		{"nobody", spec.Rules{}, spec.Fields{Provider: "aws"}},
		{"nobody", rules, spec.Fields{Provider: "gcp", Via: &spec.Reference{Field: "spec.sourceRef", From: "b", Kind: "GitRepository", Namespace: "a", Name: "app"}}},
	} {
		c.fields.Namespace = "a"
		if got := c.rules.Named(c.fields).String(); got != c.want {
			t.Errorf("%+v depends on %s, want %s", c.fields, got, c.want)
		}
	}
}

// TestAWSIdentities checks that the AWS identity that an object names is the object's subject. The
// object is refused if its namespace may not use the identity. DefaultServiceAccount and
// RequireServiceAccount must have no effect.
func TestAWSIdentities(t *testing.T) {
	var asked []string
	refusal := &auth.Error{Stage: auth.StageIdentity, Code: auth.CodeNotGranted, Fix: "admit it"}
	rules := spec.Rules{
		Providers: []string{"aws"}, DefaultServiceAccount: "default", RequireServiceAccount: true,
		AWSIdentities: func(_ context.Context, namespace string, identity auth.Subject) error {
			asked = append(asked, namespace+" "+identity.String())
			if namespace != "tenant-a" {
				return refusal
			}
			return nil
		},
	}
	fields := spec.Fields{Namespace: "tenant-a", Provider: "aws", IdentityRef: &spec.IdentityRef{Kind: "AWSClusterRoleIdentity", Name: "role"}}
	got, err := spec.Resolve(t.Context(), fields, rules)
	if err != nil || got.Source != spec.Cloud || got.Subject.String() != "lanyard.dev:awsclusterroleidentity:role" || !got.Subject.Lent() || got.Defaulted {
		t.Errorf("%+v, %v", got, err)
	}
	fields.Namespace = "tenant-b"
	if got, err := spec.Resolve(t.Context(), fields, rules); auth.CodeOf(err) != auth.CodeNotGranted || got != (spec.Identity{}) || !spec.Terminal(err) {
		t.Errorf("%+v, %v", got, err)
	}
	want := []string{"tenant-a lanyard.dev:awsclusterroleidentity:role", "tenant-b lanyard.dev:awsclusterroleidentity:role"}
	if !slices.Equal(asked, want) {
		t.Errorf("asked for %q", asked)
	}
	for says, change := range map[string]func(*spec.Rules){
		"--aws-identities": func(r *spec.Rules) { r.AWSIdentities = nil },
		"feature gate":     func(r *spec.Rules) { r.ControllerOnly = true },
	} {
		limited := rules
		change(&limited)
		identity, err := spec.Resolve(t.Context(), fields, limited)
		if refused := checkRefusal(t, identity, err); refused.Field != "spec.identityRef" || !strings.Contains(refused.Message, says) || !spec.Terminal(err) {
			t.Errorf("%v, want %q", err, says)
		}
	}
}

// TestTheControllersIdentityAtAWSNeedsTwoGrants checks a controller that supports AWS identities.
// To use the controller's own identity at AWS, a namespace needs two grants. The first is
// Rules.ControllerNamespaces. The second is that of the AWSClusterControllerIdentity. Other clouds
// need only the first.
func TestTheControllersIdentityAtAWSNeedsTwoGrants(t *testing.T) {
	refusal := &auth.Error{Stage: auth.StageIdentity, Code: auth.CodeNotGranted, Fix: "admit it"}
	for _, first := range []bool{false, true} {
		for _, second := range []bool{false, true} {
			rules := spec.Rules{Providers: []string{"aws", "gcp"}, ControllerNamespaces: grant.Namespaces{All: first}}
			rules.AWSIdentities = func(_ context.Context, namespace string, identity auth.Subject) error {
				if second && namespace == "tenant-a" && identity.String() == "lanyard.dev:awsclustercontrolleridentity:default" {
					return nil
				}
				return refusal
			}
			got, err := spec.Resolve(t.Context(), spec.Fields{Namespace: "tenant-a", Provider: "aws"}, rules)
			if lent := err == nil && got.Subject == auth.Controller(); lent != (first && second) || !lent && auth.CodeOf(err) != auth.CodeNotGranted {
				t.Errorf("%t and %t: %+v, %v", first, second, got, err)
			}
			got, err = spec.Resolve(t.Context(), spec.Fields{Namespace: "tenant-a", Provider: "gcp"}, rules)
			if lent := err == nil && got.Subject == auth.Controller(); lent != first {
				t.Errorf("%t and %t at Google: %+v, %v", first, second, got, err)
			}
		}
	}
}

// TestWorkloadIdentities checks that an object can use a WorkloadIdentity of its own namespace as
// subject. DefaultServiceAccount and RequireServiceAccount must have no effect. The object must be
// refused if
//
//   - the controller has no token server
//   - the feature gate ObjectLevelWorkloadIdentity is off
//   - the WorkloadIdentities are at a hub
func TestWorkloadIdentities(t *testing.T) {
	named := spec.Fields{Namespace: "tenant-a", Provider: "aws", WorkloadIdentityName: "puller"}
	subject, err := auth.WorkloadIdentity("tenant-a", "puller")
	must.Succeed(t, err)
	rules := spec.Rules{
		Providers: []string{"aws"}, TokenServer: true, DefaultServiceAccount: "default", RequireServiceAccount: true,
	}
	want := spec.Identity{Source: spec.Cloud, Provider: "aws", Subject: subject}
	if got, err := spec.Resolve(t.Context(), named, rules); err != nil || got != want || !got.Minted() {
		t.Errorf("%+v, %v, want %+v", got, err, want)
	}
	exchanged := spec.Fields{
		Namespace: "tenant-a", WorkloadIdentityName: "puller", STS: &spec.TokenService{Provider: "aws", Endpoint: "https://minio.example.com"},
	}
	want = spec.Identity{Source: spec.STS, Provider: "aws", Subject: subject, STSEndpoint: "https://minio.example.com"}
	if got, err := spec.Resolve(t.Context(), exchanged, rules); err != nil || got != want {
		t.Errorf("%+v, %v, want %+v", got, err, want)
	}

	for says, change := range map[string]func(*spec.Rules){
		"--keyring-namespace": func(r *spec.Rules) { r.TokenServer = false },
		"feature gate":        func(r *spec.Rules) { r.ControllerOnly = true },
		"hub":                 func(r *spec.Rules) { r.IdentitiesAtHub = true },
	} {
		limited := rules
		change(&limited)
		identity, err := spec.Resolve(t.Context(), named, limited)
		refused := checkRefusal(t, identity, err)
		if refused.Field != "spec.workloadIdentityName" || !strings.Contains(refused.Message, says) || !spec.Terminal(err) {
			t.Errorf("%v, want %q", err, says)
		}
		if says == "--keyring-namespace" && !strings.Contains(err.Error()+fix(err), "issuer.url") {
			t.Errorf("%v: %s does not name the chart's value", err, fix(err))
		}
	}
}

func fix(err error) string {
	if typed, ok := errors.AsType[*auth.Error](err); ok {
		return typed.Fix
	}
	return ""
}

// TestLabelsAreReadWhenTheyDecide checks that a namespace's labels are read only if the decision
// depends on them, because reading labels costs an API call.
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
	resolved := &auth.Error{Stage: auth.StageExchange, Code: auth.CodeEndpointRefused, Err: &endpoint.AddressError{Host: "sts.example.com", Kind: "loopback"}}
	for _, err := range []error{nil, errors.New("other"), context.DeadlineExceeded, resolved} {
		if spec.Terminal(err) {
			t.Errorf("%v is terminal", err)
		}
	}
}

type nobody struct{ auth.Accounts }

func TestOption(t *testing.T) {
	account, err := auth.ServiceAccount("tenant-a", "puller")
	must.Succeed(t, err)
	for _, subject := range []auth.Subject{account, auth.Controller(), {}} {
		var options auth.Options
		spec.Identity{Subject: subject}.Option(nobody{})(&options)
		if options.Subject != subject {
			t.Errorf("subject %s, want %s", options.Subject, subject)
		}
		if options.STSEndpoint != "" {
			t.Errorf("%s: token service %q", subject, options.STSEndpoint)
		}
		if proven := options.Accounts != nil; proven != (subject != auth.Controller()) {
			t.Errorf("%s: a prover is there: %t", subject, proven)
		}
	}
}

func TestOptionNamesTheTokenService(t *testing.T) {
	account, err := auth.ServiceAccount("tenant-a", "puller")
	must.Succeed(t, err)
	var options auth.Options
	spec.Identity{Subject: account, STSEndpoint: "https://minio.example.com"}.Option(nobody{})(&options)
	if options.Subject != account || options.STSEndpoint != "https://minio.example.com" {
		t.Errorf("%s at %q", options.Subject, options.STSEndpoint)
	}
}

// FuzzResolve checks that, for any input, a tenant gets only accounts of its own namespace. The
// tenant gets the controller's identity only if this identity is lent to the namespace.
func FuzzResolve(f *testing.F) {
	f.Add("tenant-a", "aws", "puller", "", "", "", "", "", uint16(0))
	f.Add("tenant-a", "aws", "", "", "", "", "", "", uint16(16))
	f.Add("tenant-a", "generic", "", "pull", "ca", "proxy", "", "", uint16(1|2|4|8))
	f.Add("tenant-a", "aws", "tenant-b/puller", "../x", "", "a\nb", "", "", uint16(15))
	f.Add("tenant-a", "generic", "puller", "", "", "", "aws", "https://minio.example.com", uint16(32))
	f.Add("tenant-a", "aws", "", "", "", "", "aws", "https://minio.example.com", uint16(16|32|64))
	f.Add("tenant-a", "aws", "puller", "keys", "", "", "", "", uint16(1|1024))
	f.Add("tenant-a", "generic", "", "", "", "", "", "", uint16(16|1024))
	f.Fuzz(func(t *testing.T, namespace, provider, account, secret, cert, proxy, service, endpoint string, bits uint16) {
		fields := spec.Fields{
			Namespace: namespace, Provider: provider, ServiceAccountName: account, Insecure: bits&8 != 0, PullSecrets: bits&512 != 0,
		}
		if bits&1 != 0 {
			fields.SecretRef = &secret
		}
		if bits&2 != 0 {
			fields.CertSecretRef = &cert
		}
		if bits&4 != 0 {
			fields.ProxySecretRef = &proxy
		}
		if bits&32 != 0 {
			fields.STS = &spec.TokenService{Provider: service, Endpoint: endpoint}
		}
		rules := spec.Rules{Providers: []string{"aws"}, RequireServiceAccount: bits&128 != 0, ControllerOnly: bits&256 != 0}
		lent := bits&16 != 0
		if lent {
			rules.ControllerNamespaces = grant.Namespaces{List: []string{"tenant-a"}}
		}
		name := account
		if bits&64 != 0 {
			rules.DefaultServiceAccount = "default"
			if account == "" {
				name = "default"
			}
		}
		identity, err := spec.Resolve(t.Context(), fields, rules)
		if fields.ProviderLater = bits&1024 != 0; fields.ProviderLater {
			identity, err = spec.Resolve(t.Context(), fields, rules)
			if err == nil && (identity.Source != spec.Later || identity.Minted()) {
				t.Errorf("%+v: %+v without a cloud", fields, identity)
			}
			identity, err = spec.ResolveAt(t.Context(), provider, fields, rules)
			fields.SecretRef, bits = nil, bits&^1 // ResolveAt ignores spec.secretRef
		}
		if err != nil {
			checkRefusal(t, identity, err)
			return
		}
		minted := identity.Minted()
		if minted != (provider == "aws" || fields.STS != nil) || minted != (identity.Source == spec.Cloud || identity.Source == spec.STS) {
			t.Errorf("%+v: %+v", fields, identity)
		}
		if (identity.STSEndpoint != "") != (fields.STS != nil) {
			t.Errorf("%+v: token service %q", fields, identity.STSEndpoint)
		}
		switch kind := identity.Subject.Kind(); kind {
		case auth.KindController:
			if name != "" || !lent || namespace != "tenant-a" || bits&(1|2|4|8|32|128) != 0 {
				t.Errorf("%+v has the controller's identity", fields)
			}
		case auth.KindServiceAccount:
			if identity.Subject.Namespace() != namespace || identity.Subject.Name() != name || fields.Insecure || fields.SecretRef != nil || rules.ControllerOnly {
				t.Errorf("%+v: %+v", fields, identity)
			}
		default:
			if minted {
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

// TestCheckAudiences checks that CheckAudiences applies the rules of spec.credential.audiences to a
// command-line flag. Errors must contain the flag's name.
func TestCheckAudiences(t *testing.T) {
	for audience, want := range map[string]auth.Code{
		"registry.example.com": "", "oci://registry.example.com/team/app": "",
		"": auth.CodeOptionInvalid, "a b": auth.CodeOptionInvalid, strings.Repeat("a", 256): auth.CodeOptionInvalid,
		"sts.amazonaws.com": auth.CodeAudienceRefused, "api://AzureADTokenExchange": auth.CodeAudienceRefused,
	} {
		err := spec.CheckAudiences("--audiences", []string{audience})
		if auth.CodeOf(err) != want || err != nil && !strings.Contains(err.Error(), "--audiences") {
			t.Errorf("%.40q: %v", audience, err)
		}
	}
	if err := spec.CheckAudiences("--audiences", []string{"a", "a"}); auth.CodeOf(err) != auth.CodeOptionInvalid {
		t.Errorf("twice: %v", err)
	}
}
