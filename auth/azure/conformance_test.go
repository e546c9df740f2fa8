package azure_test

import (
	"testing"

	"github.com/lanyard-dev/lanyard/auth"
	"github.com/lanyard-dev/lanyard/auth/azure"
	"github.com/lanyard-dev/lanyard/auth/cache"
	"github.com/lanyard-dev/lanyard/auth/internal/rig"
	"github.com/lanyard-dev/lanyard/auth/providertest"
)

func TestConformance(t *testing.T) {
	for name, subject := range map[string]func(namespace, name string) (auth.Subject, error){
		"ServiceAccount": auth.ServiceAccount,
		// The suite also runs with a WorkloadIdentity. The issuer of the proofs and the names of
		// the attributes differ from those of a ServiceAccount. Nothing else may differ.
		"WorkloadIdentity": auth.WorkloadIdentity,
	} {
		t.Run(name, func(t *testing.T) {
			providertest.Run(t, func(t *testing.T) *providertest.Harness {
				t.Helper()
				return harness(t, subject)
			})
		})
	}
}

// anyOf returns a subject made by subjectOf, for callers that need only the subject's kind.
func anyOf(t *testing.T, subjectOf func(namespace, name string) (auth.Subject, error)) auth.Subject {
	t.Helper()
	subject, err := subjectOf("tenant-a", "any")
	rig.Must(t, err)
	return subject
}

func harness(t *testing.T, subjectOf func(namespace, name string) (auth.Subject, error)) *providertest.Harness {
	t.Helper()
	w := newWorldOf(t, rig.IssuerOf(anyOf(t, subjectOf), issuerURL))
	clientAttribute, tenantAttribute := azure.ClientAnnotation, azure.TenantAnnotation
	account := func(tenant, client string) auth.Account {
		subject, err := subjectOf(tenant, "puller")
		rig.Must(t, err)
		if subject.Kind() != auth.KindServiceAccount {
			clientAttribute, tenantAttribute = azure.ClientField, azure.TenantField
		}
		a := auth.Account{Subject: subject, UID: "7c1f4d0e-" + tenant}
		a.Attributes = map[string]string{clientAttribute: client, tenantAttribute: tenantID}
		w.trust(t, client, rig.SubjectClaim(a))
		return a
	}
	a, b := account("tenant-a", clientA), account("tenant-b", clientB)
	return &providertest.Harness{
		Provider: w.azure,
		A:        a, B: b,
		WithIdentity: func(account auth.Account, identity string) auth.Account {
			if tenant, client, ok := cutIdentity(identity); ok {
				return rig.WithAttribute(rig.WithAttribute(account, clientAttribute, client), tenantAttribute, tenant)
			}
			return rig.WithAttribute(account, clientAttribute, identity)
		},
		MalformedIdentity: "tenant-a",
		Prove:             providertest.Signed(w.SignBadly),
		NewCache: func(t *testing.T) providertest.Cache {
			t.Helper()
			return cache.New(cache.Options{MaxSize: 100})
		},
		Cloud:           knobs{w},
		Whose:           w.caller,
		Secrets:         func(token auth.Token) []string { return []string{token.(*azure.Token).Secret.Reveal()} },
		ImageRepository: sharedImage,
		Unsupported: map[string]auth.Option{
			"STS region":   auth.WithSTSRegion("westeurope"),
			"STS endpoint": auth.WithSTSEndpoint("https://login.microsoftonline.com"),
		},
		Variations: map[string][]auth.Option{
			"scope":                      {auth.WithScopes("https://storage.azure.com/.default")},
			"scope of DevOps":            {auth.WithScopes(azure.DevOpsScope)},
			"image":                      {auth.WithImageRepository(sharedImage)},
			"image in the same registry": {auth.WithImageRepository(sharedImage + "2")},
			"image in another registry":  {auth.WithImageRepository("fabrikam.azurecr.io/shared/app")},
			"image at one region":        {auth.WithImageRepository("fabrikam.westeurope.geo.azurecr.io/shared/app")},
		},
	}
}

// knobs implements [providertest.Cloud] with the local cloud.
type knobs struct{ *world }

func (k knobs) Exchanges() int { return k.exchanges() }

func (k knobs) Trouble(t *testing.T, trouble providertest.Trouble) (end func()) {
	t.Helper()
	if trouble == providertest.Unreachable {
		// Close open connections, because the fault affects new connections only.
		k.azure.Close()
	}
	return k.Rig.Trouble(t, trouble, "entra", "Token", "login.microsoftonline.com")
}

func (k knobs) Revoke(t *testing.T, account auth.Account) (restore func()) {
	t.Helper()
	client := clientA
	if account.Subject.Namespace() == "tenant-b" {
		client = clientB
	}
	k.trust(t, client, "nobody")
	return func() { k.trust(t, client, rig.SubjectClaim(account)) }
}
