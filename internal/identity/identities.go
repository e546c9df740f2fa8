package identity

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/puzpuzpuz/xsync/v4"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/lanyard-dev/lanyard/api/identity/v1alpha1"
	"github.com/lanyard-dev/lanyard/auth"
	"github.com/lanyard-dev/lanyard/auth/aws"
	"github.com/lanyard-dev/lanyard/auth/kube"
)

// Options configure [Identities]. All fields except SecretNamespace are required.
type Options struct {
	// Informers watch the identities, and the metadata of Namespaces. If SecretNamespace is
	// set, they also watch Secrets. They must watch Secrets only in that namespace.
	Informers kube.Informers
	// Provider exchanges proofs for credentials.
	Provider auth.Provider
	// ServiceAccounts looks up the ServiceAccounts of AWSServiceAccountIdentities, and gets their
	// tokens.
	ServiceAccounts auth.Accounts
	// Cache caches the credentials of identities that are sources of other identities.
	Cache auth.Cache
	// Observer is notified of the exchanges that get credentials for Cache.
	Observer auth.Observer
	// SecretNamespace is the only namespace whose Secrets are read. Empty: no static keys are read.
	SecretNamespace string
}

// Identities has the AWS identities of a cluster in memory. It is safe for concurrent use.
type Identities struct {
	provider        auth.Provider
	accounts        auth.Accounts
	cache           auth.Cache
	observer        auth.Observer
	secretNamespace string

	// chains caches the results of follow, so that cached chains are read without a lock. A chain
	// is removed when an object that the chain needs changes.
	chains     *xsync.Map[auth.Subject, *chain]
	namespaces *xsync.Map[string, map[string]string] // labels by name
	watches    []toolscache.ResourceEventHandlerRegistration

	mu      sync.Mutex // guards what follows, and all writes to chains; never held during I/O
	links   map[auth.Subject]*link
	secrets map[string]keys
	// The subscribers of SubscribeDrops, SubscribeUse and SubscribeUsers. They are called without mu.
	dropped   []func(auth.Subject, func(auth.Key) bool)
	changed   []func(Use)
	recounted []func(auth.Subject)
}

// New makes an Identities and starts its watches. The cluster must have the CRDs of all identities.
func New(ctx context.Context, options Options) (*Identities, error) {
	i := &Identities{
		provider: options.Provider, accounts: options.ServiceAccounts, cache: options.Cache, observer: options.Observer,
		secretNamespace: options.SecretNamespace,
		chains:          xsync.NewMap[auth.Subject, *chain](),
		namespaces:      xsync.NewMap[string, map[string]string](),
		links:           map[auth.Subject]*link{},
		secrets:         map[string]keys{},
	}
	namespace := &metav1.PartialObjectMetadata{}
	namespace.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Namespace"))
	watched := map[client.Object]watch{namespace: {i.setNamespace, i.removeNamespace}}
	for _, object := range []client.Object{
		&v1alpha1.AWSClusterControllerIdentity{}, &v1alpha1.AWSClusterStaticIdentity{}, &v1alpha1.AWSClusterRoleIdentity{},
		&v1alpha1.AWSServiceAccountIdentity{},
	} {
		watched[object] = watch{i.setIdentity, i.removeIdentity}
	}
	if options.SecretNamespace != "" {
		watched[&corev1.Secret{}] = watch{i.setSecret, i.removeSecret}
	}
	for object, w := range watched {
		informer, err := options.Informers.GetInformer(ctx, object, cache.BlockUntilSynced(false))
		if err == nil {
			var registered toolscache.ResourceEventHandlerRegistration
			registered, err = informer.AddEventHandler(w)
			i.watches = append(i.watches, registered)
		}
		if err != nil {
			return nil, fmt.Errorf("watch objects of type %T: %w", object, err)
		}
	}
	options.ServiceAccounts.Subscribe(i.accountChanged)
	return i, nil
}

// Synced reports whether memory has all objects that existed when the watches began. Before that,
// an identity or a grant that memory does not have may still exist.
func (i *Identities) Synced() bool {
	return !slices.ContainsFunc(i.watches, func(w toolscache.ResourceEventHandlerRegistration) bool { return !w.HasSynced() })
}

// For returns the accounts of the identities that the namespace may use. Only AWS identities, of
// any of the four kinds, can be looked up.
func (i *Identities) For(namespace string) auth.Accounts {
	return view{Identities: i, namespace: namespace}
}

// Own returns the accounts of the identities as their administrator may see them: without any check
// of grants. These accounts are only for the status of identities. No object of a tenant ever gets
// their tokens.
func (i *Identities) Own() auth.Accounts { return view{Identities: i, own: true} }

// Chain returns the chain of an identity: the identity itself, its source, and so on to the root.
// The error says why no namespace can get a credential from this chain.
func (i *Identities) Chain(ctx context.Context, subject auth.Subject) ([]auth.Subject, error) {
	c := i.chain(ctx, subject)
	var subjects []auth.Subject
	for _, l := range c.links {
		subjects = append(subjects, l.subject)
	}
	return subjects, i.certain(c.err)
}

// Admits returns an error if the namespace may not use the identity. It also returns an error if no
// namespace can use the identity, for example because the source does not exist.
func (i *Identities) Admits(ctx context.Context, namespace string, subject auth.Subject) error {
	return i.certain(i.admits(i.chain(ctx, subject), namespace, false))
}

// Begin is like [Identities.Admits], for an object that is about to use the identity. If the
// identity is lent to the namespace, Begin logs one line with the session's name. The logger of ctx
// adds the object to the line. The cloud's audit log has the session's name too. So people can find
// the objects behind a session, even if several namespaces share the session.
func (i *Identities) Begin(ctx context.Context, namespace string, subject auth.Subject) error {
	account, err := i.For(namespace).Lookup(ctx, subject)
	if err == nil {
		LogUse(ctx, namespace, account)
	}
	return err
}

// LogUse logs that the namespace uses a lent identity. It logs the same line as
// [Identities.Begin], with the session's name. An account that is not lent is not logged.
func LogUse(ctx context.Context, namespace string, account auth.Account) {
	if account.Subject.Lent() {
		log.FromContext(ctx).Info("uses a lent identity",
			"identity", nameOf(account.Subject), "session", account.Attributes[aws.SessionNameAttribute], "consumerNamespace", namespace)
	}
}

// Needs returns the identities that a subject needs: itself, its source, and so on. If the kind of
// a source is unknown, Needs returns all identities that the source could refer to.
func (i *Identities) Needs(subject auth.Subject) []auth.Subject {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.path(subject)
}

// Dependents returns the identities that have the subject in their chain, and the subject itself.
// It fails if memory does not have all identities yet.
func (i *Identities) Dependents(subject auth.Subject) ([]auth.Subject, error) {
	if !i.Synced() {
		return nil, errNotSynced()
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.dependents(subject), nil
}

// certain returns err, which is a refusal or nil. Until all watches have synced, memory may lack an
// identity or a grant that exists. Until then, certain returns a temporary error instead of a
// refusal.
func (i *Identities) certain(err error) error {
	if err != nil && !i.Synced() {
		return errNotSynced()
	}
	return err
}
