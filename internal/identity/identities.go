package identity

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
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
	// Informers watch the identities, and the metadata of Namespaces. With SecretNamespace they also
	// watch Secrets, and must be limited to that namespace.
	Informers kube.Informers
	// Provider exchanges the proofs.
	Provider auth.Provider
	// ServiceAccounts looks up the ServiceAccounts of AWSServiceAccountIdentities, and gets their
	// tokens.
	ServiceAccounts auth.Accounts
	// Cache caches the credentials of sources.
	Cache auth.Cache
	// Observer is notified of the exchanges of sources.
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

	// chains caches the results of follow, so that a hit takes no lock. A chain is removed when an
	// object that the chain needs changes.
	chains     *xsync.Map[auth.Subject, *chain]
	namespaces *xsync.Map[string, map[string]string] // labels by name
	watches    []toolscache.ResourceEventHandlerRegistration

	mu      sync.Mutex // guards what follows, and all writes to chains; never held during I/O
	links   map[auth.Subject]*link
	secrets map[string]keys
	dropped []func(auth.Subject, func(auth.Key) bool) // called without mu
	changed []func(Use)                               // called without mu
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

// Use is the use of an identity by the objects of a namespace.
type Use struct {
	// Identity is the identity.
	Identity auth.Subject
	// Namespace is the namespace of the objects; empty for the objects of all namespaces.
	Namespace string
}

// Subscribe implements [auth.AccountReader]: changed is called promptly for each identity that has
// at least one credential to drop.
func (i *Identities) Subscribe(changed func(auth.Subject)) {
	i.SubscribeDrops(func(who auth.Subject, _ func(auth.Key) bool) { changed(who) })
}

// SubscribeDrops registers a function that is called promptly for each identity with credentials to
// drop: a value that decides the credentials changed, or nobody may use them any more. The function
// stale selects the keys of these credentials. The token cache must be the first subscriber.
func (i *Identities) SubscribeDrops(dropped func(who auth.Subject, stale func(auth.Key) bool)) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.dropped = append(i.dropped, dropped)
}

// SubscribeUse registers a function that is called promptly for each use whose result may change:
// the identity or its credential changed, or a namespace gained or lost a grant.
func (i *Identities) SubscribeUse(changed func(Use)) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.changed = append(i.changed, changed)
}

// For returns the accounts of the identities that the namespace may use. Their subjects have the
// four kinds of AWS identities.
func (i *Identities) For(namespace string) auth.Accounts {
	return view{Identities: i, namespace: namespace}
}

// Own returns the accounts of the identities for their administrator: no grant is checked. They are
// only for the status of identities. No object of a tenant ever gets their tokens.
func (i *Identities) Own() auth.Accounts { return view{Identities: i, own: true} }

// Chain returns the identities of a chain: the subject first, its root last. The error is the
// reason for which the chain gives no credential to any namespace.
func (i *Identities) Chain(ctx context.Context, subject auth.Subject) ([]auth.Subject, error) {
	c := i.chain(ctx, subject)
	var subjects []auth.Subject
	for _, l := range c.links {
		subjects = append(subjects, l.subject)
	}
	return subjects, i.certain(c.err)
}

// Admits returns an error if the namespace may not use the identity, or if the chain gives no
// credential to any namespace.
func (i *Identities) Admits(ctx context.Context, namespace string, subject auth.Subject) error {
	return i.certain(i.admits(i.chain(ctx, subject), namespace, false))
}

// Begin is like [Identities.Admits], for an object that is about to use the identity. If the
// namespace may use the identity, Begin logs one line with the logger of ctx, which adds the
// object. The line has the session's name in the cloud's audit log, because namespaces share
// sessions.
func (i *Identities) Begin(ctx context.Context, namespace string, subject auth.Subject) error {
	account, err := i.For(namespace).Lookup(ctx, subject)
	if err == nil {
		LogUse(ctx, namespace, account)
	}
	return err
}

