package identity

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/puzpuzpuz/xsync/v4"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/lanyard-dev/lanyard/api/identity/v1alpha1"
	"github.com/lanyard-dev/lanyard/auth"
	"github.com/lanyard-dev/lanyard/auth/aws"
	"github.com/lanyard-dev/lanyard/auth/kube"
)

// Options configure [Identities]. All fields but SecretNamespace are required.
type Options struct {
	// Informers watch the identities, and the metadata of Namespaces. With SecretNamespace they also
	// watch Secrets, and must be limited to that namespace.
	Informers kube.Informers
	// Provider exchanges the proofs.
	Provider auth.Provider
	// ServiceAccounts read and prove the ServiceAccounts that an AWSServiceAccountIdentity stands
	// for.
	ServiceAccounts auth.Accounts
	// Cache keeps the credentials of sources.
	Cache auth.Cache
	// Observer hears of the exchanges of sources.
	Observer auth.Observer
	// SecretNamespace is the only namespace whose Secrets are read. Empty: no static keys are read.
	SecretNamespace string
}

// Identities knows the AWS identities of a cluster. It is safe for concurrent use.
type Identities struct {
	provider        auth.Provider
	accounts        auth.Accounts
	cache           auth.Cache
	observer        auth.Observer
	secretNamespace string

	// chains remembers followed chains, so that a hit takes no lock. A chain is removed when
	// anything changes that it needs.
	chains     *xsync.Map[auth.Subject, *chain]
	namespaces *xsync.Map[string, map[string]string] // labels by name
	watches    []toolscache.ResourceEventHandlerRegistration

	mu      sync.Mutex // guards what follows, and all writes to chains; never held during I/O
	links   map[auth.Subject]*link
	secrets map[string]keys
	changed []func(auth.Subject) // called without mu
	usable  []func(auth.Subject) // called without mu
}

// New makes an Identities and starts to watch. The cluster must have the CRDs of all identities.
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

// Synced reports whether memory has all that was there when the watches began. Before, an identity or
// a grant may only not be known yet.
func (i *Identities) Synced() bool {
	return !slices.ContainsFunc(i.watches, func(w toolscache.ResourceEventHandlerRegistration) bool { return !w.HasSynced() })
}

// Subscribe has changed called, promptly, for each identity whose credentials are to be dropped:
// something changed that decides them, or a namespace may not use them any more. The token cache
// must be the first subscriber.
func (i *Identities) Subscribe(changed func(auth.Subject)) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.changed = append(i.changed, changed)
}

// SubscribeUse has changed called, promptly, for each identity that may answer otherwise than
// before: for all of [Identities.Subscribe], and when an identity appears, or a namespace may use
// it that could not before.
func (i *Identities) SubscribeUse(changed func(auth.Subject)) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.usable = append(i.usable, changed)
}

// For returns the accounts of the identities as a namespace may use them. They are of the four kinds
// of AWS identities.
func (i *Identities) For(namespace string) auth.Accounts {
	return view{Identities: i, namespace: namespace}
}

// Own returns the accounts of the identities as their administrator sees them: no grant is asked.
// Only the status of an identity is told with them. No object of a tenant ever gets their tokens.
func (i *Identities) Own() auth.Accounts { return view{Identities: i, own: true} }

// Chain returns the identities of a chain: the subject first, its root last. The error says why the
// chain gives no credential to anybody.
func (i *Identities) Chain(ctx context.Context, subject auth.Subject) ([]auth.Subject, error) {
	c := i.chain(ctx, subject)
	var subjects []auth.Subject
	for _, l := range c.links {
		subjects = append(subjects, l.subject)
	}
	return subjects, c.err
}

// Admits returns why the namespace may not use the identity; nil if it may. A chain that gives no
// credential to anybody for another reason is an error too.
func (i *Identities) Admits(ctx context.Context, namespace string, subject auth.Subject) error {
	return i.admits(i.chain(ctx, subject), namespace, false)
}

// Dependents returns the identities that have the subject in their chain, itself included.
func (i *Identities) Dependents(ctx context.Context, subject auth.Subject) []auth.Subject {
	i.mu.Lock()
	all := slices.Collect(maps.Keys(i.links))
	i.mu.Unlock()
	return slices.DeleteFunc(all, func(s auth.Subject) bool { return !i.chain(ctx, s).needs(subject) })
}

