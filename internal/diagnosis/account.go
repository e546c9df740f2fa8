package diagnosis

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lanyard-dev/lanyard/internal/kinds"
)

// Knows reports whether the package can explain the objects of a kind. These objects get a credential,
// or act at the API server as a ServiceAccount.
func Knows(k kinds.Kind) bool { return k.Fields != nil || k.Account != nil }

// runAccount explains as which ServiceAccount an object acts at the API server, and what was refused to
// the account.
func (q *inquiry) runAccount(ctx context.Context) error {
	q.Proof = "none: the controller impersonates the account, and the API server decides each request with the account's rights"
	q.Credential = "none: no token of the account is made"
	name := q.object.Kind.Account(q.object.Resource)
	if name == "" {
		q.Subject, q.From = "unknown", "no field: --default-service-account of the controller decides"
		q.unknown("without --default-service-account (apply.defaultServiceAccount of the Helm chart), the object is refused")
	} else {
		q.Subject, q.From = fmt.Sprintf("system:serviceaccount:%s:%s", q.Namespace, name), "spec.serviceAccountName"
		if _, err := q.readAccount(ctx, name); err != nil {
			return err
		}
	}
	switch {
	case q.ready.Status == metav1.ConditionFalse && q.Refusal == "":
		q.Refusal = q.ready.Message
	case q.ready.Status != metav1.ConditionTrue:
		q.unknown("whether the controller may impersonate accounts of this namespace: rbac.tenantNamespaces of the Helm chart lists the namespaces")
	}
	q.advise()
	return nil
}
