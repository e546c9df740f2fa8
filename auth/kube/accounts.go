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
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"

	"github.com/lanyard-dev/lanyard/auth"
	"github.com/lanyard-dev/lanyard/auth/svid"
)

// callTimeout bounds one call to the API server. It is shorter than the time that package
// auth/cache allows for a whole exchange, so that the error says which call was slow.
const callTimeout = 10 * time.Second

// printAudiences is the command that prints the API server's audiences. The command requests a
// token and names no audience; the API server then fills in all of its own audiences. Source:
// k8s.io/kubernetes pkg/registry/core/serviceaccount/storage/token.go.
const printAudiences = "kubectl create token default -o jsonpath='{.spec.audiences[*]}'"

// Informers returns informers by kind. A [cache.Cache] is an Informers.
type Informers interface {
	// GetInformer returns the informer of obj's kind, and starts it if needed.
	GetInformer(ctx context.Context, obj client.Object, opts ...cache.InformerGetOption) (cache.Informer, error)
}

// Options configure [Accounts].
type Options struct {
	// Informers watch the accounts' metadata. They must watch every namespace with subjects,
	// because a token is cached only if the informers see its account. Required; [FromManager] uses
	// the manager's cache.
	Informers Informers
	// APIReader reads accounts live, never from a cache. Required; [FromManager] makes one.
	APIReader client.Reader
	// Client creates TokenRequests and, to learn the API server's audiences, one SelfSubjectReview.
	// Its scheme contains v1 and authentication.k8s.io/v1. Required; [FromManager] makes one.
	Client client.Client
	// APIAudiences are all audiences that the API server accepts for itself. They are the value of
	// its flag --api-audiences or, without this flag, --service-account-issuer. Proofs never have
	// these audiences. By default NewAccounts learns the audiences from a token of the program's
	// own ServiceAccount. A program that is not a ServiceAccount must set APIAudiences. This
	// command prints the audiences:
	//
	//	kubectl create token default -o jsonpath='{.spec.audiences[*]}'
	APIAudiences []string
	// Annotations are the annotations that providers read. Pass the same annotations to [ByObject].
	// Default: [DefaultAnnotations].
	Annotations Annotations
}

// Accounts reads the ServiceAccounts of a cluster and makes their proofs. It is safe for concurrent
// use.
type Accounts struct {
	index        *index
	reader       client.Reader
	client       client.Client
	apiAudiences []string
	caller       caller
	watch        toolscache.ResourceEventHandlerRegistration
}

var _ auth.Accounts = (*Accounts)(nil)

// FromManager makes an Accounts as [NewAccounts] does. Options that are not set come from the
// manager. Informers is then the manager's cache. APIReader and Client use the manager's
// connection, but no cache. The manager need not run yet. Set [ByObject] in the manager's options
// to keep its cache small.
func FromManager(ctx context.Context, mgr cluster.Cluster, options Options) (*Accounts, error) {
	if err := connect(mgr, "ServiceAccounts", &options.Informers, &options.APIReader, &options.Client); err != nil {
		return nil, err
	}
	return NewAccounts(ctx, options)
}

// NewAccounts makes an Accounts and starts to watch ServiceAccounts. If the options do not set the
// API server's audiences, NewAccounts learns the audiences with two calls. If a call fails, the
// error says what to do.
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
		index:        newIndex(options.Annotations.source()),
		reader:       options.APIReader,
		client:       options.Client,
		apiAudiences: slices.Clone(options.APIAudiences),
		caller:       accountCaller(),
	}
	var err error
	if len(a.apiAudiences) == 0 {
		if a.caller.self, a.apiAudiences, err = learnAudiences(ctx, a.client, a.caller); err != nil {
			return nil, fmt.Errorf("learn which audiences the API server accepts, with a token of this program's own account: %w; or set "+
				"kube.Options.APIAudiences to what this command prints: %s", err, printAudiences)
		}
	}
	if a.watch, err = watch(ctx, options.Informers, "ServiceAccounts", metadata(), a.index); err != nil {
		return nil, err
	}
	return a, nil
}

// Lookup implements [auth.AccountReader]. It takes no lock and does not allocate. Like Read, it
// refuses an account with an annotation of more than [MaxAnnotation] bytes.
func (a *Accounts) Lookup(_ context.Context, subject auth.Subject) (auth.Account, error) {
	return a.index.lookup(subject)
}

