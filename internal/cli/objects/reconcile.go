package objects

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/lanyard-dev/lanyard/api/meta"
	"github.com/lanyard-dev/lanyard/internal/cli/cluster"
	"github.com/lanyard-dev/lanyard/internal/cli/frame"
	"github.com/lanyard-dev/lanyard/internal/report"
)

func newReconcile(std frame.IO) *cobra.Command {
	return newOperation(&cobra.Command{
		Use:   "reconcile KIND/NAME... | --all",
		Short: "Reconcile objects now, and wait until they are ready",
		Long: `Reconcile objects now, and wait until they are ready.

The command sets the annotation ` + meta.ReconcileRequestedAnnotation + `. The controller then fetches again, even if an earlier
attempt failed and its pause is not over. The command waits until the controller has handled the request and the object
is ready. It shows the reason while the object is not.

The exit status is 0 only if all objects are ready. A suspended object is refused, and --all leaves it out.`,
		Example: `  # Fetch now what was pushed just now
  lanyard reconcile ocirepository/app

  # All objects of a tenant, for a script
  lanyard reconcile --all -n tenant-a --timeout 1m -o json`,
	}, std, func() operation {
		return operation{
			done: "reconciliation is requested",
			fits: func(o report.Object) bool { return !o.Suspended() },
			check: func(o report.Object) error {
				if o.Suspended() {
					return fmt.Errorf("%[1]s is suspended; lanyard resume %[1]s resumes and reconciles it", cluster.TargetOf(o))
				}
				return nil
			},
			// Remove Flux's annotation: if it had a request with a later time, that request would
			// win over this one.
			patch: fmt.Appendf(nil, `{"metadata":{"annotations":{%q:%q,%q:null}}}`,
				meta.ReconcileRequestedAnnotation, time.Now().UTC().Format(time.RFC3339Nano), meta.FluxReconcileRequestedAnnotation),
			look: func(o report.Object) outlook {
				// The annotation may have a later request, from another client. If the controller
				// has handled that request, it has also handled this one.
				if o.Suspended() || o.GetStatus().LastHandledReconcileAt == o.GetAnnotations()[meta.ReconcileRequestedAnnotation] {
					return readiness(o)
				}
				return outlook{}
			},
		}
	})
}
