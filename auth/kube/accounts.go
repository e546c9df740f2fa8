package kube

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"

	"github.com/lanyard-dev/lanyard/auth"
)

// callTimeout bounds one call to the API server. It is shorter than the timeout of a cache's exchange, so that the error says
// which call was slow.
const callTimeout = 10 * time.Second

// Informers gives the informer of a kind; [cache.Cache] is one.
type Informers interface {
	// GetInformer gets or starts the informer for obj's kind.
	GetInformer(ctx context.Context, obj client.Object, opts ...cache.InformerGetOption) (cache.Informer, error)
}

// Options configure [Accounts].
type Options struct {
	// Informers watch the accounts' metadata. They must see every namespace whose accounts are asked for: tokens of
	// accounts that they do not see are never cached. Required; [FromManager] takes the manager's cache.
	Informers Informers
	// APIReader reads accounts live, never from a cache. Required; [FromManager] makes one.
	APIReader client.Reader
	// Client creates TokenRequests and, to learn the API server's audiences, one SelfSubjectReview. Its scheme knows v1
	// and authentication.k8s.io/v1. Required; [FromManager] makes one.
	Client client.Client
	// APIAudiences are all audiences that the API server accepts for itself (its flag --api-audiences; when that is not
	// set, --service-account-issuer). No proof is made for any of them. Default: learned once, from a token without
	// audience of the program's own ServiceAccount.
	APIAudiences []string
	// Annotations are those that providers read; give [ByObject] the same. Default: [DefaultAnnotations].
	Annotations Annotations
}

// Accounts reads and proves the ServiceAccounts of a cluster. It is safe for concurrent use.
type Accounts struct {
	index        *index
	reader       client.Reader
	client       client.Client
	apiAudiences []string
	self         string // this program's user name at the API server; empty when nobody had to ask
}

var _ auth.Accounts = (*Accounts)(nil)

// FromManager is [NewAccounts] with the manager's cache, and with live access through the manager's connection, unless the
// options name others. The manager need not run yet; [ByObject] keeps its cache small.
func FromManager(ctx context.Context, mgr cluster.Cluster, options Options) (*Accounts, error) {
	if options.Informers == nil {
		options.Informers = mgr.GetCache()
	}
	if options.APIReader == nil || options.Client == nil {
		live, err := newClient(mgr)
		if err != nil {
			return nil, fmt.Errorf("make a client for ServiceAccounts: %w", err)
		}
		if options.APIReader == nil {
			options.APIReader = live
		}
		if options.Client == nil {
			options.Client = live
		}
	}
	return NewAccounts(ctx, options)
}

// NewAccounts starts to watch ServiceAccounts. Unless the options name the API server's audiences, it learns them with two
// calls; if that fails, the error says what to do.
func NewAccounts(ctx context.Context, options Options) (*Accounts, error) {
	switch {
	case options.Informers == nil:
		return nil, errors.New("kube: Options.Informers is required")
	case options.APIReader == nil:
		return nil, errors.New("kube: Options.APIReader is required")
	case options.Client == nil:
		return nil, errors.New("kube: Options.Client is required")
	case slices.Contains(options.APIAudiences, ""):
		return nil, errors.New("kube: Options.APIAudiences has an empty audience")
	}
	if options.Annotations == nil {
		options.Annotations = DefaultAnnotations()
	}
	a := &Accounts{
		index:        newIndex(options.Annotations),
		reader:       options.APIReader,
		client:       options.Client,
		apiAudiences: slices.Clone(options.APIAudiences),
	}
	if len(a.apiAudiences) == 0 {
		if err := a.learnAudiences(ctx); err != nil {
			return nil, fmt.Errorf("learn which audiences the API server accepts, with a token of this program's own account: %w; a program that knows them may name them instead (kube.Options.APIAudiences)", err)
		}
	}
	informer, err := options.Informers.GetInformer(ctx, metadata(), cache.BlockUntilSynced(false))
	if err != nil {
		return nil, fmt.Errorf("watch ServiceAccounts: %w", err)
	}
	if _, err := informer.AddEventHandler(a.index); err != nil {
		return nil, fmt.Errorf("watch ServiceAccounts: %w", err)
	}
	return a, nil
}

// Lookup implements [auth.AccountReader]. It takes no lock and does not allocate. Like Read, it refuses an account with an annotation
// of more than [MaxAnnotation] bytes.
func (a *Accounts) Lookup(_ context.Context, subject auth.Subject) (auth.Account, error) {
	known, ok := a.index.records.Load(subject)
	if !ok {
		return auth.Account{}, notFound(auth.StageSubject, subject, "is not known")
	}
	return known.account(subject)
}

// Subscribe implements [auth.AccountReader]. changed is called when an account is created, when its UID or an annotation
// that providers read changes, and when it goes; by then Lookup answers with what is new. It is not called for the accounts
// that are there when the watch begins.
//
// The goroutine that follows the watch calls all subscribers, one after the other, in the order in which they subscribed. So changed must
// return at once, without I/O, and leave longer work to a queue; otherwise everybody hears of later changes late. Subscribe the token
// cache (Invalidate of package auth/cache) first, so that no later subscriber finds a token from before the change.
func (a *Accounts) Subscribe(changed func(auth.Subject)) { a.index.subscribe(changed) }

// Read implements [auth.Prover] with a live GET of the account's metadata. An account that is being deleted is gone.
func (a *Accounts) Read(ctx context.Context, subject auth.Subject) (auth.Account, error) {
	if err := isServiceAccount(subject); err != nil {
		return auth.Account{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	object := metadata()
	err := a.reader.Get(ctx, client.ObjectKey{Namespace: subject.Namespace(), Name: subject.Name()}, object)
	if err != nil {
		return auth.Account{}, a.failure(ctx, err, auth.StageSubject, subject)
	}
	if object.DeletionTimestamp != nil {
		return auth.Account{}, notFound(auth.StageSubject, subject, "is being deleted")
	}
	return a.index.annotations.record(object).account(subject)
}

// newClient makes a client that reads nothing from a cache and needs no discovery. The manager's own client may read from
// its cache, and its scheme may lack what we need.
func newClient(mgr cluster.Cluster) (client.Client, error) {
	scheme := runtime.NewScheme()
	if err := errors.Join(corev1.AddToScheme(scheme), authenticationv1.AddToScheme(scheme)); err != nil {
		return nil, err
	}
	mapper := meta.NewDefaultRESTMapper(nil)
	mapper.Add(corev1.SchemeGroupVersion.WithKind("ServiceAccount"), meta.RESTScopeNamespace)
	mapper.Add(authenticationv1.SchemeGroupVersion.WithKind("SelfSubjectReview"), meta.RESTScopeRoot)
	return client.New(mgr.GetConfig(), client.Options{HTTPClient: mgr.GetHTTPClient(), Scheme: scheme, Mapper: mapper})
}

func metadata() *metav1.PartialObjectMetadata {
	object := &metav1.PartialObjectMetadata{}
	object.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("ServiceAccount"))
	return object
}

func isServiceAccount(subject auth.Subject) error {
	if subject.Kind() == auth.KindServiceAccount {
		return nil
	}
	return &auth.Error{
		Stage: auth.StageSubject, Code: auth.CodeSubjectInvalid,
		Fix: "name a ServiceAccount, or pass the Prover of that kind of subject",
		Err: fmt.Errorf("%s is not a ServiceAccount", subject),
	}
}
