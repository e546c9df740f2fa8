package manifests

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	identityv1 "github.com/lanyard-dev/lanyard/api/identity/v1alpha1"
	tokenv1 "github.com/lanyard-dev/lanyard/api/token/v1alpha1"
	"github.com/lanyard-dev/lanyard/internal/cli/frame"
	"github.com/lanyard-dev/lanyard/internal/keyring"
	"github.com/lanyard-dev/lanyard/internal/kinds"
)

func newHub(std frame.IO) *cobra.Command {
	c := &cobra.Command{
		Use:   "hub",
		Short: "Let clusters, the spokes, use WorkloadIdentities of this cluster, the hub",
		Long: `Let clusters, the spokes, use WorkloadIdentities of this cluster, the hub.

Each spoke has an account of its own at the hub, and gets credentials of the identities that this account is granted.`,
		Example: `  lanyard hub grant eu-1 --namespace eu-1-team-a | kubectl apply -f -`,
		RunE:    func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	c.AddCommand(newHubGrant(std))
	return c
}

// grantOptions are the argument and the flags of "lanyard hub grant".
type grantOptions struct {
	spoke, user             string
	namespaces, identities  []string
	spokeNamespace, release string
}

func newHubGrant(std frame.IO) *cobra.Command {
	var o grantOptions
	c := &cobra.Command{
		Use:   "grant SPOKE --namespace NAMESPACE",
		Short: "Print what a spoke needs at the hub: an account, and its rights",
		Long: `Print what a spoke needs at the hub: an account, and its rights.

The account may read the WorkloadIdentities of the namespaces and the public keys of the issuer, and request tokens of the
identities, of all or of those that --identity names. It may do nothing else, and reach no identity of another spoke. The
name of the spoke is the claim lanyard.dev.cluster.id of its tokens, if the chart's value issuer.spokeUserPrefix at the hub
is what the user names of spokes begin with: system:serviceaccount:<--spoke-namespace>:

The standard error says how to make the spoke's kubeconfig. The command asks no cluster.`,
		Example: `  # Once per hub: a namespace for the accounts of spokes
  kubectl create namespace lanyard-spokes

  # Namespaces of the hub that are for one spoke
  lanyard hub grant eu-1 --namespace eu-1-team-a --namespace eu-1-team-b | kubectl apply -f -

  # Single identities of a namespace that spokes share
  lanyard hub grant eu-1 --namespace shared --identity backup | kubectl apply -f -

  # The hub's API server trusts the spoke's issuer, so that no token needs to be copied
  lanyard hub grant eu-1 --namespace eu-1-team-a --user spoke:eu-1 | kubectl apply -f -`,
	}
	c.Flags().StringArrayVarP(&o.namespaces, "namespace", "n", nil,
		"namespace of the hub whose WorkloadIdentities the spoke may use; may be repeated (required)")
	c.Flags().StringArrayVar(&o.identities, "identity", nil,
		"the only WorkloadIdentity of the namespace that the spoke gets tokens of; may be repeated (default: all)")
	c.Flags().StringVar(&o.user, "user", "",
		"user name of the spoke at the hub's API server, which ends with a colon and SPOKE (default: a ServiceAccount is printed)")
	c.Flags().StringVar(&o.spokeNamespace, "spoke-namespace", "lanyard-spokes", "namespace of the spokes' ServiceAccounts at the hub")
	c.Flags().StringVar(&o.release, "release-namespace", frame.ReleaseNamespace, "namespace of Lanyard's release at the hub")
	frame.CompleteNothing(c, "namespace", "identity", "user", "spoke-namespace", "release-namespace")
	c.ValidArgsFunction = cobra.NoFileCompletions
	c.Args = func(_ *cobra.Command, args []string) error {
		if len(args) != 1 {
			return errors.New("name one spoke")
		}
		o.spoke = args[0]
		return o.check()
	}
	c.RunE = func(*cobra.Command, []string) error {
		if err := frame.WriteYAML(std.Out, o.objects()...); err != nil {
			return err
		}
		return o.advise(std.Err)
	}
	return c
}

// check returns an error unless the argument and the flags are valid. It has these rules, among
// others:
//   - --user, if set, must end with a colon and the spoke's name. The hub takes the spoke's name
//     from the end of the user name, and writes it into tokens.
//   - --spoke-namespace must be neither kube-system nor Lanyard's own namespace.
//   - --namespace must be neither of these two, nor the namespace in --spoke-namespace.
//
// Rights in the forbidden namespaces would give the spoke more than tokens of identities.
func (o *grantOptions) check() error {
	if wrong := validation.IsDNS1123Label(o.spoke); len(wrong) > 0 {
		return fmt.Errorf("%q is not the name of a spoke: %s", o.spoke, wrong[0])
	}
	switch {
	case len(o.namespaces) == 0:
		return errors.New("name a namespace of the hub with --namespace")
	case len(o.identities) > 0 && len(o.namespaces) > 1:
		return errors.New("--identity needs exactly one --namespace: grant one namespace after the other")
	case o.user != "" && !strings.HasSuffix(o.user, ":"+o.spoke):
		return fmt.Errorf("--user: %q must end with :%s, so that the tokens name the spoke", o.user, o.spoke)
	case slices.Contains([]string{o.release, metav1.NamespaceSystem}, o.spokeNamespace):
		return fmt.Errorf("--spoke-namespace must not be %s: give the spokes' accounts a namespace of their own", o.spokeNamespace)
	}
	reserved := []string{o.release, metav1.NamespaceSystem, o.spokeNamespace}
	for _, namespace := range append(o.namespaces, o.spokeNamespace, o.release) {
		if wrong := validation.IsDNS1123Label(namespace); len(wrong) > 0 {
			return fmt.Errorf("%q is not the name of a namespace: %s", namespace, wrong[0])
		}
	}
	for _, namespace := range o.namespaces {
		if slices.Contains(reserved, namespace) {
			return fmt.Errorf("%s is no namespace for the identities of spokes", namespace)
		}
	}
	for _, identity := range o.identities {
		if wrong := validation.IsDNS1123Subdomain(identity); len(wrong) > 0 {
			return fmt.Errorf("%q is not the name of a WorkloadIdentity: %s", identity, wrong[0])
		}
	}
	return nil
}

// objects returns the account and its rights.
func (o *grantOptions) objects() []any {
	var all []any
	if o.user == "" {
		all = append(all, &corev1.ServiceAccount{
			TypeMeta:                     metav1.TypeMeta{APIVersion: "v1", Kind: "ServiceAccount"},
			ObjectMeta:                   metav1.ObjectMeta{Namespace: o.spokeNamespace, Name: o.spoke},
			AutomountServiceAccountToken: new(false),
		})
	}
	read := []string{"get", "list", "watch"}
	all = append(all, o.grant(o.release, rbacv1.PolicyRule{
		APIGroups: []string{identityv1.Group}, Resources: []string{kinds.KeyRing().Plural}, ResourceNames: []string{keyring.IssuerRing}, Verbs: read,
	})...)
	for _, namespace := range o.namespaces {
		all = append(all, o.grant(namespace,
			rbacv1.PolicyRule{APIGroups: []string{identityv1.Group}, Resources: []string{kinds.WorkloadIdentity().Plural}, Verbs: read},
			rbacv1.PolicyRule{
				APIGroups: []string{tokenv1.Group}, Resources: []string{kinds.WorkloadIdentity().Plural + "/token"},
				ResourceNames: o.identities, Verbs: []string{"create"},
			},
		)...)
	}
	return all
}

// grant returns a Role with the rules in a namespace, and the RoleBinding that gives this Role to
// the spoke.
func (o *grantOptions) grant(namespace string, rules ...rbacv1.PolicyRule) []any {
	meta := metav1.ObjectMeta{Namespace: namespace, Name: "lanyard-spoke-" + o.spoke}
	of := rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: o.spokeNamespace, Name: o.spoke}
	if o.user != "" {
		of = rbacv1.Subject{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: o.user}
	}
	version := rbacv1.SchemeGroupVersion.String()
	return []any{
		&rbacv1.Role{TypeMeta: metav1.TypeMeta{APIVersion: version, Kind: "Role"}, ObjectMeta: meta, Rules: rules},
		&rbacv1.RoleBinding{
			TypeMeta: metav1.TypeMeta{APIVersion: version, Kind: "RoleBinding"}, ObjectMeta: meta,
			RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: meta.Name},
			Subjects: []rbacv1.Subject{of},
		},
	}
}

