package gcp_test

import (
	"strings"
	"testing"

	"github.com/lanyard-dev/lanyard/auth"
	"github.com/lanyard-dev/lanyard/auth/cache"
	"github.com/lanyard-dev/lanyard/auth/gcp"
	"github.com/lanyard-dev/lanyard/auth/internal/rig"
	"github.com/lanyard-dev/lanyard/auth/providertest"
	cloudgcp "github.com/lanyard-dev/lanyard/cloudtest/gcp"
)

// mode is a setup for the conformance tests. It selects the kind of subject, the cluster and the
// principal.
type mode struct {
	subject   func(namespace, name string) (auth.Subject, error)
	elsewhere bool // not on GKE, but with a workload identity provider
	direct    bool // the subject itself is the principal, without a service account
}

func TestConformance(t *testing.T) {
	for name, m := range map[string]mode{
		"GKE, service account":                    {subject: auth.ServiceAccount},
		"GKE, direct":                             {subject: auth.ServiceAccount, direct: true},
		"provider, service account":               {subject: auth.ServiceAccount, elsewhere: true},
		"provider, direct":                        {subject: auth.ServiceAccount, elsewhere: true, direct: true},
		"WorkloadIdentity with a service account": {subject: auth.WorkloadIdentity, elsewhere: true},
		"WorkloadIdentity, direct":                {subject: auth.WorkloadIdentity, elsewhere: true, direct: true},
	} {
		t.Run(name, func(t *testing.T) { providertest.Run(t, m.harness) })
	}
}

func (m mode) harness(t *testing.T) *providertest.Harness {
	t.Helper()
	some, err := m.subject("tenant-a", "any")
	rig.Must(t, err)
	w := newWorldOf(t, rig.IssuerOf(some, issuerURL))
	account := func(tenant string) auth.Account {
		subject, err := m.subject(tenant, tenant+"-gcs-sa")
		rig.Must(t, err)
		a := auth.Account{Subject: subject, UID: "7c1f4d0e-" + tenant}
		identity := ""
		if m.elsewhere {
			identity = providerName
		}
		if !m.direct {
			email := w.accountFor(t, tenant, principal(a, m.elsewhere))
			if identity = email; m.elsewhere {
				identity = providerName + "/serviceAccounts/" + email
			}
		}
		return withIdentity(a, identity)
	}
	harness := &providertest.Harness{
		Provider: w.gcp,
		A:        account("tenant-a"), B: account("tenant-b"),
		WithIdentity:      withIdentity,
		MalformedIdentity: "tenant-a@" + projectID + ".iam.gserviceaccount.com.evil.example",
		// A ServiceAccount needs no identity: without annotations, it is itself a principal. A
		// WorkloadIdentity needs one: it must name a workload identity provider.
		IdentityOptional: !m.elsewhere || isServiceAccount(t, m), Direct: m.direct,
		Prove: providertest.Signed(w.SignBadly),
		NewCache: func(t *testing.T) providertest.Cache {
			t.Helper()
			return cache.New(cache.Options{MaxSize: 100})
		},
		Cloud: knobs{w, m},
		Whose: w.whose,
		Principal: func(account auth.Account) (string, error) {
			if m.direct {
				return principal(account, m.elsewhere), nil
			}
			identity, err := w.gcp.GetIdentity(account)
			return "serviceAccount:" + identity[strings.LastIndex(identity, "/")+1:], err
		},
		Secrets:         func(token auth.Token) []string { return []string{token.(*gcp.Token).Secret.Reveal()} },
		ImageRepository: imageA,
		Unsupported: map[string]auth.Option{
			"STS endpoint": auth.WithSTSEndpoint("https://sts.googleapis.com"),
			"STS region":   auth.WithSTSRegion(location),
		},
		Variations: map[string][]auth.Option{
			"image":            {auth.WithImageRepository(imageA)},
			"scope":            {auth.WithScopes("https://www.googleapis.com/auth/devstorage.read_only")},
			"two scopes":       {auth.WithScopes("https://www.googleapis.com/auth/devstorage.read_only", "https://www.googleapis.com/auth/pubsub")},
			"scope and image":  {auth.WithScopes("https://www.googleapis.com/auth/devstorage.read_only"), auth.WithImageRepository(imageA)},
			"the other scopes": {auth.WithScopes("https://www.googleapis.com/auth/pubsub")},
		},
	}
	if !m.direct {
		harness.TrustStage = auth.StageImpersonation
	}
	return harness
}

func isServiceAccount(t *testing.T, m mode) bool {
	t.Helper()
	subject, err := m.subject("a", "a")
	rig.Must(t, err)
	return subject.Kind() == auth.KindServiceAccount
}

// withIdentity sets the account's attributes from the canonical form of an identity.
func withIdentity(account auth.Account, identity string) auth.Account {
	accountName, providerAttribute := gcp.ServiceAccountAnnotation, gcp.ProviderAnnotation
	if account.Subject.Kind() != auth.KindServiceAccount {
		accountName, providerAttribute = gcp.ServiceAccountField, gcp.ProviderField
	}
	provider, email, both := strings.Cut(identity, "/serviceAccounts/")
	if !both && strings.Contains(identity, "@") {
		provider, email = "", identity
		if account.Subject.Kind() != auth.KindServiceAccount {
			// Without a provider, the error would not be about the malformed address.
			provider = providerName
		}
	}
	return rig.WithAttribute(rig.WithAttribute(account, accountName, email), providerAttribute, provider)
}

// knobs implements [providertest.Cloud] with the local cloud.
type knobs struct {
	*world

	mode mode
}

func (k knobs) Exchanges() int { return k.exchanges() }

func (k knobs) Trouble(t *testing.T, trouble providertest.Trouble) (end func()) {
	t.Helper()
	if trouble == providertest.Unreachable {
		// The fault affects only new connections. So close the open ones.
		k.gcp.Close()
	}
	return k.Rig.Trouble(t, trouble, cloudgcp.ServiceSTS, opSTS, "sts.googleapis.com")
}

// Revoke ends the cloud's trust in the account's subject:
//
//   - If the subject impersonates a service account, Revoke empties that service account's policy.
//   - If the subject itself is the principal on GKE, Revoke deletes the cluster.
//   - If the subject itself is the principal elsewhere, Revoke disables the workload identity
//     provider.
func (k knobs) Revoke(t *testing.T, account auth.Account) (restore func()) {
	t.Helper()
	cloud := k.Cloud.GCP()
	switch namespace := account.Subject.Namespace(); {
	case !k.mode.direct:
		k.accountFor(t, namespace)
		return func() { k.accountFor(t, namespace, principal(account, k.mode.elsewhere)) }
	case k.mode.elsewhere:
		rig.Must(t, cloud.PutPool(projectID, pool(k.Issuer.URL(), true)))
		return func() { rig.Must(t, cloud.PutPool(projectID, pool(k.Issuer.URL(), false))) }
	default:
		rig.Must(t, cloud.DeleteCluster(projectID, location, clusterName))
		return func() { rig.Must(t, cloud.PutCluster(projectID, cluster())) }
	}
}
