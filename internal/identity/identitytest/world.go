// Package identitytest simulates a cluster's AWS identities and AWS itself, without an API server.
// Only tests import this package.
package identitytest

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	kubecache "sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	informers "sigs.k8s.io/controller-runtime/pkg/controller/controllertest"

	"github.com/lanyard-dev/lanyard/api/identity/v1alpha1"
	"github.com/lanyard-dev/lanyard/auth"
	"github.com/lanyard-dev/lanyard/auth/aws"
	"github.com/lanyard-dev/lanyard/auth/cache"
	"github.com/lanyard-dev/lanyard/auth/spec"
	"github.com/lanyard-dev/lanyard/cloudtest"
	cloudaws "github.com/lanyard-dev/lanyard/cloudtest/aws"
	"github.com/lanyard-dev/lanyard/cloudtest/journal"
	"github.com/lanyard-dev/lanyard/cloudtest/oidc"
	"github.com/lanyard-dev/lanyard/internal/identity"
	"github.com/lanyard-dev/lanyard/internal/must"
)

// The accounts of the local AWS, and their contents.
const (
	Management = "111122223333" // AWS account with an IAM user named root
	Workload   = "222233334444" // another account
	Region     = "eu-west-1"    // region of the provider
	// IssuerURL is the issuer of ServiceAccount tokens. The AWS account Management trusts it.
	IssuerURL = "https://oidc.example.com/cluster"
	KeyID     = "AKIAROOTROOTROOTROOT"    //nolint:gosec // of the user root, in the local cloud only
	SecretKey = "root-secret-root-secret" // valid only in the local cloud
	Secrets   = "lanyard-identities"      // the namespace of Secrets
	Root      = "arn:aws:iam::" + Management + ":user/root"
)

// World simulates the AWS identities of a cluster, and AWS itself.
type World struct {
	// Cloud is the local AWS.
	Cloud *cloudtest.Cloud
	// Provider sends its requests to Cloud.
	Provider *aws.Provider
	// Tokens is the cache of credentials.
	Tokens *cache.Cache
	// Accounts are the cluster's ServiceAccounts.
	Accounts *Accounts
	// Identities are the AWS identities of the cluster.
	Identities *identity.Identities

	t         testing.TB
	issuer    *oidc.Issuer
	informers feeds
	known     map[string]client.Object // by type and key
}

// New returns a World with two namespaces: team-a with the label team=a, and team-b with the label
// team=b. Requests reach the local AWS in memory, so that tests can use a fake clock.
func New(tb testing.TB, options ...func(*identity.Options)) *World {
	tb.Helper()
	w := Starting(tb, options...)
	w.Sync()
	for _, name := range []string{"team-a", "team-b"} {
		w.Namespace(name, map[string]string{"team": strings.TrimPrefix(name, "team-")})
	}
	return w
}

// Starting is like [New] for a program that has just started. The watches have not synced, and no
// object is known.
func Starting(tb testing.TB, options ...func(*identity.Options)) *World {
	tb.Helper()
	w := &World{t: tb, known: map[string]client.Object{}}
	var err error
	everything := Policy(map[string]any{
		"Effect": "Allow", "Action": []string{"sts:AssumeRole", "sts:TagSession", "sts:SetSourceIdentity"}, "Resource": "*",
	})
	w.Cloud, err = cloudtest.New(cloudtest.Config{AWS: cloudaws.Config{Accounts: []cloudaws.Account{
		{
			ID:            Management,
			OIDCProviders: []cloudaws.OIDCProvider{{URL: IssuerURL, ClientIDs: []string{"sts.amazonaws.com", "custom"}}},
			Users: []cloudaws.User{{
				Name: "root", AccessKeys: []cloudaws.AccessKey{{ID: KeyID, Secret: SecretKey}},
				Policies: map[string]json.RawMessage{"all": everything},
			}},
		},
		{ID: Workload, ManagedPolicies: map[string]json.RawMessage{
			"restricted": Policy(map[string]any{"Effect": "Allow", "Action": "sts:GetCallerIdentity", "Resource": "*"}),
		}},
	}}})
	must.Succeed(tb, err)
	w.issuer, err = oidc.NewIssuer(IssuerURL, oidc.ES256)
	must.Succeed(tb, err)
	must.Succeed(tb, w.Cloud.HandleIssuer(w.issuer))
	tb.Cleanup(func() { must.Succeed(tb, w.Cloud.Close()) })
	w.Provider, err = aws.NewProvider(aws.Config{Region: Region, Transport: w.Cloud.Transport()})
	must.Succeed(tb, err)
	tb.Cleanup(w.Provider.Close)

	w.informers = feeds{}
	w.Tokens, w.Accounts = cache.New(cache.Options{}), &Accounts{issuer: w.issuer, known: map[auth.Subject]string{}}
	o := identity.Options{
		Informers: w.informers, Provider: w.Provider, ServiceAccounts: w.Accounts,
		Cache: w.Tokens, Observer: w.Tokens, SecretNamespace: Secrets,
	}
	for _, change := range options {
		change(&o)
	}
	w.Identities, err = identity.New(tb.Context(), o)
	must.Succeed(tb, err)
	w.Identities.SubscribeDrops(w.Tokens.InvalidateKeys)
	return w
}

