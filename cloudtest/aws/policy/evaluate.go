package policy

import (
	"fmt"
	"slices"
	"strings"
)

// Principal is the caller of a request, with each name by which a policy document can refer to the
// caller.
type Principal struct {
	// Account is the caller's account ID. It is empty for a federated caller.
	Account string
	// ARNs are all ARNs of the caller. A role session has its own ARN and the role's ARN. A user
	// has one ARN.
	ARNs []string
	// Federated is the ARN of the identity provider that authenticated a federated caller. It is
	// empty for AWS principals.
	Federated string
}

// Request is a request that a document allows or denies.
type Request struct {
	// Principal is the caller. Documents of the kind [Permissions] do not use it.
	Principal Principal
	// Action is service:Operation.
	Action string
	// Resource is the ARN of the resource that the action is for. Trust policies and repositories'
	// policies do not use Resource.
	Resource string
	// Context has the values of the condition keys.
	Context Context
}

// Effect is the result of evaluating one or several documents for a request.
type Effect int

// The possible effects.
const (
	// NoMatch: no statement applies. The request is denied unless another document allows it.
	NoMatch Effect = iota
	// Allow: a statement allows the request, and no statement denies it.
	Allow
	// Deny: a statement denies the request, even if other statements or documents allow it.
	Deny
)

// String names the effect.
func (e Effect) String() string {
	switch e {
	case Allow:
		return "allow"
	case Deny:
		return "explicit deny"
	case NoMatch:
		return "no match"
	default:
		return fmt.Sprintf("Effect(%d)", int(e))
	}
}

// Decision is an effect and its reason.
type Decision struct {
	// Effect is the result of the evaluation.
	Effect Effect
	// Reason names the statement that allows or denies. For NoMatch, it names a condition that does
	// not hold, if there is one.
	Reason string
	// ByAccount is true if the document allows the action, but no statement that allows it names
	// the principal itself. These statements name only the principal's account, or everyone. The
	// principal's own policies must then allow the action too. Source: IAM User Guide,
	// "Cross-account policy evaluation logic".
	ByAccount bool
}

// Evaluate evaluates the document for a request. The zero request matches no statement.
func (d Document) Evaluate(r Request) Decision {
	result := Decision{Effect: NoMatch, Reason: "no statement is for this action, resource and principal"}
	for i, s := range d.statements {
		named, matched := s.concerns(d.kind, r)
		if !matched {
			continue
		}
		failed := slices.IndexFunc(s.conditions, func(c condition) bool { return !c.holds(r.Context) })
		label := s.label(i)
		switch {
		case failed >= 0:
			if result.Effect == NoMatch && !s.deny {
				result.Reason = label + ": " + s.conditions[failed].explain(r.Context)
			}
		case s.deny:
			return Decision{Effect: Deny, Reason: label + " denies"}
		case result.Effect != Allow || result.ByAccount:
			result = Decision{Effect: Allow, Reason: label + " allows", ByAccount: !named}
		}
	}
	return result
}

func (s statement) label(i int) string {
	if s.sid != "" {
		return fmt.Sprintf("statement %q", s.sid)
	}
	return fmt.Sprintf("statement %d", i)
}

// concerns reports whether the statement's action, resource and principal match the request. It
// ignores the statement's conditions. The result "named" is true if the statement names the
// principal itself. It is false if the statement names only the principal's account, or everyone.
func (s statement) concerns(kind Kind, r Request) (named, matched bool) {
	action := strings.ToLower(r.Action)
	if action == "" || !slices.ContainsFunc(s.actions, func(p string) bool { return glob(p, action) }) {
		return false, false
	}
	if kind.hasResources() && !slices.ContainsFunc(s.resources, func(p string) bool { return r.Resource != "" && globARN(p, r.Resource) }) {
		return false, false
	}
	if !kind.hasPrincipals() {
		return true, true
	}
	return s.principals.match(r.Principal, s.deny)
}

func (p principals) match(who Principal, deny bool) (named, matched bool) {
	if who.Federated != "" {
		// In an Allow, "*" means AWS principals only. In a Deny, it also means federated
		// principals.
		return true, slices.Contains(p.federated, who.Federated) || (deny && p.anyone)
	}
	if slices.ContainsFunc(p.aws, func(a string) bool { return slices.Contains(who.ARNs, a) }) {
		return true, true
	}
	if who.Account == "" {
		return false, deny && p.anyone
	}
	byAccount := slices.ContainsFunc(p.aws, func(a string) bool {
		return a == who.Account || (strings.HasSuffix(a, ":root") && strings.Split(a, ":")[4] == who.Account)
	})
	return false, byAccount || p.anyone
}

// EvaluateAll evaluates several documents. If one document denies, the result is Deny. Otherwise,
// if one document allows, the result is Allow.
func EvaluateAll(docs []Document, r Request) Decision {
	result := Decision{Effect: NoMatch, Reason: "no policy is attached"}
	for _, d := range docs {
		switch one := d.Evaluate(r); one.Effect {
		case Deny:
			return one
		case Allow:
			if result.Effect != Allow || result.ByAccount {
				result = one
			}
		case NoMatch:
			if result.Effect == NoMatch {
				result = one
			}
		}
	}
	return result
}
