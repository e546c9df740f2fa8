package providertest_test

import (
	"testing"

	"github.com/lanyard-dev/lanyard/auth"
	"github.com/lanyard-dev/lanyard/auth/azure"
	"github.com/lanyard-dev/lanyard/auth/cache"
	"github.com/lanyard-dev/lanyard/auth/providertest"
)

// The author of a provider writes a harness and runs the suite in a test. This example is compiled
// but not run, because the suite needs a test. For a complete harness see auth/azure's
// conformance_test.go.
func ExampleRun() {
	TestConformance := func(t *testing.T) { //nolint:thelper // it is the test
		providertest.Run(t, func(t *testing.T) *providertest.Harness {
			t.Helper()
			var (
				provider     *azure.Provider    // the provider under test
				cloud        providertest.Cloud // counts exchanges, injects faults; see cloudtest
				sign         func(auth.Account, auth.ProofRequest, providertest.Defect) (string, error)
				tenantA      auth.Account // the cloud gives this account one identity
				tenantB      auth.Account // the cloud gives this account another identity
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
