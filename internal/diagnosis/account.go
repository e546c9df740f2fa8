package diagnosis

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lanyard-dev/lanyard/internal/kinds"
)

// Knows reports whether the package can explain the objects of a kind. These objects get a
// credential, or act at the API server as a ServiceAccount.
func Knows(k kinds.Kind) bool { return k.Fields != nil || k.Account != nil }

// runAccount explains as whom an object acts at an API server, and what was refused.
func (q *inquiry) runAccount(ctx context.Context) error {
	secret := ""
	if q.object.Kind.KubeConfig != nil {
		secret = q.object.Kind.KubeConfig(q.object.Resource)
	}
	if secret != "" {
		q.explainRemote(secret)
	} else if err := q.impersonates(ctx); err != nil {
		return err
	}
	if q.ready.Status == metav1.ConditionFalse && q.Refusal == "" {
		q.Refusal = q.ready.Message
	}
	q.advise()
	return nil
}

// impersonates explains an object that acts in this cluster, as a ServiceAccount.
func (q *inquiry) impersonates(ctx context.Context) error {
	q.Proof = "none: the controller impersonates the account, and the API server decides each request with the account's rights"
	q.Credential = "none: no token of the account is made"
	name := q.object.Kind.Account(q.object.Resource)
	if name == "" {
		q.Subject, q.From = "unknown", "no field: --default-service-account of the controller decides"
		q.unknown("without --default-service-account (apply.defaultServiceAccount of the Helm chart), the object is refused")
	} else {
		q.Subject, q.From = q.subject(name), "spec.serviceAccountName"
		if _, err := q.readAccount(ctx, name); err != nil {
			return err
		}
	}
	if q.ready.Status != metav1.ConditionTrue && (q.ready.Status != metav1.ConditionFalse || q.Refusal != "") {
		q.unknown("whether the controller may impersonate accounts of this namespace: rbac.tenantNamespaces of the Helm chart lists the namespaces")
	}
	return nil
}

func (q *inquiry) subject(account string) string {
	return fmt.Sprintf("system:serviceaccount:%s:%s", q.Namespace, account)
}

// explainRemote explains an object that acts in the cluster of a Secret with a kubeconfig file. The
// Secret is not read: the reader may lack the right, and the file is secret.
func (q *inquiry) explainRemote(secret string) {
	q.Subject, q.From = "the user of the kubeconfig in Secret "+secret, "spec.kubeConfig"
	q.Proof = "none: the API server of that cluster decides each request with the user's rights"
	if name := q.object.Kind.Account(q.object.Resource); name != "" {
		q.Subject, q.From = q.subject(name)+" in the cluster of Secret "+secret, "spec.serviceAccountName"
		q.Proof = "none: the user of the kubeconfig impersonates the account there, and the API server of that cluster decides"
	}
	q.Credential = "stored in Secret " + secret
	q.unknown("which cluster and which user the file names")
}
