package tokenserver

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"

	"golang.org/x/sync/errgroup"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	typedauthorizationv1 "k8s.io/client-go/kubernetes/typed/authorization/v1"

	"github.com/lanyard-dev/lanyard/internal/kinds"
)

// Rights checks that no other program of Lanyard can read the signing keys or become the token
// server. A program that can do either is as powerful as a signing key. The other programs parse
// what strangers send. So they are easier to take over than the token server.
type Rights struct {
	// Reviews asks the API server who may do what.
	Reviews typedauthorizationv1.SubjectAccessReviewInterface
	// Namespace is the namespace of the signing keys.
	Namespace string
	// Guarded are further namespaces in which no other program may act as a ServiceAccount. Those of
	// kube-system can become cluster-admin, and so the token server.
	Guarded []string
	// Accounts are the names of the other programs' ServiceAccounts in Namespace.
	Accounts []string
	// Accepted is true if the administrator accepts that the programs in Accounts have dangerous
	// rights. Check then only logs these rights.
	Accepted bool
	// Log gets the rights that are accepted.
	Log *slog.Logger
}

// right is one thing that no other program may do in a namespace, or in the cluster if there is no
// namespace.
type right struct{ namespace, verb, group, resource, subresource string }

// dangerous returns the rights by which a program could get the signing keys, which are in the
// namespace keys. Each is a right to all objects of a resource. [Rights.Check] does not find a right that RBAC limits
// to one object by name. Programs may have such a right: a controller, for example, requests tokens
// of its own ServiceAccount.
func dangerous(keys string, guarded []string) []right {
	rings := kinds.KeyRing()
	rights := []right{
		{"", "get", "", "secrets", ""},
		{"", "list", "", "secrets", ""},
		{"", "watch", "", "secrets", ""},
		// The responses to patch and deletecollection contain the Secrets' data, even with dryRun.
		{"", "patch", "", "secrets", ""},
		{"", "deletecollection", "", "secrets", ""},
		// Whoever may write the Secret of --spiffe-secret-name can make the token server import
		// another CA.
		{"", "create", "", "secrets", ""},
		{"", "update", "", "secrets", ""},
		{"", "create", "", "serviceaccounts", "token"},
		{"", "impersonate", "", "serviceaccounts", ""},
		{"", "create", "", "pods", "exec"},
		{"", "create", "", "pods", "attach"},
		// API servers before 1.35 treat exec and attach over a WebSocket as the verb get.
		{"", "get", "", "pods", "exec"},
		{"", "get", "", "pods", "attach"},
		{"", "update", rings.Group, rings.Plural, "status"},
		{"", "patch", rings.Group, rings.Plural, "status"},
		// Whoever may escalate or bind roles can grant all of the above.
		{"", "escalate", "rbac.authorization.k8s.io", "roles", ""},
		{"", "bind", "rbac.authorization.k8s.io", "roles", ""},
		{"", "bind", "rbac.authorization.k8s.io", "clusterroles", ""},
	}
	// Whoever may write Pods can mount the keys, or run as the token server's ServiceAccount.
	for _, pods := range []right{
		{"", "", "", "pods", ""},
		{"", "", "", "pods", "ephemeralcontainers"},
		{"", "", "", "replicationcontrollers", ""},
		{"", "", "apps", "deployments", ""},
		{"", "", "apps", "statefulsets", ""},
		{"", "", "apps", "daemonsets", ""},
		{"", "", "apps", "replicasets", ""},
		{"", "", "batch", "jobs", ""},
		{"", "", "batch", "cronjobs", ""},
	} {
		for _, verb := range []string{"create", "update", "patch"} {
			rights = append(rights, right{"", verb, pods.group, pods.resource, pods.subresource})
		}
	}
	for i := range rights {
		rights[i].namespace = keys
	}
	for _, namespace := range guarded {
		rights = append(rights, right{namespace, "create", "", "serviceaccounts", "token"}, right{namespace, "impersonate", "", "serviceaccounts", ""})
	}
	// Whoever may act as any user can act as cluster-admin.
	const identity = "authentication.k8s.io"
	return append(rights,
		right{"", "impersonate", "", "users", ""}, right{"", "impersonate", "", "groups", ""},
		right{"", "impersonate", identity, "uids", ""}, right{"", "impersonate", identity, "userextras", ""})
}

func (r right) String() string {
	name := r.resource
	if r.subresource != "" {
		name += "/" + r.subresource
	}
	if r.namespace == "" {
		return r.verb + " " + name + " in the cluster"
	}
	return r.verb + " " + name + " in namespace " + r.namespace
}

// questionsAtOnce is how many questions [Rights.Check] asks the API server at once. There are about
// fifty questions for each program. A new replica makes no token before it has all answers.
const questionsAtOnce = 10

// Check asks the API server which dangerous rights the other programs have. If they have any, it
// returns an error that lists these rights, or only logs them if Accepted is true. It also returns
// an error if the API server does not answer a question.
func (r Rights) Check(ctx context.Context) error {
	forbidden := dangerous(r.Namespace, r.Guarded)
	answers := make([]bool, len(r.Accounts)*len(forbidden)) // one per account and right
	asking, ctx := errgroup.WithContext(ctx)
	asking.SetLimit(questionsAtOnce)
	for i := range answers {
		account, right := r.Accounts[i/len(forbidden)], forbidden[i%len(forbidden)]
		asking.Go(func() (err error) {
			if answers[i], err = r.allowed(ctx, account, right); err != nil {
				return fmt.Errorf("ask whether ServiceAccount %s/%s may %s: %w", r.Namespace, account, right, err)
			}
			return nil
		})
	}
	if err := asking.Wait(); err != nil {
		return err
	}
	var found []string
	for i, allowed := range answers {
		if allowed {
			found = append(found, fmt.Sprintf("%s may %s", r.Accounts[i/len(forbidden)], forbidden[i%len(forbidden)]))
		}
	}
	if len(found) == 0 {
		return nil
	}
	err := errors.New(strings.Join(found, "; ") + ": with that program, an attacker could sign for every tenant. Remove these rights (rbac.tenantNamespaces), or accept this by name (issuer.acceptControllerReadsAllSecrets)")
	if r.Accepted {
		r.Log.Warn("other programs can reach the signing keys, and this is accepted", "rights", err.Error())
		return nil
	}
	return err
}

func (r Rights) allowed(ctx context.Context, account string, what right) (bool, error) {
	review, err := r.Reviews.Create(ctx, &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
		User:   "system:serviceaccount:" + r.Namespace + ":" + account,
		Groups: []string{"system:serviceaccounts", "system:serviceaccounts:" + r.Namespace, "system:authenticated"},
		ResourceAttributes: &authorizationv1.ResourceAttributes{
			Namespace: what.namespace, Verb: what.verb, Group: what.group, Resource: what.resource, Subresource: what.subresource,
		},
	}}, metav1.CreateOptions{})
	if err != nil {
		return false, err
	}
	return review.Status.Allowed, nil
}
