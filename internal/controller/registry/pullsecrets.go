package registry

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/google/go-containerregistry/pkg/authn"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/lanyard-dev/lanyard/auth"
	"github.com/lanyard-dev/lanyard/internal/artifact/oci"
	"github.com/lanyard-dev/lanyard/internal/controller/source"
)

// maxPullSecrets bounds the Secrets that one reconciliation reads for a ServiceAccount, which has room for tens of thousands of names.
const maxPullSecrets = 16

// PullSecretsError says why a ServiceAccount's image pull secrets do not serve. Its text holds no value of a Secret.
type PullSecretsError struct {
	// Account is the ServiceAccount, as namespace/name.
	Account string
	// Fix is what to do, one sentence.
	Fix string
	// Err says what is wrong.
	Err error
}

func (e *PullSecretsError) Error() string {
	return fmt.Sprintf("imagePullSecrets of ServiceAccount %s: %v; %s", e.Account, e.Err, e.Fix)
}

func (e *PullSecretsError) Unwrap() error { return e.Err }

// fromPullSecrets reads the imagePullSecrets of a ServiceAccount, of which the first with an entry for the repository counts. As for a
// Pod of that account, Secrets that are missing or of no use are passed over, and the repository is asked without credentials when
// none has an entry. Unlike for a Pod, what was passed over may then not have had one: it is named instead.
func (r Registries) fromPullSecrets(ctx context.Context, call source.Call, repository oci.Repository) (credential, error) {
	namespace, account := call.Object.Namespace, call.Identity.ServiceAccountName
	names, err := r.pullSecretNames(ctx, namespace, account)
	if err != nil {
		return credential{}, err
	}
	var skipped []string
	for _, name := range names {
		basic, err := r.fromPullSecret(ctx, namespace, name, repository)
		if unfit, ok := errors.AsType[*source.SecretError](err); ok {
			skipped = append(skipped, fmt.Sprintf("%q (%v)", name, unfit.Err))
			continue
		}
		if err != nil {
			return credential{}, err
		}
		if basic != nil {
			return credential{source.Stored("system:serviceaccount:" + namespace + ":" + account), basic}, nil
		}
	}
	if len(skipped) > 0 {
		return credential{}, &PullSecretsError{
			Account: namespace + "/" + account, Fix: "mend these Secrets, or remove their names from the ServiceAccount",
			Err: fmt.Errorf("none has an entry for %s, and some cannot be used: %s", repository.Host(), strings.Join(skipped, ", ")),
		}
	}
	return credential{}, nil
}

// pullSecretNames are the names in a ServiceAccount's imagePullSecrets in their order, each once.
func (r Registries) pullSecretNames(ctx context.Context, namespace, account string) ([]string, error) {
	serviceAccount := &corev1.ServiceAccount{}
	err := r.Access.Live.Get(ctx, client.ObjectKey{Namespace: namespace, Name: account}, serviceAccount)
	if apierrors.IsNotFound(err) {
		return nil, &auth.Error{
			Stage: auth.StageSubject, Code: auth.CodeSubjectNotFound,
			Fix: fmt.Sprintf("create ServiceAccount %s/%s", namespace, account),
			Err: fmt.Errorf("ServiceAccount %s/%s does not exist", namespace, account),
		}
	}
	if err != nil {
		return nil, fmt.Errorf("read ServiceAccount %s/%s: %w", namespace, account, source.Forbidden(err, "get", "serviceaccounts", namespace))
	}
	var names []string
	known := sets.New("") // a reference may be empty, and names nothing
	for _, reference := range serviceAccount.ImagePullSecrets {
		if known.Has(reference.Name) {
			continue
		}
		if len(names) == maxPullSecrets {
			return nil, &PullSecretsError{
				Account: namespace + "/" + account, Fix: "remove some of them, or name the Secret in spec.secretRef instead of spec.serviceAccountName",
				Err: fmt.Errorf("there are more than %d", maxPullSecrets),
			}
		}
		known.Insert(reference.Name)
		names = append(names, reference.Name)
	}
	return names, nil
}

// fromPullSecret reads one of them. The error is a [*source.SecretError] when it is missing or of no use.
func (r Registries) fromPullSecret(ctx context.Context, namespace, name string, repository oci.Repository) (authn.Authenticator, error) {
	const field = "imagePullSecrets"
	if len(validation.IsDNS1123Subdomain(name)) > 0 { // which nobody checks in a ServiceAccount
		return nil, &source.SecretError{Field: field, Name: name, Fix: "correct the name", Err: errors.New("no Secret can have this name")}
	}
	secret, err := r.Access.Secret(ctx, field, namespace, name)
	if err != nil {
		return nil, err
	}
	basic, err := pullSecret(secret, repository)
	if err != nil {
		return nil, &source.SecretError{Field: field, Name: name, Fix: dockerRegistryFix, Err: err}
	}
	return basic, nil
}
