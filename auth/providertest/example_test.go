package providertest_test

import (
	"testing"

	"github.com/lanyard-dev/lanyard/auth"
	"github.com/lanyard-dev/lanyard/auth/azure"
	"github.com/lanyard-dev/lanyard/auth/cache"
	"github.com/lanyard-dev/lanyard/auth/providertest"
)

// The author of a provider writes a harness and runs the suite in a test. It needs a test to run
// in, so that this example is compiled and not run; auth/azure's conformance_test.go is a whole
// one.
func ExampleRun() {
	TestConformance := func(t *testing.T) { //nolint:thelper // it is the test
		providertest.Run(t, func(t *testing.T) *providertest.Harness {
			t.Helper()
			var (
				provider     *azure.Provider    // one's own
				cloud        providertest.Cloud // counts exchanges, and makes trouble: package cloudtest has the parts
				sign         func(auth.Account, auth.ProofRequest, providertest.Defect) (string, error)
				tenantA      auth.Account // whom the cloud trusts with an identity
				tenantB      auth.Account // and another
				withIdentity func(account auth.Account, identity string) auth.Account
			)
			return &providertest.Harness{
				Provider: provider, Cloud: cloud, A: tenantA, B: tenantB, Prove: providertest.Signed(sign), WithIdentity: withIdentity,
				MalformedIdentity: "not a GUID",
				NewCache:          func(*testing.T) providertest.Cache { return cache.New(cache.Options{MaxSize: 100}) },
				Secrets:           func(token auth.Token) []string { return []string{token.(*azure.Token).Secret.Reveal()} },
				Unsupported:       map[string]auth.Option{"STS region": auth.WithSTSRegion("westeurope")},
				Variations:        map[string][]auth.Option{"scope": {auth.WithScopes(azure.DevOpsScope)}},
			}
		})
	}
	_ = TestConformance
	// Output:
}