// Sync marks all watches as synced.
func (w *World) Sync() {
	for _, informer := range w.informers {
		informer.Synced()
	}
}

// Policy returns an IAM policy document with these statements.
func Policy(statements ...map[string]any) json.RawMessage {
	data, err := json.Marshal(map[string]any{"Version": "2012-10-17", "Statement": statements})
	if err != nil {
		panic(err)
	}
	return data
}

// Put adds or updates an object, as the informer does after a write to the API server.
func (w *World) Put(o client.Object) {
	w.t.Helper()
	informer := w.informerOf(o)
	key := fmt.Sprintf("%T %s/%s", o, o.GetNamespace(), o.GetName())
	if o.GetUID() == "" {
		o.SetUID(types.UID("uid-" + o.GetName()))
	}
	if last := w.known[key]; last != nil {
		informer.Update(last, o)
	} else {
		informer.Add(o)
	}
	w.known[key] = o
}

// Remove deletes an object, as the informer does after a deletion at the API server.
func (w *World) Remove(o client.Object) {
	w.t.Helper()
	delete(w.known, fmt.Sprintf("%T %s/%s", o, o.GetNamespace(), o.GetName()))
	w.informerOf(o).Delete(o)
}

func (w *World) informerOf(o client.Object) *informers.FakeInformer {
	return w.informers[fmt.Sprintf("%T", o)]
}

// feeds has an informer for each Go type of objects.
type feeds map[string]*informers.FakeInformer

// GetInformer implements kube.Informers.
func (f feeds) GetInformer(_ context.Context, o client.Object, _ ...kubecache.InformerGetOption) (kubecache.Informer, error) {
	made := informers.NewFakeInformer()
	f[fmt.Sprintf("%T", o)] = made
	return made, nil
}

// Namespace makes or changes a namespace.
func (w *World) Namespace(name string, labels map[string]string) {
	w.t.Helper()
	namespace := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}}
	namespace.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Namespace"))
	w.Put(namespace)
}

// Admits returns a spec with a grant to the given namespaces. Without arguments, the grant is to
// all namespaces.
func Admits(namespaces ...string) v1alpha1.AWSClusterIdentitySpec {
	return v1alpha1.AWSClusterIdentitySpec{AllowedNamespaces: &v1alpha1.AllowedNamespaces{All: len(namespaces) == 0, List: namespaces}}
}

// Static makes or changes a static identity. It has the access key of an IAM user whose name is
// root.
func (w *World) Static(name string, spec v1alpha1.AWSClusterIdentitySpec) auth.Subject {
	w.t.Helper()
	w.Secret("keys", map[string]string{"accessKeyID": KeyID, "secretAccessKey": SecretKey})
	w.Put(&v1alpha1.AWSClusterStaticIdentity{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: v1alpha1.AWSClusterStaticIdentitySpec{
			AWSClusterIdentitySpec: spec, SecretRef: v1alpha1.AWSClusterSecretReference{Name: "keys"},
		},
	})
	return w.Subject(v1alpha1.AWSClusterStaticIdentityKind, "", name)
}

// Secret makes or changes a Secret with static keys.
func (w *World) Secret(name string, data map[string]string) {
	w.t.Helper()
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: Secrets, Name: name}, Type: v1alpha1.SecretTypeAWSStatic, Data: map[string][]byte{},
	}
	for key, value := range data {
		secret.Data[key] = []byte(value)
	}
	w.Put(secret)
}

// RoleSpec returns the spec of a role identity. Its source is a static identity, or a role identity
// if source begins with "role/".
func RoleSpec(arn, source string, spec v1alpha1.AWSClusterIdentitySpec) v1alpha1.AWSClusterRoleIdentitySpec {
	kind := v1alpha1.AWSClusterStaticIdentityKind
	if name, isRole := strings.CutPrefix(source, "role/"); isRole {
		kind, source = v1alpha1.AWSClusterRoleIdentityKind, name
	}
	return v1alpha1.AWSClusterRoleIdentitySpec{
		AWSClusterIdentitySpec: spec, AWSRoleSpec: v1alpha1.AWSRoleSpec{RoleARN: arn},
		SourceIdentityRef: &v1alpha1.AWSClusterIdentityReference{Kind: kind, Name: source},
	}
}

