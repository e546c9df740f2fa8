package ocirepository

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"time"

	"github.com/google/go-containerregistry/pkg/authn"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/lanyard-dev/lanyard/api/meta"
	"github.com/lanyard-dev/lanyard/api/toolkit/v1alpha1"
	"github.com/lanyard-dev/lanyard/auth"
	"github.com/lanyard-dev/lanyard/auth/spec"
	"github.com/lanyard-dev/lanyard/internal/artifact/oci"
)

// credential is what the registry is shown.
type credential struct {
	login    authn.Authenticator // nil for none
	identity *meta.Identity      // nil for none
}

// name is the identity as errors name it.
func (c credential) name() string {
	if c.identity.CloudIdentity != "" {
		return c.identity.CloudIdentity
	}
	return c.identity.Subject
}

// credential gets what the plan's identity comes to. With minRemaining a minted credential lives at least so long.
func (r *Reconciler) credential(ctx context.Context, o *v1alpha1.OCIRepository, p plan, proxy *url.URL, minRemaining time.Duration) (credential, error) {
	switch p.identity.Source {
	case spec.Anonymous:
		return credential{}, nil
	case spec.StaticSecret:
		return r.fromSecret(ctx, o, p)
	case spec.PullSecrets:
		return r.fromPullSecrets(ctx, o, p)
	case spec.Cloud:
		return r.mint(ctx, o, p, proxy, minRemaining)
	default:
		return credential{}, fmt.Errorf("unknown source of credentials %q", p.identity.Source)
	}
}

// mint gets a short-lived credential.
func (r *Reconciler) mint(ctx context.Context, o *v1alpha1.OCIRepository, p plan, proxy *url.URL, minRemaining time.Duration) (credential, error) {
	provider, ok := r.Providers[p.identity.Provider]
	if !ok {
		return credential{}, fmt.Errorf("provider %q is in the rules and not among the providers", p.identity.Provider)
	}
	options := []auth.Option{
		p.identity.Option(r.Accounts),
		auth.WithCache(r.Cache, auth.InvolvedObject{Kind: v1alpha1.OCIRepositoryKind, Namespace: o.Namespace, Name: o.Name, Operation: "reconcile"}),
		auth.WithObserver(r.Observer),
		auth.WithImageRepository(p.repository.Host() + "/" + p.repository.Name()),
		auth.WithMinRemaining(minRemaining),
	}
	if proxy != nil {
		options = append(options, auth.WithProxyURL(proxy))
	}
	if p.retryNow {
		options = append(options, auth.WithRetryNow())
	}
	token, err := auth.GetToken(ctx, provider, options...)
	if err != nil {
		if auth.CodeOf(err) == "" && errors.Is(err, context.DeadlineExceeded) {
			err = &auth.Error{
				Stage: auth.StageExchange, Code: auth.CodeUnreachable,
				Fix: "see whether the provider can be reached from the controller, or raise spec.timeout",
				Err: fmt.Errorf("no credential within spec.timeout: %w", err),
			}
		}
		return credential{}, err
	}
	login, ok := token.(*auth.RegistryCredentials)
	if !ok {
		return credential{}, fmt.Errorf("provider %s issued a %T instead of registry credentials", p.identity.Provider, token)
	}
	expires := metav1.NewTime(login.ExpiresAt.UTC().Truncate(time.Second))
	return credential{
		login: oci.Basic(login.Username, login.Password.Reveal()),
		identity: &meta.Identity{
			Subject: p.identity.Subject.String(), Provider: p.identity.Provider,
			CloudIdentity: r.cloudIdentity(ctx, provider, p.identity.Subject, options), ExpiresAt: &expires,
		},
	}, nil
}

// cloudIdentity is the identity that a token was just got for, or empty where the provider does not tell.
func (r *Reconciler) cloudIdentity(ctx context.Context, provider auth.Provider, subject auth.Subject, options []auth.Option) string {
	key, err := auth.Resolve(ctx, provider, options...)
	if err == nil {
		return key.Identity
	}
	// Memory has not heard of the account yet.
	account, err := r.Accounts.Read(ctx, subject)
	if err != nil {
		return ""
	}
	identity, err := provider.GetIdentity(account)
	if err != nil {
		return ""
	}
	return identity
}

// fromSecret reads spec.secretRef.
func (r *Reconciler) fromSecret(ctx context.Context, o *v1alpha1.OCIRepository, p plan) (credential, error) {
	const field = "spec.secretRef"
	name, repository := p.identity.SecretName, p.repository
	secret, err := r.secret(ctx, field, o.Namespace, name)
	if err != nil {
		return credential{}, err
	}
	login, err := pullSecret(field, secret, repository)
	if err != nil {
		return credential{}, err
	}
	if login == nil {
		return credential{}, &secretError{
			field, name, "add the registry with kubectl create secret docker-registry --docker-server=" + repository.Host(),
			fmt.Errorf("has no entry for %s", repository.Host()),
		}
	}
	return credential{login, static("secret:" + o.Namespace + ":" + name)}, nil
}

// fromPullSecrets reads the imagePullSecrets of a ServiceAccount, of which the first with an entry for the repository counts.
// None means that the repository is asked without credentials, as a Pod of that account would.
func (r *Reconciler) fromPullSecrets(ctx context.Context, o *v1alpha1.OCIRepository, p plan) (credential, error) {
	account := p.identity.ServiceAccountName
	serviceAccount := &corev1.ServiceAccount{}
	err := r.Live.Get(ctx, client.ObjectKey{Namespace: o.Namespace, Name: account}, serviceAccount)
	if apierrors.IsNotFound(err) {
		return credential{}, &auth.Error{
			Stage: auth.StageSubject, Code: auth.CodeSubjectNotFound,
			Fix: fmt.Sprintf("create ServiceAccount %s/%s", o.Namespace, account),
			Err: fmt.Errorf("ServiceAccount %s/%s does not exist", o.Namespace, account),
		}
	}
	if err != nil {
		return credential{}, fmt.Errorf("read ServiceAccount %s/%s: %w", o.Namespace, account, err)
	}
	for _, reference := range serviceAccount.ImagePullSecrets {
		field := "imagePullSecrets of ServiceAccount " + account
		secret, err := r.secret(ctx, field, o.Namespace, reference.Name)
		if err != nil {
			return credential{}, err
		}
		login, err := pullSecret(field, secret, p.repository)
		if err != nil {
			return credential{}, err
		}
		if login != nil {
			return credential{login, static("system:serviceaccount:" + o.Namespace + ":" + account)}, nil
		}
	}
	return credential{}, nil
}

// static is the identity behind a stored password, of which nobody tells us more.
func static(subject string) *meta.Identity {
	return &meta.Identity{Subject: subject, Provider: v1alpha1.ProviderGeneric}
}
