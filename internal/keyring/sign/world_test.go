package sign

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/uuid"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/lanyard-dev/lanyard/api/identity/v1alpha1"
	"github.com/lanyard-dev/lanyard/internal/keyring"
	"github.com/lanyard-dev/lanyard/internal/must"
)

const (
	namespace = "lanyard-system"
	issuer    = "https://issuer.example"
)

// world is an API server, the public document of a ring, and the processes of a test.
type world struct {
	t      *testing.T
	api    client.WithWatch
	policy keyring.Policy
	// unreachable makes the probe fail.
	unreachable bool
}

func newWorld(t *testing.T) *world {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, v1alpha1.AddToScheme} {
		must.Succeed(t, add(scheme))
	}
	api := fake.NewClientBuilder().WithScheme(scheme).WithStatusSubresource(&v1alpha1.KeyRing{}).Build()
	return &world{t: t, policy: hourly(), api: interceptor.NewClient(api, interceptor.Funcs{
		// An API server sets the UID and the creation time, but the fake client does not.
		Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			o.SetUID(uuid.NewUUID())
			o.SetCreationTimestamp(metav1.Now())
			return c.Create(ctx, o, opts...)
		},
	})}
}

// hourly returns a policy with one rotation per hour.
func hourly() keyring.Policy {
	return keyring.Policy{
		Issuer: issuer, Algorithms: []v1alpha1.Algorithm{v1alpha1.ES256},
		PublishDelay: 20 * time.Minute, RotationPeriod: time.Hour, MaxLife: 30 * time.Minute,
	}
}

func (w *world) object(c client.Client) Object {
	return Object{Client: c, Namespace: namespace, Name: keyring.IssuerRing}
}

// rotator returns the Rotator of a process that uses the client c.
func (w *world) rotator(c client.Client) *Rotator {
	o := w.object(c)
	return &Rotator{
		Object: o, Store: NewSecrets(o), Policy: w.policy, Probe: w.probe,
		Skew: noSkew, Log: slog.New(slog.DiscardHandler),
	}
}

func (w *world) signer(c client.Client) *Signer {
	o := w.object(c)
	return NewSigner(o, NewSecrets(o), noSkew, slog.New(slog.DiscardHandler))
}

func noSkew() (time.Duration, error) { return 0, nil }

// ring reads the ring as the administrator. It returns an empty ring if there is no ring.
func (w *world) ring() *v1alpha1.KeyRing {
	w.t.Helper()
	ring, err := w.object(w.api).read(w.t.Context())
	if apierrors.IsNotFound(err) {
		return &v1alpha1.KeyRing{}
	}
	must.Succeed(w.t, err)
	return ring
}

// change edits the ring's spec as the administrator.
func (w *world) change(edit func(*v1alpha1.KeyRing)) {
	w.t.Helper()
	ring := w.ring()
	edit(ring)
	must.Succeed(w.t, w.api.Update(w.t.Context(), ring))
}

// state returns the kids of the keys that are in the given state.
func (w *world) state(state v1alpha1.KeyState) []string {
	w.t.Helper()
	var kids []string
	for _, k := range w.ring().Status.Keys {
		if k.State == state {
			kids = append(kids, k.KID)
		}
	}
	return kids
}

// settle makes steps until nothing changes.
func (w *world) settle(r *Rotator) {
	w.t.Helper()
	for range 10 {
		changed, err := r.Step(w.t.Context())
		must.Succeed(w.t, err)
		if !changed {
			return
		}
	}
	w.t.Fatal("the ring does not come to rest")
}

// document returns the document that discovery serves: the public keys of the ring, encoded.
func (w *world) document(ctx context.Context) ([]byte, error) {
	object, err := w.object(w.api).read(ctx)
	if err != nil {
		return nil, err
	}
	ring, err := keyring.Parse(&object.Status)
	if err != nil {
		return nil, err
	}
	var set jose.JSONWebKeySet
	for _, k := range ring.Public() {
		set.Keys = append(set.Keys, k.JWK())
	}
	if len(set.Keys) == 0 {
		return nil, errors.New("503 Service Unavailable")
	}
	return json.Marshal(set)
}

func (w *world) probe(ctx context.Context) (*keyring.Document, error) {
	if w.unreachable {
		return nil, errors.New("unreachable")
	}
	data, err := w.document(ctx)
	if err != nil {
		return nil, err
	}
	return keyring.ParseDocument(data)
}

// verifier acts as a service that verifies tokens and caches the public document.
type verifier struct {
	world *world
	// life is the time after which the verifier reads the document again; 0 means never.
	life time.Duration
	// rereads makes the verifier also read the document again when a token has an unknown kid, as
	// go-oidc does.
	rereads bool

	keys jose.JSONWebKeySet
	at   time.Time
}

func (v *verifier) fetch() {
	data, err := v.world.document(v.world.t.Context())
	if err != nil {
		v.world.t.Fatal(err)
	}
	v.keys, v.at = jose.JSONWebKeySet{}, time.Now()
	if err := json.Unmarshal(data, &v.keys); err != nil {
		v.world.t.Fatal(err)
	}
}

func (v *verifier) verify(token string) error {
	if v.at.IsZero() || v.life > 0 && time.Since(v.at) >= v.life {
		v.fetch()
	}
	parsed, err := jose.ParseSignedCompact(token, []jose.SignatureAlgorithm{jose.ES256, jose.RS256})
	if err != nil {
		return err
	}
	kid := parsed.Signatures[0].Header.KeyID
	if len(v.keys.Key(kid)) == 0 && v.rereads {
		v.fetch()
	}
	if len(v.keys.Key(kid)) == 0 {
		return fmt.Errorf("no key %s in a document of %v ago", kid, time.Since(v.at))
	}
	_, err = parsed.Verify(v.keys.Key(kid)[0])
	return err
}

// errNoAnswer is the error that a process gets when its request to the API server or the answer is
// lost.
var errNoAnswer = errors.New("no answer")

// process is a client of the API server that counts its writes.
type process struct {
	client.Client
	writes int
	dead   bool
}

// process returns a process whose n-th write returns errNoAnswer; if n is 0, no write fails. If
// lives is true, the API server executes this write, and only the answer is lost. If lives is
// false, the process dies before this write, and all later writes fail too.
func (w *world) process(n int, lives bool) *process {
	p := &process{}
	write := func(do func() error) error {
		p.writes++
		switch {
		case p.dead:
			return errNoAnswer
		case p.writes != n:
			return do()
		case lives:
			must.Succeed(w.t, do())
			return errNoAnswer
		}
		p.dead = true
		return errNoAnswer
	}
	p.Client = interceptor.NewClient(w.api, interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			return write(func() error { return c.Create(ctx, o, opts...) })
		},
		Delete: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.DeleteOption) error {
			return write(func() error { return c.Delete(ctx, o, opts...) })
		},
		SubResourceUpdate: func(ctx context.Context, c client.Client, sub string, o client.Object, opts ...client.SubResourceUpdateOption) error {
			return write(func() error { return c.SubResource(sub).Update(ctx, o, opts...) })
		},
	})
	return p
}
