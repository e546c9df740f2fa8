package token

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	identityv1 "github.com/lanyard-dev/lanyard/api/identity/v1alpha1"
	"github.com/lanyard-dev/lanyard/api/meta"
	tokenv1 "github.com/lanyard-dev/lanyard/api/token/v1alpha1"
	"github.com/lanyard-dev/lanyard/auth"
	"github.com/lanyard-dev/lanyard/internal/cli/cluster"
	"github.com/lanyard-dev/lanyard/internal/kinds"
	"github.com/lanyard-dev/lanyard/internal/plain"
)

// identityWord is the word for the kind WorkloadIdentity on a command line.
const identityWord = "workloadidentity"

// tokenResource is the subresource of accounts and identities that issues tokens.
const tokenResource = "token"

// parseIdentity reads the argument workloadidentity/NAME. Like kubectl, it also accepts the kind's
// plural and short name, and the API group after a dot.
func parseIdentity(table kinds.Table, args []string) (name string, ok bool) {
	if len(args) != 1 {
		return "", false
	}
	kind, name, ok := cluster.CutKind(args[0])
	known, _ := table.Written(kind)
	return name, ok && known.Kind == identityv1.WorkloadIdentityKind
}

// identity is a WorkloadIdentity of the command's namespace.
type identity struct {
	*cluster.Client

	name    string
	context *tokenv1.ContextObject // object that its tokens are used for; may be nil
}

// String returns the identity as on a command line: workloadidentity/NAME.
func (i *identity) String() string { return identityWord + "/" + i.name }

// plural returns the name of the kind WorkloadIdentity in paths and rules.
func (i *identity) plural() string {
	kind, _ := i.Kinds.Named(identityv1.WorkloadIdentityKind)
	return kind.Plural
}

// request implements holder. Empty audiences and a duration of 0 mean the values of the identity's
// spec.
func (i *identity) request(ctx context.Context, audiences []string, duration time.Duration) (issued, error) {
	server, err := tokenServer(i.Config)
	if err != nil {
		return issued{}, fmt.Errorf("connect to %s: %w", i.Config.Host, err)
	}
	request := &tokenv1.TokenRequest{Spec: tokenv1.TokenRequestSpec{Audiences: audiences, ContextObject: i.context}}
	if duration > 0 {
		request.Spec.ExpirationSeconds = new(int64(duration / time.Second))
	}
	answer := &tokenv1.TokenRequest{}
	err = server.Post().Namespace(i.Namespace).Resource(i.plural()).Name(i.name).SubResource(tokenResource).
		Body(request).Do(ctx).Into(answer)
	if err != nil {
		return issued{}, i.refused(ctx, err)
	}
	answer.SetGroupVersionKind(tokenv1.GroupVersion().WithKind(tokenv1.TokenRequestKind))
	token := issued{answer: answer, text: answer.Status.Token, expires: answer.Status.ExpirationTimestamp.Time}
	if object, err := i.read(ctx); err == nil { // the caller may have no right to read the identity
		subject, err := auth.WorkloadIdentity(i.Namespace, i.name)
		if err != nil {
			return issued{}, err
		}
		// Do not pass the target system to userOf. If it is a cloud, userOf would return an error,
		// because the token's receiver could use the token at that cloud. Here the receiver is the
		// caller, who may do that. Callers that send the token to a registry check this themselves.
		if token.user, err = userOf(subject, object.Annotations, ""); err != nil {
			return issued{}, err
		}
	}
	return token, nil
}

// tokenServer returns a client for the token server's aggregated API.
func tokenServer(config *rest.Config) (*rest.RESTClient, error) {
	scheme := runtime.NewScheme()
	if err := tokenv1.AddToScheme(scheme); err != nil {
		return nil, err
	}
	of := rest.CopyConfig(config)
	gv := tokenv1.GroupVersion()
	of.GroupVersion, of.APIPath = &gv, "/apis"
	of.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
	return rest.RESTClientFor(of)
}

