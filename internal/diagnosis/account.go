package diagnosis

import (
	"context"
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lanyard-dev/lanyard/api/toolkit/v1alpha1"
	"github.com/lanyard-dev/lanyard/auth/spec"
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
	if q.object.Kind.Decryption != nil {
		if err := q.explainDecryption(ctx, q.object.Kind.Decryption(q.object.Resource)); err != nil {
			return err
		}
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

// explainDecryption explains whose identity decrypts files, and which keys decrypted files last. A nil
// argument says that nothing is decrypted.
func (q *inquiry) explainDecryption(ctx context.Context, d *kinds.Decryption) error {
	if d == nil {
		return nil
	}
	subject := spec.Rules{}.Named(d.Fields)
	who := subject.String() + ", from spec.decryption."
	switch {
	case d.Fields.IdentityRef != nil:
		who += "identityRef"
		// The answer is not needed: the chain says which identity admits the namespace.
		_ = q.askChain(ctx, q.Namespace, subject)
	case d.Fields.WorkloadIdentityName != "":
		who += "workloadIdentityName"
	case d.Fields.ServiceAccountName != "":
		who += "serviceAccountName"
	case asked(d.Status) != "":
		who = asked(d.Status) + ", from no field: the controller's flags decide, as status.decryption shows"
	default:
		who = "unknown, from no field: apply.defaultDecryptionServiceAccount and apply.controllerNamespaces of the Helm chart decide who asks key services"
	}
	q.Decryption = append(q.Decryption, who)
	if d.Fields.SecretRef != nil {
		q.Decryption = append(q.Decryption, "private keys are in Secret "+*d.Fields.SecretRef+", from spec.decryption.secretRef; this command does not read them")
	}
	q.Decryption = append(q.Decryption, decryptedFiles(d.Status)...)
	return q.failed
}

// asked returns the first subject that asked a key service; empty if there is none.
func asked(status *v1alpha1.DecryptionStatus) string {
	if status == nil {
		return ""
	}
	for _, file := range status.Files {
		for _, key := range file.Keys {
			if key.Subject != "" {
				return key.Subject
			}
		}
	}
	return ""
}

// decryptedFiles describes the files that were decrypted last, each with its keys and with who asked.
func decryptedFiles(status *v1alpha1.DecryptionStatus) (files []string) {
	if status == nil {
		return nil
	}
	for _, file := range status.Files {
		var keys []string
		for _, key := range file.Keys {
			text := key.Name
			if key.Subject != "" {
				text += ", asked by " + key.Subject
			}
			keys = append(keys, text)
		}
		files = append(files, file.Name+": decrypted with "+strings.Join(keys, "; and "))
	}
	if status.OtherFiles > 0 {
		files = append(files, fmt.Sprintf("and %d other files", status.OtherFiles))
	}
	return files
}
