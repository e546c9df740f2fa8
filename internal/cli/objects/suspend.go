package objects

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/lanyard-dev/lanyard/api/meta"
	"github.com/lanyard-dev/lanyard/internal/cli/cluster"
	"github.com/lanyard-dev/lanyard/internal/cli/frame"
	"github.com/lanyard-dev/lanyard/internal/kinds"
	"github.com/lanyard-dev/lanyard/internal/report"
)

func newSuspend(std frame.IO) *cobra.Command {
	return newOperation(&cobra.Command{
		Use:   "suspend KIND/NAME... | --all",
		Short: "Suspend objects: nothing is fetched or applied until they are resumed",
		Long: `Suspend objects: nothing is fetched or applied until they are resumed.

The command sets spec.suspend to true, and waits until the controller has taken note: then no fetch of the object is under
way. The last artifact or scan stays, and so do applied objects. An object that is suspended already stays so.`,
		Example: `  # Keep the artifact of today
  lanyard suspend ocirepository/app

  # All objects of a tenant
  lanyard suspend --all -n tenant-a`,
	}, std, func() operation {
		return operation{
			done:  "spec.suspend is true",
			fits:  func(o report.Object) bool { return !o.Suspended() && canSuspend(o) == nil },
			check: canSuspend,
			patch: []byte(`{"spec":{"suspend":true}}`),
			look: func(o report.Object) outlook {
				if !o.Suspended() {
					return outlook{message: "it was resumed meanwhile", failed: true}
				}
				ready := readyOf(o)
				if ready == nil || ready.Reason != meta.ReasonSuspended {
					return outlook{}
				}
				return outlook{message: ready.Message, settled: true}
			},
		}
	})
}

func newResume(std frame.IO) *cobra.Command {
	return newOperation(&cobra.Command{
		Use:   "resume KIND/NAME... | --all",
		Short: "Resume suspended objects, and wait until they are ready",
		Long: `Resume suspended objects, and wait until they are ready.

The command sets spec.suspend to false. The controller then reconciles the object at once. The command waits until the
object is ready, and shows the reason while it is not.

The exit status is 0 only if all objects are ready.`,
		Example: `  lanyard resume ocirepository/app

  # All suspended objects of a tenant
  lanyard resume --all -n tenant-a`,
	}, std, func() operation {
		return operation{
			done:  "spec.suspend is false",
			fits:  func(o report.Object) bool { return o.Suspended() },
			check: canSuspend,
			patch: []byte(`{"spec":{"suspend":false}}`),
			look:  readiness,
		}
	})
}

// canSuspend refuses a binding: if it were suspended, its credential would expire, and services
// would refuse the programs that use the credential.
func canSuspend(o report.Object) error {
	if _, ok := o.Resource.(kinds.Tenant); !ok {
		return fmt.Errorf("%s cannot be suspended: delete the binding if nobody is to have its credential", cluster.TargetOf(o))
	}
	return nil
}
