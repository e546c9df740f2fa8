package binding_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"errors"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	identityv1 "github.com/lanyard-dev/lanyard/api/identity/v1alpha1"
	"github.com/lanyard-dev/lanyard/api/meta"
	"github.com/lanyard-dev/lanyard/auth"
	"github.com/lanyard-dev/lanyard/internal/controller/binding"
	"github.com/lanyard-dev/lanyard/internal/controller/controllertest"
	"github.com/lanyard-dev/lanyard/internal/controller/object"
	"github.com/lanyard-dev/lanyard/internal/controller/tenant"
	"github.com/lanyard-dev/lanyard/internal/identity/identitytest"
	"github.com/lanyard-dev/lanyard/internal/issuer"
	"github.com/lanyard-dev/lanyard/internal/kinds"
	"github.com/lanyard-dev/lanyard/internal/must"
)

var errDown = errors.New("the token server does not answer")

const (
	issuerURL   = "https://issuer.example.com"
	identityUID = "12b580fe-1f74-4195-852b-e1a74b03496a"
	bindingUID  = "54d09554-6a68-4f46-a23a-e3592385d820"
	roleARN     = "arn:aws:iam::112233445566:role/gardener-dev"
)

// world has a fake API server, a fake token server and the reconciler of bindings.
type world struct {
	t      *testing.T
	kube   client.WithWatch
	server *tokenServer
	r      *binding.Reconciler
	hub    *stubHub            // nil if the identities are in the binding's cluster
	lent   *identitytest.World // nil without AWS identities

	renewals *binding.Renewals
	events   *events.FakeRecorder
	options  func(*binding.Options) // changes the reconciler's options; nil for no change

	forbidden bool // RBAC does not allow the controller to read Secrets
	conflict  bool // the next write to the binding fails with a conflict

	writes   []string          // verbs of the calls that wrote a Secret
	gets     int               // number of reads of Secrets
	statuses int               // number of writes of the binding's status
	before   func(verb string) // called before each write of a Secret; may be nil
}

func newWorld(t *testing.T, objects ...client.Object) *world {
	t.Helper()
	scheme := runtime.NewScheme()
	must.Succeed(t, errors.Join(kinds.All().AddToScheme(scheme), corev1.AddToScheme(scheme)))
	w := &world{t: t}
	w.kube = interceptor.NewClient(fake.NewClientBuilder().WithScheme(scheme).WithReturnManagedFields().WithObjects(objects...).
		WithStatusSubresource(&identityv1.WorkloadIdentityBinding{}).
		WithIndex(&identityv1.WorkloadIdentityBinding{}, metav1.ObjectNameField, controllertest.NameIndex).Build(), w.calls())
	w.server = newTokenServer(t, w.kube)
	w.restart()
	return w
}

// calls returns interceptors that count the calls about Secrets. Like a real API server, they
// refuse to apply changes to an immutable Secret.
func (w *world) calls() interceptor.Funcs {
	count := func(verb string, o any) {
		if _, isSecret := o.(*corev1.Secret); !isSecret && verb != "apply" {
			return
		}
		if verb == "get" {
			w.gets++
		} else {
			w.writes = append(w.writes, verb)
			if w.before != nil {
				w.before(verb)
			}
		}
	}
	return interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
			count("get", o)
			if _, isSecret := o.(*corev1.Secret); isSecret && w.forbidden {
				return apierrors.NewForbidden(corev1.Resource("secrets"), key.Name, errors.New("no RBAC rule allows it"))
			}
			return c.Get(ctx, key, o, opts...)
		},
		Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			count("create", o)
			return c.Create(ctx, o, opts...)
		},
		Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
			count("patch", o)
			if _, isBinding := o.(*identityv1.WorkloadIdentityBinding); isBinding && w.conflict {
				w.conflict = false
				return apierrors.NewConflict(identityv1.GroupVersion().WithResource("workloadidentitybindings").GroupResource(), o.GetName(), errors.New("changed"))
			}
			return c.Patch(ctx, o, p, opts...)
		},
		Delete: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.DeleteOption) error {
			count("delete", o)
			return c.Delete(ctx, o, opts...)
		},
		Apply: func(ctx context.Context, c client.WithWatch, o runtime.ApplyConfiguration, opts ...client.ApplyOption) error {
			count("apply", o)
			// The fake client does not refuse changes of an immutable Secret, so refuse them here.
			if s := w.secret(); s != nil && s.Immutable != nil && *s.Immutable {
				return apierrors.NewInvalid(corev1.SchemeGroupVersion.WithKind("Secret").GroupKind(), s.Name, nil)
			}
			return c.Apply(ctx, o, opts...)
		},
		SubResourcePatch: func(ctx context.Context, c client.Client, name string, o client.Object, p client.Patch, opts ...client.SubResourcePatchOption) error {
			w.statuses++
			return c.SubResource(name).Patch(ctx, o, p, opts...)
		},
	}
}

