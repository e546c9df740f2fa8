package source

import (
	"context"

	"github.com/lanyard-dev/lanyard/internal/artifact/store"
	"github.com/lanyard-dev/lanyard/internal/controller/access"
	"github.com/lanyard-dev/lanyard/internal/controller/object"
	"github.com/lanyard-dev/lanyard/internal/kinds"
)

// Kind has the parts that differ between kinds of sources. O is the pointer to the kind's API type,
// P the type of the plan that Decide makes.
type Kind[O kinds.Keeper, P any] interface {
	// Decide makes the plan of the spec for the call's identity, or refuses the spec. To refuse
	// it, Decide returns an error from [object.Invalid], or one for which Explain returns a
	// failure. Decide must not read a clock or make a request. It must not rely on a rule of the
	// schema: an object may be older than the rule.
	Decide(o O, call Call) (P, error)
	// Fetch carries out the plan and changes o's status accordingly, except for conditions. If it
	// returns an error, it leaves the earlier results in the status. ctx ends with the object's
	// timeout.
	Fetch(ctx context.Context, o O, plan P, call Call) error
	// Explain returns the failure for an error that only this kind has. It follows the rules of
	// object.Definition.Explain.
	Explain(err error) (object.Failure, bool)
}

// Call has the identity and the state for one reconciliation.
type Call struct {
	access.Call

	// Owner identifies the object in the store.
	Owner store.Object
	// Stored reports whether the artifact in the status is in the store and undamaged.
	Stored bool
}
