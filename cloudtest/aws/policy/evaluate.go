package policy

import (
	"fmt"
	"slices"
	"strings"
)

// Principal is who asks, in every name by which a document may mean it.
type Principal struct {
	// Account is the principal's account ID, empty for a federated one.
	Account string
	// ARNs are all ARNs that stand for the principal: a role session's own and its role's; a user's.
	ARNs []string
	// Federated is the ARN of the identity provider that vouches for it; empty for AWS principals.
	Federated string
}

// Request is a request that a document allows or denies.
type Request struct {
	// Principal is who asks. Identity policies do not look at it.
	Principal Principal
	// Action is service:Operation.
	Action string
	// Resource is the ARN of what is acted on. Trust policies and repositories' policies do not
	// look at it.
	Resource string
	// Context holds the condition keys.
	Context Context
}

// Effect is the answer of one or several documents to a request.
type Effect int

// The verdicts.
const (
	// NoMatch: no statement applies, which means no unless another document allows.
	NoMatch Effect = iota
	// Allow: a statement allows, none denies.
	Allow
	// Deny: a statement denies, whatever others say.
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

// Decision is an effect with its reason.
type Decision struct {
	// Effect is the verdict.
	Effect Effect
	// Reason names the statement that decided or, for NoMatch, the condition that came nearest.
	Reason string
	// ByAccount is set if the effect is Allow and the document names only the principal's account
	// (or everyone), not the principal. The principal's own policies must then allow the action
	// too. Source: IAM User Guide, "Cross-account policy evaluation logic".
	ByAccount bool
}

// Evaluate asks the document. The zero request matches nothing.
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

// concerns reports whether the statement, its conditions apart, is about the request, and whether
// it names the principal itself.
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
		// "*" means AWS principals. It does not let a federated one in, but it does keep it out.
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

// EvaluateAll asks several documents as one: a deny anywhere wins, else one allow is enough.
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
