// Package spec decides whose credential an object gets. A tenant writes the identity fields of the
// object's spec. An administrator sets the rules of the controller. From both follows one
// [Identity] or one refusal. Only this package interprets the identity fields:
//
//	identity, err := spec.Resolve(ctx, fields, rules)
//	switch identity.Source {
//	case spec.Cloud:
//		token, err := auth.GetToken(ctx, providers[identity.Provider], identity.Option(accounts), …)
//	case spec.PullSecrets: // …
//	}
//
// Two kinds of objects need more. If the cloud is known only after the object's content was read,
// [ResolveAt] decides for each cloud. If the object uses the identity of another object, pass the
// fields of the other object, with a [Reference].
//
// Some combinations of identity fields are refused. The schema of a kind refuses them when an
// object is written. This package refuses them again: the object may be older than a rule of the
// schema, or stored without the schema. The schema and this package follow the truth table
// testdata/exclusions.yaml.
package spec