// Role makes or changes a role identity.
func (w *World) Role(name string, spec v1alpha1.AWSClusterRoleIdentitySpec) auth.Subject {
	w.t.Helper()
	w.Put(&v1alpha1.AWSClusterRoleIdentity{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: spec})
	return w.Subject(v1alpha1.AWSClusterRoleIdentityKind, "", name)
}

// Subject returns the subject of an identity.
func (w *World) Subject(kind, namespace, name string) auth.Subject {
	w.t.Helper()
	subject, err := spec.AWSIdentity(kind, namespace, name)
	must.Succeed(w.t, err)
	return subject
}

// CloudRole makes a role in the local AWS, and returns the role's ARN. The role trusts the
// principal.
func (w *World) CloudRole(account, name, principal string, conditions map[string]any) string {
	w.t.Helper()
	if conditions == nil {
		conditions = map[string]any{}
	}
	err := w.Cloud.AWS().PutRole(account, cloudaws.Role{
		Name: name, MaxSessionDuration: 43200,
		TrustPolicy: Policy(map[string]any{
			"Effect": "Allow", "Principal": map[string]string{"AWS": principal}, "Condition": conditions,
			"Action": []string{"sts:AssumeRole", "sts:TagSession", "sts:SetSourceIdentity"},
		}),
		Policies: map[string]json.RawMessage{"all": Policy(map[string]any{"Effect": "Allow", "Action": "sts:*", "Resource": "*"})},
	})
	must.Succeed(w.t, err)
	return "arn:aws:iam::" + account + ":role/" + name
}

// Get gets the identity's token on behalf of the namespace.
func (w *World) Get(namespace string, subject auth.Subject, more ...auth.Option) (*aws.Token, auth.Key, error) {
	view := w.Identities.For(namespace)
	options := append([]auth.Option{
		auth.WithSubject(subject, view), auth.WithTenant(namespace), auth.WithCache(w.Tokens, auth.InvolvedObject{}),
	}, more...)
	token, key, err := auth.GetTokenAndKey(w.t.Context(), w.Provider, options...)
	if err != nil {
		return nil, auth.Key{}, err
	}
	return token.(*aws.Token), key, nil // an AWS provider returns this type
}

// MustGet is like Get, but fails the test if there is an error.
func (w *World) MustGet(namespace string, subject auth.Subject) *aws.Token {
	w.t.Helper()
	token, _, err := w.Get(namespace, subject)
	must.Succeed(w.t, err)
	return token
}

// Count returns how often an operation of STS was called.
func (w *World) Count(operation string) int {
	n := 0
	for _, call := range w.Cloud.Journal().Calls(journal.Filter{Service: "sts"}) {
		if call.Operation == operation {
			n++
		}
	}
	return n
}

// Accounts are ServiceAccounts whose tokens the issuer signs.
type Accounts struct {
	issuer  *oidc.Issuer
	known   map[auth.Subject]string // UID of each ServiceAccount
	changed []func(auth.Subject)
	// Asked has the requests for proofs.
	Asked []auth.ProofRequest
}

// Put makes or replaces a ServiceAccount.
func (a *Accounts) Put(subject auth.Subject, uid string) {
	a.known[subject] = uid
	for _, changed := range a.changed {
		changed(subject)
	}
}

// Lookup implements auth.AccountReader.
func (a *Accounts) Lookup(_ context.Context, subject auth.Subject) (auth.Account, error) {
	uid, ok := a.known[subject]
	if !ok {
		return auth.Account{}, &auth.Error{Stage: auth.StageSubject, Code: auth.CodeSubjectNotFound, Fix: "create it"}
	}
	return auth.Account{Subject: subject, UID: uid}, nil
}

// Subscribe implements auth.AccountReader.
func (a *Accounts) Subscribe(changed func(auth.Subject)) { a.changed = append(a.changed, changed) }

// Read implements auth.Prover.
func (a *Accounts) Read(ctx context.Context, subject auth.Subject) (auth.Account, error) {
	return a.Lookup(ctx, subject)
}

// Prove implements auth.Prover.
func (a *Accounts) Prove(_ context.Context, account auth.Account, request auth.ProofRequest) (auth.Proof, error) {
	a.Asked = append(a.Asked, request)
	ends := time.Now().Add(request.Lifetime)
	token, err := a.issuer.Mint(oidc.Claims{"sub": account.Subject.String(), "aud": request.Audiences, "exp": ends.Unix()})
	return &auth.JWT{Token: auth.NewSecret(token), ExpiresAt: ends}, err
}
