package tenant

import (
	"context"

	"github.com/lanyard-dev/lanyard/auth"
	"github.com/lanyard-dev/lanyard/auth/spec"
	"github.com/lanyard-dev/lanyard/internal/controller/object"
	"github.com/lanyard-dev/lanyard/internal/kinds"
)

// Toolkit has the parts that all kinds of the API group toolkit.lanyard.dev share. The spec of
// their objects has a schedule and identity fields. The status has the identity that was used. O is
// the pointer to the API type of the objects.
type Toolkit[O kinds.Tenant] struct {
	// Entry is the kind's entry in the table of kinds. Required.
	Entry kinds.Kind
	// Shared has the rules for identity fields. Required.
	Shared *Shared
}

// View returns the schedule of an object, as a copy: changes of the object do not change the view.
func (Toolkit[O]) View(o O) object.View {
	schedule := o.GetSchedule()
	return object.View{
		Suspend: schedule.Suspend, Interval: schedule.Interval.Duration, Timeout: schedule.Timeout.DeepCopy(),
		Renewable: o.GetAccess().WorkloadIdentityName != "",
	}
}

// Subject returns the subject in the identity fields of an object, or the default subject.
func (t Toolkit[O]) Subject(o O) auth.Subject { return t.Shared.Rules.Named(t.Entry.Fields(o)) }

// Identify turns the identity fields of an object into an identity. The error of a refusal comes
// from [spec.Resolve].
func (t Toolkit[O]) Identify(ctx context.Context, o O) (spec.Identity, error) {
	return spec.Resolve(ctx, t.Entry.Fields(o), t.Shared.Rules)
}

// Report returns a short description of the result in an object's status. If the spec was refused,
// no identity was granted, so Report removes the identity from the status.
func (t Toolkit[O]) Report(_ context.Context, o O, outcome object.Outcome) (found string, err error) {
	if outcome.Refused {
		o.GetFetchStatus().Identity = nil
	}
	if found := t.Entry.Found(o); found != nil {
		return found.Text, nil
	}
	return "", nil
}

// Finalize does nothing, because no data is stored outside of the object.
func (Toolkit[O]) Finalize(context.Context, O) error { return nil }
