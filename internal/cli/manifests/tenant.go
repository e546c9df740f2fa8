package manifests

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/lanyard-dev/lanyard/internal/cli/frame"
)

// tenantOptions are the flags of the command tenant. They say how the chart is installed.
type tenantOptions struct {
	release, namespace, account string
	withIdentities              bool
	identityAccount             string
	secretNamespace             string
}

func newTenant(std frame.IO) *cobra.Command {
	var o tenantOptions
	c := &cobra.Command{
		Use:   "tenant NAMESPACE",
		Short: "Print what Lanyard's controllers need in a tenant's namespace",
		Long: `Print what Lanyard's controllers need in a tenant's namespace, for the template that makes namespaces.

It is a RoleBinding of the chart's ClusterRole for tenants. The binding allows lanyard-controller to request tokens of the
namespace's ServiceAccounts and WorkloadIdentities, and to read the Secrets that objects name. With --identity-controller,
a second RoleBinding allows lanyard-identity-controller what the chart's values identity.awsIdentities and identity.bindings
need. Both replace the namespace's entry in the chart's value rbac.tenantNamespaces, which is then an empty list. The
command asks no cluster.`,
		Example: `  lanyard tenant tenant-d | kubectl apply -f -

  # The chart is installed with identity.awsIdentities=true or identity.bindings=true
  lanyard tenant tenant-d --identity-controller | kubectl apply -f -

  # For a policy that generates objects with each new namespace
  lanyard tenant '{{request.object.metadata.name}}' > lanyard-tenant.yaml`,
	}
	c.Flags().StringVar(&o.release, "fullname", frame.Name, "the chart's value fullnameOverride")
	c.Flags().StringVar(&o.namespace, "release-namespace", frame.ReleaseNamespace, "namespace of Lanyard's release")
	c.Flags().StringVar(&o.account, "service-account", "", "the chart's value serviceAccount.name (default: FULLNAME-controller)")
	c.Flags().BoolVar(&o.withIdentities, "identity-controller", false, "print the RoleBinding of lanyard-identity-controller too")
	c.Flags().StringVar(&o.identityAccount, "identity-service-account", "",
		"the chart's value identityController.serviceAccount.name (default: FULLNAME-identity-controller)")
	c.Flags().StringVar(&o.secretNamespace, "identity-secret-namespace", "",
		"the chart's value identity.secretNamespace (default: FULLNAME-identities)")
	frame.CompleteNothing(c, "fullname", "release-namespace", "service-account", "identity-service-account", "identity-secret-namespace")
	c.Args = func(_ *cobra.Command, args []string) error { return o.check(args) }
	c.ValidArgsFunction = cobra.NoFileCompletions
	c.RunE = func(_ *cobra.Command, args []string) error { return frame.WriteYAML(std.Out, o.bindings(args[0])...) }
	return c
}

// check returns an error unless args is one namespace that may belong to a tenant. It also checks
// the flags.
func (o *tenantOptions) check(args []string) error {
	if len(args) != 1 {
		return errors.New("name one namespace")
	}
	namespace := args[0]
	switch {
	case o.identityAccount != "" && !o.withIdentities:
		return errors.New("--identity-service-account needs --identity-controller")
	case slices.Contains([]string{o.namespace, metav1.NamespaceSystem, cmp.Or(o.secretNamespace, o.release+"-identities")}, namespace):
		return fmt.Errorf("%s is no tenant's namespace: "+
			"its Secrets and accounts would open the cluster to whoever writes objects there", namespace)
	case strings.Contains(namespace, "{{"): // a template's variable, not yet replaced
		return nil
	case len(validation.IsDNS1123Label(namespace)) > 0:
		return fmt.Errorf("%q is not the name of a namespace: %s", namespace, validation.IsDNS1123Label(namespace)[0])
	}
	return nil
}

// bindings returns the RoleBindings of a tenant's namespace. The chart
// makes the same for each namespace in its value rbac.tenantNamespaces.
func (o *tenantOptions) bindings(namespace string) []any {
	all := []any{o.binding(namespace, o.release+"-controller", o.account)}
	if o.withIdentities {
		all = append(all, o.binding(namespace, o.release+"-identity-controller", o.identityAccount))
	}
	return all
}

// binding returns the RoleBinding that lets a program work in a tenant's namespace. The program's
// ServiceAccount has the program's name, unless the chart's values say otherwise.
func (o *tenantOptions) binding(namespace, program, account string) *rbacv1.RoleBinding {
	return &rbacv1.RoleBinding{
		TypeMeta:   metav1.TypeMeta{APIVersion: rbacv1.SchemeGroupVersion.String(), Kind: "RoleBinding"},
		ObjectMeta: metav1.ObjectMeta{Name: program + "-tenant", Namespace: namespace},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: program + "-tenant"},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Name: cmp.Or(account, program), Namespace: o.namespace}},
	}
}
