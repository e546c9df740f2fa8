package kustomization

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/lanyard-dev/lanyard/api/toolkit/v1alpha1"
	"github.com/lanyard-dev/lanyard/auth"
	"github.com/lanyard-dev/lanyard/internal/apply"
	"github.com/lanyard-dev/lanyard/internal/controller/object"
	"github.com/lanyard-dev/lanyard/internal/impersonation"
	"github.com/lanyard-dev/lanyard/internal/kubeconfig"
)

// destination is the cluster that gets the manifests, and the user who acts there.
type destination struct {
	apply.Client

	user apply.User
	// cluster identifies another cluster; empty for this cluster.
	cluster string
	// verify checks again that the account or the file is unchanged.
	verify func(ctx context.Context) error
	// close closes the connections to another cluster.
	close func()
}

// destination returns the cluster that gets the manifests. The account is who acts in this cluster.
// The caller must call close.
func (k *kind) destination(ctx context.Context, o *v1alpha1.Kustomization, account auth.Subject) (*destination, error) {
	if config := o.Spec.KubeConfig; config != nil && config.SecretRef == nil {
		return nil, object.Invalid("spec.kubeConfig.secretRef", "name the Secret with the kubeconfig file", "it is not set")
	} else if config != nil {
		return k.remote(ctx, o)
	}
	tenant, err := k.Clients.As(ctx, account)
	if err != nil {
		return nil, err
	}
	return &destination{
		Client: tenant, verify: tenant.Verify, close: func() {},
		user: apply.User{Name: tenant.User(), Permit: "ask the administrator to list the namespace in the chart's rbac.tenantNamespaces"},
	}, nil
}

// remote returns the cluster of spec.kubeConfig. The user of the file acts there. Only an account
// that the Kustomization names is impersonated.
func (k *kind) remote(ctx context.Context, o *v1alpha1.Kustomization) (*destination, error) {
	file, err := k.readKubeConfig(ctx, o)
	if err != nil {
		return nil, err
	}
	secret := o.Spec.KubeConfig.SecretRef.Name
	user := apply.User{Name: "the user of the kubeconfig in Secret " + secret, Permit: "store a kubeconfig whose user acts as itself"}
	impersonated := ""
	if name := o.Spec.ServiceAccountName; name != "" {
		account, err := accountOf(o, name)
		if err != nil {
			return nil, err
		}
		impersonated = impersonation.UserName(account)
		user = apply.User{
			Name:   impersonated + " in the cluster of Secret " + secret,
			Permit: "let the user of the kubeconfig impersonate this ServiceAccount in its cluster, or remove spec.serviceAccountName",
		}
	}
	c, err := k.Clusters.Connect(ctx, file, kubeconfig.Use{Impersonate: impersonated, Retains: len(o.Spec.Ignore) > 0})
	if err != nil {
		return nil, &kubeConfigError{secret: secret, err: err}
	}
	before := sha256.Sum256(file)
	return &destination{
		Client: c, user: user, cluster: c.Cluster(), close: c.Close,
		verify: func(ctx context.Context) error {
			now, err := k.readKubeConfig(ctx, o)
			if err == nil && sha256.Sum256(now) != before {
				return &kubeConfigError{secret: secret, err: errors.New("the Secret was changed meanwhile; the next attempt uses its new content")}
			}
			return err
		},
	}, nil
}

// Keys of a Secret with a kubeconfig file, if spec.kubeConfig.secretRef names no key. Source: Flux's
// Kustomization API, "Remote clusters"; Cluster API writes the first.
const (
	kubeConfigKey      = "value"
	otherKubeConfigKey = "value.yaml"
)

// readKubeConfig reads the file of spec.kubeConfig with the program's own right.
func (k *kind) readKubeConfig(ctx context.Context, o *v1alpha1.Kustomization) ([]byte, error) {
	ref := o.Spec.KubeConfig.SecretRef
	secret := &corev1.Secret{}
	err := k.Live.Get(ctx, client.ObjectKey{Namespace: o.Namespace, Name: ref.Name}, secret)
	if apierrors.IsNotFound(err) {
		return nil, &kubeConfigError{secret: ref.Name, err: errors.New("the Secret does not exist; create it, or correct the name"), missing: true}
	}
	if err != nil {
		return nil, object.Forbidden(err, "get", "secrets", o.Namespace)
	}
	keys := []string{ref.Key}
	if ref.Key == "" {
		keys = []string{kubeConfigKey, otherKubeConfigKey}
	}
	for _, key := range keys {
		if file := secret.Data[key]; len(file) > 0 {
			return file, nil
		}
	}
	return nil, &kubeConfigError{secret: ref.Name, err: fmt.Errorf("the Secret has no key %q; add it, or correct spec.kubeConfig.secretRef.key", keys[0])}
}

// kubeConfigError says why a kubeconfig file cannot be used. Its text has no credential of the file.
type kubeConfigError struct {
	secret  string
	err     error
	missing bool // the Secret does not exist
}

func (e *kubeConfigError) Error() string {
	return fmt.Sprintf("spec.kubeConfig.secretRef: Secret %s: %v", e.secret, e.err)
}

func (e *kubeConfigError) Unwrap() error { return e.err }

// userIsGone reports whether an error of [kind.destination] says that nobody can act as the user
// any more: the account or the Secret is gone, or the program may not read the Secret any more. A
// file with a mistake does not count, since its owner can correct the file.
func userIsGone(err error) bool {
	code := auth.CodeOf(err)
	refused, ok := errors.AsType[*kubeConfigError](err)
	_, forbidden := errors.AsType[*object.ForbiddenError](err)
	return code == auth.CodeSubjectNotFound || code == auth.CodeProofDenied || ok && refused.missing || forbidden
}
