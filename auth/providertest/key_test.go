package providertest_test

import (
	"context"
	"maps"
	"net/url"
	"reflect"
	"slices"
	"testing"

	"github.com/lanyard-dev/lanyard/auth"
	"github.com/lanyard-dev/lanyard/auth/aws"
	"github.com/lanyard-dev/lanyard/auth/azure"
	"github.com/lanyard-dev/lanyard/auth/bearer"
	"github.com/lanyard-dev/lanyard/auth/internal/must"
	"github.com/lanyard-dev/lanyard/auth/svid"
)

// TestSomethingSetsEveryFieldOfTheKey checks that each field of [auth.Key] is set by some
// provider. A field that is never set would be a waste of memory.
func TestSomethingSetsEveryFieldOfTheKey(t *testing.T) {
	amazon, err := aws.NewProvider(aws.Config{})
	must.Succeed(t, err)
	microsoft, err := azure.NewProvider(azure.Config{})
	must.Succeed(t, err)
	subject, err := auth.ServiceAccount("tenant-a", "puller")
	must.Succeed(t, err)
	accounts := known{auth.Account{Subject: subject, UID: "uid", Fingerprint: "f", Attributes: map[string]string{
		aws.RoleAnnotation:                  "arn:aws:iam::123456789123:role/tenant-a",
		"azure.workload.identity/client-id": "d6e4fc00-c5b2-4a72-9f84-6a92e3f06b08",
		"azure.workload.identity/tenant-id": "d6e4fc00-c5b2-4a72-9f84-6a92e3f06b08",
	}}}
	set, all := map[string]bool{}, map[string]bool{}
	for _, call := range []struct {
		provider auth.Provider
		options  []auth.Option
	}{
		{amazon, []auth.Option{
			auth.WithImageRepository("123456789123.dkr.ecr.eu-west-1.amazonaws.com/app"),
			auth.WithSTSEndpoint("https://sts.eu-west-1.amazonaws.com"), auth.WithProxyURL(&url.URL{Scheme: "http", Host: "proxy.example:1"}),
		}},
		{microsoft, []auth.Option{auth.WithScopes("https://storage.azure.com/.default")}},
	} {
		key, err := auth.Resolve(t.Context(), call.provider, append(call.options, auth.WithSubject(subject, accounts))...)
		must.Succeed(t, err)
		fields(reflect.ValueOf(key), set, all)
	}
	proofs(t, set, all)
	for _, name := range slices.Sorted(maps.Keys(all)) {
		if !set[name] {
			t.Errorf("nothing sets Key.%s", name)
		}
	}
	if len(all) != 17 {
		t.Errorf("%d fields: %v", len(all), slices.Sorted(maps.Keys(all)))
	}
}

// proofs makes an [auth.Key] with each provider of the packages bearer and svid. It passes each key
// to the function fields, which records the key's fields in the maps set and all. The tokens of
// these providers are proofs, so the providers set Key fields that other providers leave empty.
func proofs(t *testing.T, set, all map[string]bool) {
	t.Helper()
	tokens, err := bearer.NewProvider(bearer.Config{})
	must.Succeed(t, err)
	jwts, err := svid.NewProvider(svid.JWT, ring{})
	must.Succeed(t, err)
	certificates, err := svid.NewProvider(svid.X509, ring{})
	must.Succeed(t, err)
	identity, err := auth.WorkloadIdentity("tenant-a", "puller")
	must.Succeed(t, err)
	object, err := auth.Object("OCIRepository", "tenant-a", "app")
	must.Succeed(t, err)
	for _, call := range []struct {
		provider auth.Provider
		subject  auth.Subject
		options  []auth.Option
	}{
		{tokens, identity, []auth.Option{auth.WithAudiences("registry.example"), auth.WithContextObject(auth.ObjectReference{Name: "app"})}},
		{jwts, object, []auth.Option{auth.WithAudiences("registry.example")}},
		{certificates, object, nil},
	} {
		accounts := known{auth.Account{Subject: call.subject, UID: "uid"}}
		key, err := auth.Resolve(t.Context(), call.provider, append(call.options, auth.WithSubject(call.subject, accounts))...)
		must.Succeed(t, err)
		fields(reflect.ValueOf(key), set, all)
	}
}

// ring is a [svid.Ring] with a key for JWT-SVIDs and an authority for X.509-SVIDs.
type ring struct{}

func (ring) Signers() (svid.Signers, error) {
	domain, err := svid.ParseTrustDomain("example.com")
	return svid.Signers{TrustDomain: domain, Issuer: "https://issuer.example", Key: "kid", Authority: "0a"}, err
}

// fields records the names of all fields of a key, and which of them are set. It includes the
// fields of embedded structs.
func fields(key reflect.Value, set, all map[string]bool) {
	for i := range key.NumField() {
		field := key.Type().Field(i)
		if field.Anonymous {
			fields(key.Field(i), set, all)
			continue
		}
		if issuance, ok := reflect.TypeAssert[auth.Issuance](key.Field(i)); ok {
			fields(reflect.ValueOf(issuance.Terms()), set, all)
			continue
		}
		all[field.Name] = true
		set[field.Name] = set[field.Name] || !key.Field(i).IsZero()
	}
}

// known is an [auth.Accounts] that returns the same account for every subject. The tests only
// resolve keys, which needs no proof. So the method Prove panics.
type known struct{ account auth.Account }

func (k known) Lookup(context.Context, auth.Subject) (auth.Account, error) { return k.account, nil }

func (known) Subscribe(func(auth.Subject)) {}

func (k known) Read(context.Context, auth.Subject) (auth.Account, error) { return k.account, nil }

func (known) Prove(context.Context, auth.Account, auth.ProofRequest) (auth.Proof, error) {
	panic("nothing is to be proven")
}
