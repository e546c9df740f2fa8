package objects

import (
	"fmt"

	"github.com/spf13/cobra"

	identityv1 "github.com/lanyard-dev/lanyard/api/identity/v1alpha1"
	"github.com/lanyard-dev/lanyard/api/meta"
	"github.com/lanyard-dev/lanyard/internal/cli/cluster"
	"github.com/lanyard-dev/lanyard/internal/cli/frame"
	"github.com/lanyard-dev/lanyard/internal/report"
)

func newRenew(std frame.IO) *cobra.Command {
	return newOperation(&cobra.Command{
		Use:   "renew KIND/NAME... | --all",
		Short: "Replace tokens of WorkloadIdentities now, and wait for the new ones",
		Long: `Replace tokens of WorkloadIdentities now, and wait for the new ones.

The command sets the annotation ` + meta.OperationAnnotation + `. The credential in the Secret of a binding is then replaced. For
another object that names a WorkloadIdentity, the controller drops the tokens of this identity. The controller removes the
annotation when it has done so.

The exit status is 0 only if all objects are ready afterwards.`,
		Example: `  # The credential in the Secret of a binding
  lanyard renew binding/cloudidentity

  # All objects of a tenant that act as a WorkloadIdentity
  lanyard renew --all -n tenant-a`,
	}, std, func() operation {
		return operation{
			done:  "renewal is requested",
			fits:  func(o report.Object) bool { return canRenew(o) == nil },
			check: canRenew,
			patch: fmt.Appendf(nil, `{"metadata":{"annotations":{%q:%q}}}`, meta.OperationAnnotation, meta.OperationRenewToken),
			look: func(o report.Object) outlook {
				now := readiness(o)
				if o.GetAnnotations()[meta.OperationAnnotation] == meta.OperationRenewToken {
					now.settled = false
				}
				return now
			},
		}
	})
}

// canRenew refuses an object if the controller would not renew its credential. The controller
// renews only the credentials of bindings, and of other objects that name a WorkloadIdentity. For a
// suspended object, it renews nothing.
func canRenew(o report.Object) error {
	switch {
	case o.Suspended():
		return fmt.Errorf("%[1]s is suspended; lanyard resume %[1]s resumes it", cluster.TargetOf(o))
	case o.Kind.Kind != identityv1.WorkloadIdentityBindingKind && o.Kind.WorkloadIdentity(o.Resource) == "":
		return fmt.Errorf("%s names no WorkloadIdentity", cluster.TargetOf(o))
	}
	return nil
}