// Synced reports whether the index has all accounts that existed when the watch began.
func (a *Accounts) Synced() bool { return a.watch.HasSynced() }

// Subscribe implements [auth.AccountReader]. The given function is called when an account is
// created or deleted, and when the account's UID or an annotation that providers read has changed.
// Lookup then already returns the new state. There is no call for the accounts that exist when the
// watch begins.
//
// One goroutine follows the watch and calls all subscribers, in the order of their subscription. A
// slow function delays all later changes. So the function must return at once, without I/O, and
// leave longer work to a queue.
//
// Subscribe the token cache (Invalidate of package auth/cache) first. Otherwise an earlier
// subscriber may find a token from before the change.
func (a *Accounts) Subscribe(changed func(auth.Subject)) { a.index.subscribe(changed) }

// Read implements [auth.Prover] with a live GET of the account's metadata. An account that is being
// deleted counts as deleted.
func (a *Accounts) Read(ctx context.Context, subject auth.Subject) (auth.Account, error) {
	if err := checkKind(subject, auth.KindServiceAccount); err != nil {
		return auth.Account{}, err
	}
	return a.index.read(ctx, a.reader, a.caller, subject, metadata())
}

// APIAudiences returns the audiences that the API server accepts for itself. Proofs never have
// these audiences.
func (a *Accounts) APIAudiences() []string { return slices.Clone(a.apiAudiences) }

// Self returns this program's own ServiceAccount. It is zero if Options.APIAudiences was set,
// because then the API server was not asked who this program is.
func (a *Accounts) Self() auth.Subject {
	self, _ := auth.ParseSubject(a.caller.self) // the zero Subject if self is empty
	return self
}

// connect sets options that are nil: informers to the manager's cache, reader and writer to a new
// client. Its error says what the client is for, such as "ServiceAccounts".
func connect(mgr cluster.Cluster, subjects string, informers *Informers, reader *client.Reader, writer *client.Client) error {
	if *informers == nil {
		*informers = mgr.GetCache()
	}
	if *reader != nil && *writer != nil {
		return nil
	}
	live, err := newClient(mgr)
	if err != nil {
		return fmt.Errorf("make a client for %s: %w", subjects, err)
	}
	if *reader == nil {
		*reader = live
	}
	if *writer == nil {
		*writer = live
	}
	return nil
}

// newClient makes a client that uses no cache and no discovery. The manager's own client may read
// from its cache, and its scheme may lack our types.
func newClient(mgr cluster.Cluster) (client.Client, error) {
	scheme := runtime.NewScheme()
	if err := errors.Join(corev1.AddToScheme(scheme), authenticationv1.AddToScheme(scheme)); err != nil {
		return nil, err
	}
	mapper := meta.NewDefaultRESTMapper(nil)
	mapper.Add(corev1.SchemeGroupVersion.WithKind("ServiceAccount"), meta.RESTScopeNamespace)
	mapper.Add(authenticationv1.SchemeGroupVersion.WithKind("SelfSubjectReview"), meta.RESTScopeRoot)
	mapper.Add(identityGroup().WithKind(workloadIdentity), meta.RESTScopeNamespace)
	mapper.Add(tokenGroup().WithKind(workloadIdentity), meta.RESTScopeNamespace)
	for _, kind := range svid.Kinds() {
		mapper.Add(toolkitGroup().WithKind(string(kind)), meta.RESTScopeNamespace)
		mapper.Add(tokenGroup().WithKind(string(kind)), meta.RESTScopeNamespace)
	}
	return client.New(mgr.GetConfig(), client.Options{HTTPClient: mgr.GetHTTPClient(), Scheme: scheme, Mapper: mapper})
}

func metadata() *metav1.PartialObjectMetadata {
	return &metav1.PartialObjectMetadata{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ServiceAccount"}}
}

// checkKind refuses a subject that is not of the given kind.
func checkKind(subject auth.Subject, kind auth.Kind) error {
	if subject.Kind() == kind {
		return nil
	}
	return &auth.Error{
		Stage: auth.StageSubject, Code: auth.CodeSubjectInvalid,
		Fix: "name a " + string(kind) + ", or pass the Prover of that kind of subject",
		Err: fmt.Errorf("%s is not a %s", subject, kind),
	}
}
