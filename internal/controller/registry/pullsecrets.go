package registry

import (
	"context"
	"errors"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/lanyard-dev/lanyard/auth"
	"github.com/lanyard-dev/lanyard/internal/artifact/oci"
	"github.com/lanyard-dev/lanyard/internal/controller/access"
	"github.com/lanyard-dev/lanyard/internal/controller/object"
)

// maxPullSecrets bounds the Secrets that one reconciliation reads for a ServiceAccount. A
// ServiceAccount can list tens of thousands of Secrets.
const maxPullSecrets = 16

// PullSecretsError reports why a ServiceAccount's image pull secrets cannot be used. Its text
// contains no value of a Secret.
type PullSecretsError struct {
	// Account is the ServiceAccount, as namespace/name.
	Account string
	// Fix says what to do, in one sentence.
	Fix string
	// Err says what is wrong.
	Err error
}

func (e *PullSecretsError) Error() string {
	return fmt.Sprintf("imagePullSecrets of ServiceAccount %s: %v; %s", e.Account, e.Err, e.Fix)
}

func (e *PullSecretsError) Unwrap() error { return e.Err }

// fromPullSecrets returns the login with the imagePullSecrets of a ServiceAccount. It uses the
// first Secret with an entry for the repository. Like a kubelet, it skips Secrets that are missing
// or unusable.
//
// If no Secret has an entry, and none was skipped, the login is anonymous. If no Secret has an
// entry, and some were skipped, the error lists the skipped Secrets. The user may have meant one of
// them. A kubelet reports no such error.
func (r Registries) fromPullSecrets(ctx context.Context, call access.Call, repository oci.Repository) (access.Login, error) {
	namespace, account := call.Object.Namespace, call.Identity.ServiceAccountName
	names, err := r.pullSecretNames(ctx, namespace, account)
	if err != nil {
		return access.Login{}, err
	}
	var skipped []string
	for _, name := range names {
		found, err := r.fromPullSecret(ctx, namespace, name, repository)
		if unfit, ok := errors.AsType[*object.SecretError](err); ok {
			skipped = append(skipped, fmt.Sprintf("%q (%v)", name, unfit.Err))
			continue
		}
		if err != nil {
			return access.Login{}, err
		}
		if found != nil {
			return access.StaticLogin("system:serviceaccount:"+namespace+":"+account, *found), nil
		}
	}
	if len(skipped) > 0 {
		return access.Login{}, &PullSecretsError{
			Account: namespace + "/" + account, Fix: "correct these Secrets, or remove their names from the ServiceAccount",
			Err: fmt.Errorf("none has an entry for %s, and some cannot be used: %s", repository.Host(), strings.Join(skipped, ", ")),
		}
	}
	return access.Login{}, nil
}

// pullSecretNames returns the names in a ServiceAccount's imagePullSecrets, in the same order and
// each name once.
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
		return nil, fmt.Errorf("read ServiceAccount %s/%s: %w", namespace, account, object.Forbidden(err, "get", "serviceaccounts", namespace))
	}
	var names []string
	known := sets.New("") // contains "", so that an empty reference is ignored
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

// fromPullSecret returns the credential for the repository in one Secret; nil if there is none. If
// the Secret is missing or unusable, the error is an [*object.SecretError].
func (r Registries) fromPullSecret(ctx context.Context, namespace, name string, repository oci.Repository) (*access.Credential, error) {
	const field = "imagePullSecrets"
	// The API server does not check these names in a ServiceAccount, so check the name here.
	if len(validation.IsDNS1123Subdomain(name)) > 0 {
		return nil, &object.SecretError{Field: field, Name: name, Fix: "correct the name", Err: errors.New("this is not a valid name of a Secret")}
	}
	secret, err := r.Access.Secret(ctx, field, namespace, name)
	if err != nil {
		return nil, err
	}
	found, err := pullSecret(secret, repository)
	if err != nil {
		return nil, &object.SecretError{Field: field, Name: name, Fix: dockerRegistryFix, Err: err}
	}
	return found, nil
}