// restart replaces the reconciler by a new one, without memory of earlier reconciliations.
func (w *world) restart() {
	w.renewals = binding.NewRenewals()
	options := binding.Options{
		Issuer: &issuer.Issuer{
			URL: issuerURL, APIAudiences: []string{"https://kubernetes.default.svc"},
			Limits: issuer.Limits{Min: 10 * time.Minute, Default: time.Hour, Max: 48 * time.Hour},
		},
		WorkloadIdentities: w.server, Client: w.kube, Namespaces: w.kube, RenewalFraction: 0.5, Renewals: w.renewals,
		Provider: func(string) (auth.Provider, error) { return nil, errors.New("no cloud here") },
	}
	if w.lent != nil {
		options.Identities, options.IdentitiesSynced = w.lent.Identities, func() bool { return true }
		options.Provider = func(string) (auth.Provider, error) { return w.lent.Provider, nil }
	}
	if w.options != nil {
		w.options(&options)
	}
	w.events = events.NewFakeRecorder(10_000)
	w.r = binding.New(&tenant.Shared{Shared: &object.Shared{
		Client: controllertest.Remembering(w.kube), Live: w.kube, Recorder: w.events, Dependencies: object.Dependencies{Subscribe: func(func(object.Dependency)) {}},
	}}, options)
}

// reconcile reconciles the binding, and checks the rules of [controllertest.Holds].
func (w *world) reconcile() (*identityv1.WorkloadIdentityBinding, reconcile.Result) {
	w.t.Helper()
	result, err := w.r.Reconcile(w.t.Context(), reconcile.Request{NamespacedName: key("cloudidentity")})
	must.Succeed(w.t, err)
	o := w.binding()
	controllertest.Holds(w.t, o, controllertest.View{Status: o.Status.Status}, result)
	return o, result
}

func (w *world) binding() *identityv1.WorkloadIdentityBinding {
	w.t.Helper()
	o := &identityv1.WorkloadIdentityBinding{}
	must.Succeed(w.t, w.kube.Get(w.t.Context(), key("cloudidentity"), o))
	return o
}

// secret returns the Secret of the binding, or nil if it does not exist.
func (w *world) secret() *corev1.Secret {
	w.t.Helper()
	defer func(n int) { w.gets = n }(w.gets)
	s := &corev1.Secret{}
	if err := w.kube.Get(w.t.Context(), key("cloudprovider"), s); apierrors.IsNotFound(err) {
		return nil
	} else if err != nil {
		w.t.Fatal(err)
	}
	return s
}

// edit changes an object with a field manager other than the controller's.
func edit[O client.Object](w *world, name string, o O, change func(O)) {
	w.t.Helper()
	must.Succeed(w.t, w.kube.Get(w.t.Context(), key(name), o))
	change(o)
	must.Succeed(w.t, w.kube.Update(w.t.Context(), o, client.FieldOwner("kubectl-edit")))
}

func (w *world) editBinding(change func(*identityv1.WorkloadIdentityBinding)) {
	w.t.Helper()
	edit(w, "cloudidentity", &identityv1.WorkloadIdentityBinding{}, change)
}

func (w *world) editIdentity(change func(*identityv1.WorkloadIdentity)) {
	w.t.Helper()
	edit(w, "banana-testing", &identityv1.WorkloadIdentity{}, change)
}

func (w *world) editSecret(change func(*corev1.Secret)) {
	w.t.Helper()
	edit(w, "cloudprovider", &corev1.Secret{}, change)
}

// delete deletes the binding, and reconciles the binding until it is gone.
func (w *world) delete() {
	w.t.Helper()
	must.Succeed(w.t, w.kube.Delete(w.t.Context(), w.binding()))
	tries := 1
	if w.conflict {
		tries = 2
	}
	for range tries {
		if _, err := w.r.Reconcile(w.t.Context(), reconcile.Request{NamespacedName: key("cloudidentity")}); err != nil {
			w.t.Fatal(err)
		}
	}
	if err := w.kube.Get(w.t.Context(), key("cloudidentity"), &identityv1.WorkloadIdentityBinding{}); !apierrors.IsNotFound(err) {
		w.t.Errorf("the binding is still there: %v", err)
	}
}

// wrote returns the verbs of the calls that wrote the Secret since the last call of wrote.
func (w *world) wrote() []string {
	defer func() { w.writes = nil }()
	return w.writes
}

func key(name string) types.NamespacedName {
	return types.NamespacedName{Namespace: "tenant-a", Name: name}
}

