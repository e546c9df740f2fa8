// Package providertest is what every [auth.Provider] must do, as tests: run it against a provider that is wired to a local
// cloud which verifies.
//
//	func TestConformance(t *testing.T) {
//		providertest.Run(t, func(t *testing.T) *providertest.Harness { … })
//	}
//
// Run it once for each kind of subject that can be proven: nothing in a provider may depend on who vouches for a subject.
package providertest
