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
// Two kinds of objects need more. If the cloud is known only after the object's content was read,
// [ResolveAt] decides for each cloud. If the object uses the identity of another object, the fields
// are those of the other object, with a [Reference].
//
// Some combinations of identity fields are refused. The schema of a kind refuses them when an
// object is written. This package refuses them again, because an object may be older than a rule of
// the schema, or stored without the schema. The schema and this package follow the truth table
// testdata/exclusions.yaml.
package spec