// LogUse logs the line of [Identities.Begin] if the account is lent to the namespace.
func LogUse(ctx context.Context, namespace string, account auth.Account) {
	if account.Subject.Lent() {
		log.FromContext(ctx).Info("uses a lent identity",
			"identity", nameOf(account.Subject), "session", account.Attributes[aws.SessionNameAttribute], "consumerNamespace", namespace)
	}
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

// certain returns err, which is a refusal or nil. Before memory is complete, certain replaces a
// refusal with a temporary error: the missing identity or grant may exist.
func (i *Identities) certain(err error) error {
	if err != nil && !i.Synced() {
		return errNotSynced()
	}
	return err
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

// path returns the subjects that an identity needs: the identity itself, its source, and so on,
// including a missing identity. Callers hold mu.
func (i *Identities) path(subject auth.Subject) []auth.Subject {
	met := []auth.Subject{subject}
	for l := i.links[subject]; l != nil && l.subject.Kind() == kindRole && len(met) <= MaxDepth; l = i.links[l.source] {
		if slices.Contains(met, l.source) {
			break
		}
		met = append(met, l.source)
	}
	return met
}

// dependents returns the identities that have the subject in their chain, and the subject itself.
// Callers hold mu.
func (i *Identities) dependents(subject auth.Subject) []auth.Subject {
	found := []auth.Subject{subject}
	if subject.Kind() == kindServiceAccount {
		return found // never a source
	}
	for other, l := range i.links {
		if other != subject && l.subject.Kind() == kindRole && slices.Contains(i.path(other), subject) {
			found = append(found, other)
		}
	}
	return found
}

// forget removes the cached chains that need a subject. It returns the first subjects of these
// chains, and the subject itself. Callers hold mu.
func (i *Identities) forget(subject auth.Subject) []auth.Subject {
	gone := i.dependents(subject)
	for _, s := range gone {
		i.chains.Delete(s)
	}
	return gone
}

// change has the notifications that subscribers get after a change of memory.
type change struct {
	dropped []drop
	uses    []Use
}

// drop selects the credentials of an identity that must be dropped.
type drop struct {
	who   auth.Subject
	stale func(auth.Key) bool
}

func everyKey(auth.Key) bool { return true }

// whole returns the change for all uses of these identities. If withdrawn is true, the change also
// drops all their credentials.
func whole(subjects []auth.Subject, withdrawn bool) change {
	var c change
	for _, subject := range subjects {
		c.uses = append(c.uses, Use{Identity: subject})
		if withdrawn {
			c.dropped = append(c.dropped, drop{subject, everyKey})
		}
	}
	return c
}

// notify calls the subscribers. It runs in the goroutine of an informer, after the change of
// memory, so that the credentials are gone before the next change arrives.
func (i *Identities) notify(c change) {
	i.mu.Lock()
	dropped, changed := slices.Clone(i.dropped), slices.Clone(i.changed)
	i.mu.Unlock()
	for _, subscriber := range dropped {
		for _, d := range c.dropped {
			subscriber(d.who, d.stale)
		}
	}
	for _, subscriber := range changed {
		for _, use := range c.uses {
			subscriber(use)
		}
	}
}

// setIdentity stores the current state of an identity. It ignores a change of the status. An
// identity that waits for finalizers can still be used.
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
	c := whole(stale, last != nil)
	if last != nil && last.sameCredential(next) {
		c = i.regranted(last, next, stale)
	}
	i.mu.Unlock()
	i.notify(c)
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
	i.notify(whole(stale, true))
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

// secretChanged drops the chains and credentials that depend on a Secret. It unlocks mu.
func (i *Identities) secretChanged(name string, withdrawn bool) {
	var stale []auth.Subject
	for subject, l := range i.links {
		if l.secret != name || l.subject.Kind() != kindStatic {
			continue
		}
		stale = append(stale, i.forget(subject)...)
	}
	i.mu.Unlock()
	i.notify(whole(stale, withdrawn))
}

// accountChanged drops the chains and credentials that depend on a ServiceAccount.
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
		i.notify(whole(stale, true))
	}
}