// refused returns the error of a token request, with advice for the user.
func (i *identity) refused(ctx context.Context, err error) error {
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case apierrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse) && apierrors.IsNotFound(err):
		return fmt.Errorf("at %s there is no token server: "+
			"install Lanyard's chart with issuer.url, and see that the APIService %s.%s is available",
			i.Config.Host, tokenv1.Version, tokenv1.Group)
	case apierrors.IsNotFound(err):
		return fmt.Errorf("there is no %s in namespace %s; -n names another namespace", i, i.Namespace)
	case apierrors.IsForbidden(err):
		return fmt.Errorf("at %s: %w; bind a Role of namespace %s with this rule to the caller:\n%s",
			i.Config.Host, err, i.Namespace, i.rule())
	case apierrors.IsServiceUnavailable(err):
		if why := i.notReady(ctx); why != "" {
			return fmt.Errorf("at %s: %w; %s is not ready: %s", i.Config.Host, err, i, why)
		}
		return fmt.Errorf("at %s: %w; \"lanyard keys list\" shows whether a key may sign, "+
			"and the token server's log what it waits for", i.Config.Host, err)
	}
	return fmt.Errorf("at %s: %w", i.Config.Host, err)
}

// rule returns the RBAC rule that allows requests for tokens of the identity, and nothing else.
func (i *identity) rule() string {
	return fmt.Sprintf("- apiGroups: [%s]\n  resources: [%s/%s]\n  resourceNames: [%s]\n  verbs: [create]",
		tokenv1.Group, i.plural(), tokenResource, i.name)
}

// notReady returns reason and message of the identity's condition Ready if it is not True. The
// result is empty if the identity is ready, or if its state is unknown.
func (i *identity) notReady(ctx context.Context) string {
	o, err := i.read(ctx)
	if err != nil {
		return ""
	}
	ready := apimeta.FindStatusCondition(o.Status.Conditions, meta.ConditionReady)
	if ready == nil || ready.Status == metav1.ConditionTrue {
		return ""
	}
	return plain.Text(ready.Reason + ": " + ready.Message)
}

// read reads the identity.
func (i *identity) read(ctx context.Context) (*identityv1.WorkloadIdentity, error) {
	o := &identityv1.WorkloadIdentity{}
	return o, i.Get(ctx, client.ObjectKey{Namespace: i.Namespace, Name: i.name}, o)
}

// completeIdentities completes workloadidentity/NAME with the identities of the namespace.
func (j *jobCluster) completeIdentities(c *cobra.Command, _ []string, begun string) ([]cobra.Completion, cobra.ShellCompDirective) {
	var all identityv1.WorkloadIdentityList
	return j.Complete(c, begun, func(ctx context.Context, from *cluster.Client) (offers []cobra.Completion, err error) {
		err = from.List(ctx, &all, client.InNamespace(from.Namespace))
		for _, o := range all.Items {
			word := cluster.AsWritten(begun, o.Name, identityWord+"/"+o.Name, func(word string) bool {
				_, ok := parseIdentity(from.Kinds, []string{word})
				return ok
			})
			offers = append(offers, cobra.CompletionWithDesc(word, plain.Text(o.Spec.TargetSystem.Type)))
		}
		return offers, err
	})
}

// completeAudiences completes the audiences of the identity that the command line names.
func (j *jobCluster) completeAudiences(c *cobra.Command, args []string, begun string) ([]cobra.Completion, cobra.ShellCompDirective) {
	name, ok := parseIdentity(j.Std.Kinds, args)
	if !ok {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return j.Complete(c, begun, func(ctx context.Context, cluster *cluster.Client) (offers []cobra.Completion, err error) {
		o, err := (&identity{Client: cluster, name: name}).read(ctx)
		for _, audience := range o.Spec.Audiences {
			offers = append(offers, plain.Text(audience))
		}
		return offers, err
	})
}
