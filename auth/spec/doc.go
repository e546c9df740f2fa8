// Package spec says whose credential an object gets. It turns the identity fields of a spec, which a tenant writes, and the
// rules of this controller, which an administrator sets, into one [Identity] or one refusal. It is the only place that
// interprets these fields:
//
//	identity, err := spec.Resolve(ctx, fields, rules)
//	switch identity.Source {
//	case spec.Cloud:
//		token, err := auth.GetToken(ctx, providers[identity.Provider], identity.Option(accounts), …)
//	case spec.PullSecrets: // …
//	}
//
// The schema of a kind refuses the same combinations when an object is written. They are refused here again because objects
// are stored before rules are, and around them; testdata/exclusions.yaml is the truth table of both.
package spec