// advise prints how to make the spoke's kubeconfig. It does not use text/template: with that
// package, the linker keeps every method, and the program becomes larger.
func (o *grantOptions) advise(w io.Writer) error {
	text := accountAdvice
	if o.user != "" {
		text = userAdvice
	}
	_, err := strings.NewReplacer(
		"{{.Spoke}}", o.spoke, "{{.Namespace}}", o.spokeNamespace, "{{.Release}}", o.release,
		"{{.User}}", o.user, "{{.First}}", o.namespaces[0],
	).WriteString(w, text)
	return err
}

// accountAdvice is for a spoke with a ServiceAccount at the hub. The kubeconfig names the token's
// file. Clients read the file again every minute, so a new token needs no restart.
const accountAdvice = `
# Then make the spoke's kubeconfig, with kubectl at the hub. SERVER is the URL of the hub's API server as the spoke reaches it.
kubectl -n {{.Namespace}} create token {{.Spoke}} --duration=720h > token
kubectl -n {{.Namespace}} get configmap kube-root-ca.crt -o jsonpath='{.data.ca\.crt}' > ca.crt
kubectl config --kubeconfig=kubeconfig set-cluster hub --server="$SERVER" --certificate-authority=ca.crt --embed-certs
kubectl config --kubeconfig=kubeconfig set users.spoke.tokenFile token
kubectl config --kubeconfig=kubeconfig set-context hub --cluster=hub --user=spoke
kubectl config --kubeconfig=kubeconfig use-context hub

# At the spoke. Write a new token into this Secret before the token ends; Lanyard reads it again by itself.
kubectl -n {{.Release}} create secret generic lanyard-hub --from-file=kubeconfig --from-file=token
# Values of the chart at the spoke:
#   hub: {kubeconfigSecret: lanyard-hub, namespaces: {<namespace of the spoke>: {{.First}}}}
`

// userAdvice is for a spoke that has a user name at the hub, and no ServiceAccount.
const userAdvice = `
# The hub's API server must know the spoke as the user {{.User}}, for example by an AuthenticationConfiguration that trusts
# the spoke's issuer. The spoke's kubeconfig then names the file of a projected ServiceAccount token: see docs/hub.md.
`