// chain returns the chain of a subject. It takes no lock and does not allocate if the chain is
// known and gives credentials.
func (i *Identities) chain(ctx context.Context, subject auth.Subject) *chain {
	if known, ok := i.chains.Load(subject); ok && known.err == nil {
		return known
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	c := i.follow(ctx, subject)
	if len(c.links) > 0 { // else a tenant could fill the memory with names that do not exist
		i.chains.Store(subject, c)
	}
	return c
}

// labels returns the labels of a namespace; nil if they are not known.
func (i *Identities) labels(namespace string) map[string]string {
	labels, _ := i.namespaces.Load(namespace)
	return labels
}

// forget removes the chains that need a subject, and returns their subjects and the subject itself.
// Callers hold mu.
func (i *Identities) forget(subject auth.Subject) []auth.Subject {
	return i.forgetWhere(func(c *chain) bool { return c.needs(subject) }, subject)
}

// forgetWhere removes the chains for which stale is true. Callers hold mu.
func (i *Identities) forgetWhere(stale func(*chain) bool, also ...auth.Subject) []auth.Subject {
	gone := also
	i.chains.Range(func(subject auth.Subject, c *chain) bool {
		if stale(c) {
			i.chains.Delete(subject)
			if !slices.Contains(gone, subject) {
				gone = append(gone, subject)
			}
		}
		return true
	})
	return gone
}

// notify calls the subscribers. It runs in the goroutine of an informer, after the change of memory,
// so that the credentials are gone before the next change arrives. Withdrawn: credentials are to be
// dropped.
func (i *Identities) notify(subjects []auth.Subject, withdrawn bool) {
	i.mu.Lock()
	var subscribers []func(auth.Subject)
	if withdrawn {
		subscribers = append(subscribers, i.changed...)
	}
	subscribers = append(subscribers, i.usable...)
	i.mu.Unlock()
	for _, changed := range subscribers {
		for _, subject := range subjects {
			changed(subject)
		}
	}
}

// setIdentity stores the current state of an identity. A status that changed is no change. An
// identity that waits for finalizers still serves those that use it.
func (i *Identities) setIdentity(object any) {
	next, ok := linkOf(object)
	if !ok || next.subject.IsZero() {
		return
	}
	i.mu.Lock()
	last := i.links[next.subject]
	if last != nil && last.equal(next) {
		i.mu.Unlock()
		return
	}
	i.links[next.subject] = next
	stale := i.forget(next.subject)
	i.mu.Unlock()
	i.notify(stale, last != nil)
}

func (i *Identities) removeIdentity(object any) {
	gone, ok := linkOf(object)
	if !ok {
		return
	}
	i.mu.Lock()
	delete(i.links, gone.subject)
	stale := i.forget(gone.subject)
	i.mu.Unlock()
	i.notify(stale, true)
}

func (i *Identities) setSecret(object any) {
	secret, ok := object.(*corev1.Secret)
	if !ok || secret.Namespace != i.secretNamespace {
		return
	}
	read := readKeys(secret)
	i.mu.Lock()
	last, known := i.secrets[secret.Name]
	if known && last.equal(read) {
		i.mu.Unlock()
		return
	}
	i.secrets[secret.Name] = read
	i.secretChanged(secret.Name, known)
}

func (i *Identities) removeSecret(object any) {
	secret, ok := object.(*corev1.Secret)
	if !ok || secret.Namespace != i.secretNamespace {
		return
	}
	i.mu.Lock()
	delete(i.secrets, secret.Name)
	i.secretChanged(secret.Name, true)
}

// secretChanged drops what depends on a Secret. It unlocks mu.
func (i *Identities) secretChanged(name string, withdrawn bool) {
	stale := i.forgetWhere(func(c *chain) bool { return c.links[len(c.links)-1].secret == name })
	i.mu.Unlock()
	i.notify(stale, withdrawn)
}

// accountChanged drops what depends on a ServiceAccount.
func (i *Identities) accountChanged(account auth.Subject) {
	if account.Kind() != auth.KindServiceAccount {
		return
	}
	subject, err := auth.Object(kindServiceAccount, account.Namespace(), account.Name())
	if err != nil {
		return
	}
	i.mu.Lock()
	known := i.links[subject] != nil
	stale := i.forget(subject)
	i.mu.Unlock()
	if known {
		i.notify(stale, true)
	}
}

func (i *Identities) setNamespace(object any) {
	namespace, ok := object.(*metav1.PartialObjectMetadata)
	if !ok {
		return
	}
	next := namespace.Labels
	if next == nil {
		next = map[string]string{} // known to have none
	}
	last := i.labels(namespace.Name)
	if last != nil && maps.Equal(last, next) {
		return
	}
	i.namespaces.Store(namespace.Name, next)
	i.labelsChanged(namespace.Name, last, next)
}

func (i *Identities) removeNamespace(object any) {
	namespace, ok := object.(*metav1.PartialObjectMetadata)
	if !ok {
		return
	}
	last, _ := i.namespaces.LoadAndDelete(namespace.Name)
	i.labelsChanged(namespace.Name, last, nil)
}

// labelsChanged tells of the identities whose grant admits the namespace with one of the labels
// only.
func (i *Identities) labelsChanged(namespace string, last, next map[string]string) {
	var withdrawn, admitted []auth.Subject
	i.mu.Lock()
	for subject, l := range i.links {
		before, now := l.grant.Decide(namespace, last).Allowed, l.grant.Decide(namespace, next).Allowed
		if before == now {
			continue
		}
		stale := i.forget(subject)
		if before {
			withdrawn = append(withdrawn, stale...)
		} else {
			admitted = append(admitted, stale...)
		}
	}
	i.mu.Unlock()
	i.notify(withdrawn, true)
	i.notify(admitted, false)
}

// watch is the event handler of an informer, which calls its methods one at a time.
type watch struct{ set, remove func(object any) }

// OnAdd implements the event handler of an informer.
func (w watch) OnAdd(object any, _ bool) { w.set(object) }

// OnUpdate implements the event handler of an informer.
func (w watch) OnUpdate(_, object any) { w.set(object) }

// OnDelete implements the event handler of an informer. If the watch missed the deletion, the last
// state that was seen has the name.
func (w watch) OnDelete(object any) {
	if missed, ok := object.(toolscache.DeletedFinalStateUnknown); ok {
		object = missed.Obj
	}
	w.remove(object)
}

// view is the identities as one namespace may use them.
type view struct {
	*Identities

	namespace string
	own       bool // the administrator's: no grant is asked
	chained   bool // the identity is asked for as the source of another one
}

// Lookup implements [auth.AccountReader]. It asks the grants of the whole chain.
func (v view) Lookup(ctx context.Context, subject auth.Subject) (auth.Account, error) {
	return v.account(v.chain(ctx, subject))
}

// account returns the first identity of a chain if the namespace may use the chain.
func (v view) account(c *chain) (auth.Account, error) {
	err := c.err
	if !v.own {
		err = v.admits(c, v.namespace, v.chained)
	}
	if err != nil {
		return auth.Account{}, err
	}
	return c.account(v.namespace)
}

// Read implements [auth.Prover]. Memory is the source of truth: watches keep it. What it says is in
// the key of the token, so a credential never serves for another state.
func (v view) Read(ctx context.Context, subject auth.Subject) (auth.Account, error) {
	return v.Lookup(ctx, subject)
}

// Prove implements [auth.Prover]. The proof is the credential of the identity's source, static keys
// or, for an AWSServiceAccountIdentity, a token of the ServiceAccount.
func (v view) Prove(ctx context.Context, account auth.Account, request auth.ProofRequest) (auth.Proof, error) {
	c := v.chain(ctx, account.Subject)
	current, err := v.account(c)
	switch {
	case err != nil:
		return nil, err
	case current.UID != account.UID || current.Fingerprint != account.Fingerprint:
		return nil, &auth.Error{
			Stage: auth.StageTokenRequest, Code: auth.CodeSubjectReplaced, Fix: "try again",
			Err: fmt.Errorf("%s changed while its credential was got", nameOf(account.Subject)),
		}
	}
	l := c.links[0]
	switch l.subject.Kind() {
	case kindStatic:
		return aws.StaticToken(c.keys.accessKeyID, c.keys.secretAccessKey, c.keys.sessionToken), nil
	case kindController:
		return v.token(ctx, request.STSRegion, auth.WithController())
	case kindServiceAccount:
		return v.proveAccount(ctx, l, request)
	default:
		source := v
		source.chained = true
		return v.token(ctx, request.STSRegion, auth.WithSubject(l.source, source, source))
	}
}

// token returns the token of a source, from the cache if it has one.
func (v view) token(ctx context.Context, region string, source auth.Option) (auth.Proof, error) {
	return auth.GetToken(ctx, v.provider, source,
		auth.WithTenant(v.namespace), auth.WithSTSRegion(region),
		auth.WithCache(v.cache, auth.InvolvedObject{}), auth.WithObserver(v.observer))
}

// proveAccount returns a token of the ServiceAccount for which the identity stands.
func (v view) proveAccount(ctx context.Context, l *link, request auth.ProofRequest) (auth.Proof, error) {
	subject, err := auth.ServiceAccount(l.subject.Namespace(), l.subject.Name())
	if err != nil {
		return nil, err
	}
	account, err := v.accounts.Read(ctx, subject)
	if err != nil {
		return nil, err
	}
	return v.accounts.Prove(ctx, account, request)
}
