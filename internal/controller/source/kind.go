package source

import (
	"context"

	"github.com/lanyard-dev/lanyard/internal/artifact/store"
	"github.com/lanyard-dev/lanyard/internal/controller/access"
	"github.com/lanyard-dev/lanyard/internal/controller/object"
	"github.com/lanyard-dev/lanyard/internal/kinds"
)

// Kind has the parts that differ between kinds of sources. O is the pointer to its API type, P the
// plan that it makes of a spec.
type Kind[O kinds.Keeper, P any] interface {
	// Decide makes the plan of the spec for the call's identity, or refuses the spec with an error
	// of [object.Invalid] or another error that Explain knows. It reads no clock and makes no
	// request. It relies on no rule of the schema: an object may be older than the rule.
	Decide(o O, call Call) (P, error)
	// Fetch carries out the plan and changes o's status accordingly, except for conditions. After
	// an error the status keeps what was found before. ctx ends with the object's timeout.
	Fetch(ctx context.Context, o O, plan P, call Call) error
	// Explain knows the failures of this kind alone, as object.Definition's does.
	Explain(err error) (object.Failure, bool)
}

// Call is the permission for one reconciliation's calls.
type Call struct {
	access.Call

	// Owner is the object as the store knows it.
	Owner store.Object
	// Stored reports whether the artifact in the status is in the store, and whole.
	Stored bool
}