// newIdentity returns the example WorkloadIdentity of Gardener's proposal GEP-26.
func newIdentity(change ...func(*identityv1.WorkloadIdentity)) *identityv1.WorkloadIdentity {
	o := &identityv1.WorkloadIdentity{
		ObjectMeta: metav1.ObjectMeta{Namespace: "tenant-a", Name: "banana-testing", UID: identityUID, Generation: 1},
		Spec: identityv1.WorkloadIdentitySpec{
			Audiences: []string{"team-foo"}, SubjectFormat: identityv1.SubjectFormatUID, SigningAlgorithm: identityv1.ES256,
			TargetSystem: identityv1.TargetSystem{Type: "aws", ProviderConfig: &runtime.RawExtension{Raw: []byte(`{"iamRoleARN":"` + roleARN + `"}`)}},
		},
	}
	for _, c := range change {
		c(o)
	}
	return o
}

// newBinding returns the example binding of Gardener's proposal GEP-26, not yet reconciled.
func newBinding(change ...func(*identityv1.WorkloadIdentityBinding)) *identityv1.WorkloadIdentityBinding {
	o := &identityv1.WorkloadIdentityBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: "tenant-a", Name: "cloudidentity", UID: bindingUID, Generation: 1},
		Spec: identityv1.WorkloadIdentityBindingSpec{
			WorkloadIdentity: &identityv1.WorkloadIdentityReference{Name: "banana-testing"},
			Store: identityv1.BindingStore{
				SecretRef: identityv1.BindingSecretReference{Name: "cloudprovider"}, Format: identityv1.StoreSDK, MountPath: "/var/run/secrets/lanyard.dev/workload-identity",
			},
		},
		Status: identityv1.WorkloadIdentityBindingStatus{Status: meta.Status{ObservedGeneration: -1}},
	}
	for _, c := range change {
		c(o)
	}
	return o
}

func ready(o *identityv1.WorkloadIdentityBinding) metav1.Condition {
	if c := apimeta.FindStatusCondition(o.Status.Conditions, meta.ConditionReady); c != nil {
		return *c
	}
	return metav1.Condition{}
}

// tokenServer is a fake of Lanyard's token server. It makes tokens for the identities at the API
// server.
type tokenServer struct {
	t       *testing.T
	kube    client.Reader
	key     *ecdsa.PrivateKey
	kid     string
	revoked map[string]bool
	down    error
	behind  time.Duration         // how far the server's clock is behind
	life    time.Duration         // token lifetime; if zero, the identity's spec.duration applies
	wait    func(context.Context) // called instead of making a token; may be nil

	requests []auth.ProofRequest
	accounts []auth.Account
}

func newTokenServer(t *testing.T, kube client.Reader) *tokenServer {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must.Succeed(t, err)
	return &tokenServer{t: t, kube: kube, key: private, kid: "key-1", revoked: map[string]bool{}}
}

func (s *tokenServer) Lookup(ctx context.Context, subject auth.Subject) (auth.Account, error) {
	return s.Read(ctx, subject)
}

func (s *tokenServer) Subscribe(func(auth.Subject)) {}

func (s *tokenServer) Revoked(kid string) bool { return s.revoked[kid] }

func (s *tokenServer) Read(ctx context.Context, subject auth.Subject) (auth.Account, error) {
	o, err := s.identity(ctx, subject)
	if err != nil {
		return auth.Account{}, &auth.Error{Stage: auth.StageSubject, Code: auth.CodeSubjectNotFound, Fix: "create it", Err: err}
	}
	return auth.Account{Subject: subject, UID: string(o.UID), Attributes: map[string]string{"targetSystem.type": o.Spec.TargetSystem.Type}}, nil
}

func (s *tokenServer) identity(ctx context.Context, subject auth.Subject) (*identityv1.WorkloadIdentity, error) {
	o := &identityv1.WorkloadIdentity{}
	return o, s.kube.Get(ctx, types.NamespacedName{Namespace: subject.Namespace(), Name: subject.Name()}, o)
}

func (s *tokenServer) Prove(ctx context.Context, account auth.Account, request auth.ProofRequest) (auth.Proof, error) {
	s.requests, s.accounts = append(s.requests, request), append(s.accounts, account)
	if s.wait != nil {
		s.wait(ctx)
		return nil, ctx.Err()
	}
	if s.down != nil {
		return nil, s.down
	}
	o, err := s.identity(ctx, account.Subject)
	if err != nil {
		return nil, err
	}
	life := time.Hour
	if o.Spec.Duration != nil {
		life = o.Spec.Duration.Duration
	}
	if s.life != 0 {
		life = s.life
	}
	now := time.Now().Add(-s.behind)
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.ES256, Key: jose.JSONWebKey{Key: s.key, KeyID: s.kid}}, nil)
	if err != nil {
		return nil, err
	}
	token, err := jwt.Signed(signer).Claims(jwt.Claims{
		Issuer: issuerURL, Subject: issuer.Subject(o), Audience: request.Audiences,
		IssuedAt: jwt.NewNumericDate(now), Expiry: jwt.NewNumericDate(now.Add(life)),
	}).Serialize()
	return &auth.JWT{Token: auth.NewSecret(token), ExpiresAt: now.Add(life)}, err
}