func (i *Identities) setNamespace(object any) {
	namespace, ok := object.(*metav1.PartialObjectMetadata)
	if !ok {
		return
	}
	next := namespace.Labels
	if next == nil {
		next = map[string]string{} // not nil: the namespace exists, without labels
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

// labelsChanged notifies the subscribers of each identity with a grant in its chain that now
// decides differently about the namespace. It notifies them even if another grant of the chain
// still refuses: the refusal names the first grant that refuses.
func (i *Identities) labelsChanged(namespace string, last, next map[string]string) {
	var c change
	i.mu.Lock()
	for subject, l := range i.links {
		if l.subject.Kind() == kindServiceAccount {
			continue // its namespace decides, not the labels
		}
		path := i.path(subject)
		if slices.ContainsFunc(path, func(s auth.Subject) bool {
			l := i.links[s]
			return l != nil && l.admits(namespace, last) != l.admits(namespace, next)
		}) {
			c.uses = append(c.uses, Use{subject, namespace})
		}
		if i.lends(path, namespace, last) && !i.lends(path, namespace, next) {
			c.dropped = append(c.dropped, i.unused(path, []string{namespace})...)
		}
	}
	i.mu.Unlock()
	i.notify(c)
}

// regranted returns the effects of a changed grant of one link. They are the uses of the namespaces
// that gain or lose the link, in all chains with this link, and the credentials of chains that
// nobody may use any more. Callers hold mu.
func (i *Identities) regranted(last, next *link, dependents []auth.Subject) change {
	var told, lost []string // namespaces
	i.namespaces.Range(func(namespace string, labels map[string]string) bool {
		before, now := last.admits(namespace, labels), next.admits(namespace, labels)
		if before != now {
			told = append(told, namespace)
		}
		if before && !now {
			lost = append(lost, namespace)
		}
		return true
	})
	var c change
	if last.sourceOnly != next.sourceOnly {
		c.uses = append(c.uses, Use{Identity: next.subject})
	}
	for _, subject := range dependents {
		path := i.path(subject)
		for _, namespace := range told {
			c.uses = append(c.uses, Use{subject, namespace})
		}
		others := slices.DeleteFunc(slices.Clone(path), func(s auth.Subject) bool { return s == next.subject })
		withdrawn := slices.DeleteFunc(slices.Clone(lost), func(namespace string) bool {
			return !i.lends(others, namespace, i.labels(namespace))
		})
		c.dropped = append(c.dropped, i.unused(path, withdrawn)...)
	}
	return c
}

// lends reports whether every known identity of a path admits the namespace. Callers hold mu.
func (i *Identities) lends(path []auth.Subject, namespace string, labels map[string]string) bool {
	for _, subject := range path {
		if l := i.links[subject]; l != nil && !l.admits(namespace, labels) {
			return false
		}
	}
	return true
}

// unused returns the credentials of a path's first identity that nobody may use any more, after the
// namespaces in lost have lost the identity. Namespaces share its sessions, unless each namespace
// has its own. Callers hold mu.
func (i *Identities) unused(path []auth.Subject, lost []string) []drop {
	if len(lost) == 0 {
		return nil
	}
	used := false
	i.namespaces.Range(func(namespace string, labels map[string]string) bool {
		used = i.lends(path, namespace, labels)
		return !used
	})
	if !used {
		return []drop{{path[0], everyKey}}
	}
	for _, subject := range path {
		if l := i.links[subject]; l != nil && l.perNamespace {
			return []drop{{path[0], func(key auth.Key) bool {
				_, namespace, own := strings.Cut(key.IdentityFingerprint, "@")
				return own && slices.Contains(lost, namespace)
			}}}
		}
	}
	return nil
}

// watch is the event handler of an informer, which calls its methods one at a time.
type watch struct{ set, remove func(object any) }

// OnAdd implements the event handler of an informer.
func (w watch) OnAdd(object any, _ bool) { w.set(object) }

// OnUpdate implements the event handler of an informer.
func (w watch) OnUpdate(_, object any) { w.set(object) }

// OnDelete implements the event handler of an informer. If the watch missed the deletion, OnDelete
// uses the last known state of the object.
func (w watch) OnDelete(object any) {
	if missed, ok := object.(toolscache.DeletedFinalStateUnknown); ok {
		object = missed.Obj
	}
	w.remove(object)
}

// view is the access of one namespace to the identities.
type view struct {
	*Identities

	namespace string
	own       bool // the administrator's view: no grant is checked
	chained   bool // the identity is used as the source of another identity
}

// Lookup implements [auth.AccountReader]. It checks the grants of the whole chain.
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
		return auth.Account{}, v.certain(err)
	}
	return c.account(v.namespace)
}

// Read implements [auth.Prover]. It reads memory, which watches update. The account's state is part
// of the token's key, so a credential is never served for another state.
func (v view) Read(ctx context.Context, subject auth.Subject) (auth.Account, error) {
	account, err := v.Lookup(ctx, subject)
	return account, withoutConsumer(subject, err)
}

// Prove implements [auth.Prover]. The proof is the credential of the identity's source, static keys
// or, for an AWSServiceAccountIdentity, a token of the ServiceAccount.
func (v view) Prove(ctx context.Context, account auth.Account, request auth.ProofRequest) (auth.Proof, error) {
	proof, err := v.prove(ctx, account, request)
	return proof, withoutConsumer(account.Subject, err)
}

func (v view) prove(ctx context.Context, account auth.Account, request auth.ProofRequest) (auth.Proof, error) {
	c := v.chain(ctx, account.Subject)
	current, err := v.account(c)
	switch {
	case err != nil:
		return nil, err
	case current.UID != account.UID || current.Fingerprint != account.Fingerprint:
		return nil, errReplaced(account.Subject)
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
		return v.token(ctx, request.STSRegion, auth.WithSubject(l.source, source))
	}
}

// token returns the token of a source, from the cache if the cache has the token.
func (v view) token(ctx context.Context, region string, source auth.Option) (auth.Proof, error) {
	return auth.GetToken(ctx, v.provider, source,
		auth.WithTenant(v.namespace), auth.WithSTSRegion(region),
		auth.WithCache(v.cache, auth.InvolvedObject{}), auth.WithObserver(v.observer))
}

// proveAccount returns a token of the ServiceAccount that the identity stands for.
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
