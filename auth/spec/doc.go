// Package spec decides whose credential an object gets. Its input is the identity fields of a spec,
// which a tenant writes, and the rules of the controller, which an administrator sets. Its output
// is one [Identity] or one refusal. Only this package interprets these fields:
//
//	identity, err := spec.Resolve(ctx, fields, rules)
//	switch identity.Source {
//	case spec.Cloud:
//		token, err := auth.GetToken(ctx, providers[identity.Provider], identity.Option(accounts), …)
//	case spec.PullSecrets: // …
//	}
//
// The schema of a kind refuses the same combinations when an object is written. This package
// refuses them again, because an object may be older than a rule of the schema, or stored without
// the schema. testdata/exclusions.yaml is the truth table of the schema and of this package.
package spec
