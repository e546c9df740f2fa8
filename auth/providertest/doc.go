// Package providertest is a test suite that every [auth.Provider] must pass. Run it with a provider
// and a local cloud that verifies proofs.
//
//	func TestConformance(t *testing.T) {
//		providertest.Run(t, func(t *testing.T) *providertest.Harness { … })
//	}
//
// Run it once for each kind of subject. The [auth.Prover] depends on the kind, and a provider must
// work with every Prover.
package providertest
