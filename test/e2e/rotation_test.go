package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/lanyard-dev/lanyard/api/identity/v1alpha1"
	"github.com/lanyard-dev/lanyard/api/meta"
	toolkitv1 "github.com/lanyard-dev/lanyard/api/toolkit/v1alpha1"
	"github.com/lanyard-dev/lanyard/internal/issuer"
	"github.com/lanyard-dev/lanyard/internal/keyring"
	keysign "github.com/lanyard-dev/lanyard/internal/keyring/sign"
	"github.com/lanyard-dev/lanyard/internal/local"
)

// rotationUnderLoad rotates keys while tokens are requested and verified. No token may be refused.
// The verifiers cache the public document for the whole publish delay. An unknown key does not make
// them read it again. The token server is killed in each rotation, each time at a different step.
// Tests of package keyring/sign cover a crash at each single write.
func rotationUnderLoad(t *testing.T, w *issuerWorld) {
	t.Helper()
	identity := w.newIdentity(t, grantedNamespace, "rotation", vaultAudience)
	vault := startVault(t, ownIssuer, vaultAudience, issuer.Subject(identity))
	w.awaitRing(t, "a standby", standbyReady)

	ctx, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	defer running.Wait()
	defer stop()
	load := &traffic{mint: func(ctx context.Context) (string, error) { return w.mint(ctx, identity, vaultAudience) }}
	// The clients start at different times, so that their verifiers read the public document at
	// different times.
	const clients = 4
	for n := range clients {
		running.Go(func() {
			if err := load.run(ctx, time.Duration(n)*publishDelay/clients); err != nil {
				t.Error(err)
			}
		})
	}
	for _, killed := range []struct {
		when    string
		reached func(now *v1alpha1.KeyRing, former string) bool
	}{
		{"it was just asked for", func(*v1alpha1.KeyRing, string) bool { return true }},
		{"the next key signs", func(now *v1alpha1.KeyRing, former string) bool { return kidOf(now, v1alpha1.KeyActive) != former }},
		{"the key after that is public", func(now *v1alpha1.KeyRing, former string) bool {
			return kidOf(now, v1alpha1.KeyActive) != former && kidOf(now, v1alpha1.KeyPublished) != ""
		}},
	} {
		former := kidOf(w.ring(t), v1alpha1.KeyActive)
		w.keys(t, "rotate", "--timeout", "0")
		w.awaitRing(t, killed.when, func(now *v1alpha1.KeyRing) error {
			return wantf(killed.reached(now, former), "the keys are %+v", now.Status.Keys)
		})
		load.down.Store(true)
		must(t, "kill the token server", w.tokenServer.Kill())
		w.restartTokenServer(t)
		load.down.Store(false)
		w.awaitRing(t, "the end of a rotation in which the token server was killed when "+killed.when, func(now *v1alpha1.KeyRing) error {
			if kidOf(now, v1alpha1.KeyActive) == former {
				return errors.New("the former key signs")
			}
			return standbyReady(now)
		})
		wantVerdict(t, "Vault, after a rotation", vault.login(t, w.token(t, identity, vaultAudience)), true)
	}
	stop()
	running.Wait()
	t.Logf("%d tokens were requested and verified %d times; %d requests found no token server", load.minted.Load(), load.verified.Load(), load.unanswered.Load())
	if load.minted.Load() < 100 || load.unanswered.Load() == 0 {
		t.Error("that is too little to show anything")
	}
}

// emergencyRevocation revokes the key that signs, and checks the known consequences. The controller
// must drop the credentials that it got with tokens signed by this key. It must get new credentials
// within a minute.
//
// Before the revocation, Vault's plugin reads the public document. It caches the keys in it, among
// them the key that signs and the standby key. The plugin reads the document again only when it
// sees a token of an unknown key. After the revocation, the standby key signs. The plugin knows
// this key, so it keeps its cache and still accepts the revoked key. Then a third key signs, which
// the plugin does not know. Now it reads the document again, and refuses the revoked key.
func emergencyRevocation(t *testing.T, w *issuerWorld) {
	t.Helper()
	tn := newTenant(t, "revocation")
	tn.pushFile(t, "1.0.0", "app")
	identity := w.newRole(t, tn, stsAudience, vaultAudience)
	subject := issuer.Subject(identity)
	object := w.newObject(t, tn, identity)
	vault := startVault(t, ownIssuer, vaultAudience, subject)
	w.awaitRing(t, "a standby", standbyReady)
	revoked, standby := kidOf(w.ring(t), v1alpha1.KeyActive), kidOf(w.ring(t), v1alpha1.KeyPublished)
	old := w.token(t, identity, vaultAudience)
	wantVerdict(t, "Vault, before", vault.login(t, old), true)
	// Credentials that the controller got before it saw the identity are not cached. So wait until
	// it uses a cached credential.
	eventually(t, "the controller keeps what it got", func(ctx context.Context) error {
		before := world.Cloud().Journal().Last()
		return errors.Join(reconcile(ctx, w.people, object), wantf(len(exchanges(subject, before)) == 0, "it makes another exchange"))
	})

	out, err := w.command(t, "keys", "revoke", revoked)
	for _, said := range []string{"Every token that it signed is refused", standby + " signs at once. Verifiers know it already", "accepts it until it reads the document again", "nothing is revoked yet"} {
		if err == nil || !strings.Contains(out, said) {
			t.Errorf("the command does not say %q: %v, %s", said, err, out)
		}
	}
	before, began := world.Cloud().Journal().Last(), time.Now()
	w.keys(t, "revoke", "--yes", revoked)
	if ring := w.ring(t); kidOf(ring, v1alpha1.KeyRevoked) != revoked || kidOf(ring, v1alpha1.KeyActive) != standby {
		t.Fatalf("the keys are %+v", ring.Status.Keys)
	}
	eventually(t, "the controller has a session for another token", func(ctx context.Context) error {
		return errors.Join(reconcile(ctx, w.people, object), wantf(len(exchanges(subject, before)) > 0, "it uses the session for a token of the revoked key"))
	})
	// On a busy machine, the replacement takes 30 s. Without the revocation, the controller would
	// use its session for an hour.
	if took := time.Since(began); took > time.Minute {
		t.Errorf("the controller's tokens were replaced within %s", took)
	} else {
		t.Logf("the controller's tokens were replaced within %s", took.Round(time.Millisecond))
	}
	secrets := keysign.Object{Client: w.people, Namespace: local.Namespace, Name: keyring.IssuerRing}
	eventually(t, "the revoked private half is gone", func(ctx context.Context) error {
		_, err := keysign.NewSecrets(secrets).Open(ctx, revoked)
		return wantf(apierrors.IsNotFound(errors.Unwrap(err)), "reading it ends with: %v", err)
	})

	// First step: the standby key signs, and verifiers that read the public document refuse the
	// revoked key.
	second := w.token(t, identity, vaultAudience)
	fresh := caching{url: ownIssuer}
	must(t, "verify a token of the standby", fresh.verify(t.Context(), second))
	if fresh.verify(t.Context(), old) == nil {
		t.Error("a verifier that has read the document accepts the revoked key")
	}
	wantVerdict(t, "Vault, of the standby", vault.login(t, second), true)
	wantVerdict(t, "Vault, of the revoked key that it has cached", vault.login(t, old), true)

	// Second step: a new key signs, which no verifier has cached. To verify a token of this key,
	// Vault reads the public document again. Then Vault must refuse the revoked key.
	w.awaitRing(t, "a new key", func(ring *v1alpha1.KeyRing) error {
		kid := kidOf(ring, v1alpha1.KeyActive)
		return wantf(kid != standby && kid != "", "key %s signs", kid)
	})
	eventually(t, "a token of the new key", func(ctx context.Context) error {
		token, err := w.mint(ctx, identity, vaultAudience)
		if err != nil {
			return err
		}
		if kid, err := kidOfToken(token); err != nil || kid == standby {
			return fmt.Errorf("the standby signs, %w", err)
		}
		wantVerdict(t, "Vault, of the new key", vault.login(t, token), true)
		return nil
	})
	// Vault's library answers a login with the keys that it has just read. Only afterwards, it puts
	// these keys into its cache. So the next login may still use the former keys.
	eventually(t, "Vault refuses the revoked key after the second step", func(context.Context) error {
		v := vault.login(t, old)
		return wantf(!v.granted(), "%s %s", v, v.message)
	})
	wantVerdict(t, "Vault, of the standby after the second step", vault.login(t, second), true)
	must(t, "delete the object", w.people.Delete(t.Context(), object))
}

// controlPlaneHangs suspends etcd and the API server for longer than the lease of the replica that
// rotates keys. Afterwards tokens must be issued and keys must rotate, without a restart.
func controlPlaneHangs(t *testing.T, w *issuerWorld) {
	t.Helper()
	w.awaitRing(t, "a standby", standbyReady)
	former := kidOf(w.ring(t), v1alpha1.KeyActive)
	must(t, "stop the control plane", syscall.Kill(w.ControlPlane().PID(), syscall.SIGSTOP))
	pause(t.Context(), 11*time.Second)
	must(t, "let the control plane go on", syscall.Kill(w.ControlPlane().PID(), syscall.SIGCONT))
	eventually(t, "tokens are made", func(ctx context.Context) error {
		_, err := requestToken(ctx, w.Cluster, "")
		return err
	})
	w.keys(t, "rotate")
	if now := kidOf(w.ring(t), v1alpha1.KeyActive); now == former {
		t.Errorf("key %s still signs", now)
	}
	must(t, "the programs", w.Err())
}

// rotationWaits runs `lanyard keys rotate` while nobody can read the public documents. Perhaps some
// verifiers do not know the standby key yet, so it must not take over. The command must say what to
// do. The test then follows this advice.
func rotationWaits(t *testing.T, w *issuerWorld) {
	t.Helper()
	w.awaitRing(t, "a standby", standbyReady)
	former, standby := kidOf(w.ring(t), v1alpha1.KeyActive), kidOf(w.ring(t), v1alpha1.KeyPublished)
	must(t, "kill discovery", w.discovery.Kill())
	// Run the command repeatedly. On a busy machine, it may time out before the token server sees
	// the request.
	eventually(t, "the command says what the rotation waits for", func(context.Context) error {
		out, err := w.command(t, "keys", "rotate", "--timeout", (2 * publishDelay).String())
		said := strings.Contains(out, v1alpha1.ReasonDocumentUnreachable) && strings.Contains(out, "lanyard keys confirm "+standby)
		return wantf(err != nil && said, "it says %v: %s", err, out)
	})
	ring := w.ring(t)
	if now := kidOf(ring, v1alpha1.KeyActive); now != former {
		t.Errorf("key %s signs, which nobody can verify", now)
	}
	if c := apimeta.FindStatusCondition(ring.Status.Conditions, v1alpha1.ConditionCanRotate); c == nil || c.Status != metav1.ConditionFalse {
		t.Errorf("the ring says %+v", c)
	}
	w.keys(t, "confirm", standby)
	w.awaitRing(t, "the rotation", func(ring *v1alpha1.KeyRing) error {
		return wantf(kidOf(ring, v1alpha1.KeyActive) == standby, "the keys are %+v", ring.Status.Keys)
	})
	w.discovery = w.startReplica(t, discoveryServer, "")
}

// newRole creates a WorkloadIdentity in grantedNamespace, and makes the tenant's role at AWS trust
// this identity.
func (w *issuerWorld) newRole(t *testing.T, tn *tenant, audiences ...string) *v1alpha1.WorkloadIdentity {
	t.Helper()
	identity := &v1alpha1.WorkloadIdentity{
		ObjectMeta: metav1.ObjectMeta{Namespace: grantedNamespace, Name: tn.namespace},
		Spec: v1alpha1.WorkloadIdentitySpec{
			Audiences:    audiences,
			TargetSystem: v1alpha1.TargetSystem{Type: toolkitv1.ProviderAWS, ProviderConfig: &runtime.RawExtension{Raw: fmt.Appendf(nil, `{"iamRoleARN":%q}`, tn.role)}},
		},
	}
	must(t, "make a WorkloadIdentity", w.people.Create(t.Context(), identity))
	trustIssuer(t, ownIssuer)
	must(t, "trust the identity at AWS", world.Cloud().AWS().PutTrustPolicy(local.Account, tn.namespace, trustIn(ownIssuer, issuer.Subject(identity))))
	return identity
}

// newObject creates an OCIRepository that pulls a tenant's repository with an identity. It waits
// for the artifact.
func (w *issuerWorld) newObject(t *testing.T, tn *tenant, identity *v1alpha1.WorkloadIdentity) *toolkitv1.OCIRepository {
	t.Helper()
	o := tn.object(identity.Name)
	o.Namespace, o.Spec.Interval.Duration = identity.Namespace, time.Hour
	o.Spec.ServiceAccountName, o.Spec.WorkloadIdentityName = "", identity.Name
	must(t, "make an object", w.people.Create(t.Context(), o))
	eventually(t, "the object is ready", func(ctx context.Context) error {
		return errors.Join(w.people.Get(ctx, client.ObjectKeyFromObject(o), o), pulled(o))
	})
	return o
}

// reconcile requests a reconciliation of an object, and returns an error unless the object is Ready
// afterwards.
func reconcile(ctx context.Context, people client.Client, o *toolkitv1.OCIRepository) error {
	at := time.Now().UTC().Format(time.RFC3339Nano)
	patch := client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"metadata":{"annotations":{%q:%q}}}`, meta.ReconcileRequestedAnnotation, at))
	if err := people.Patch(ctx, o, patch); err != nil {
		return err
	}
	for o.Status.LastHandledReconcileAt != at {
		pause(ctx, pollEvery)
		if err := people.Get(ctx, client.ObjectKeyFromObject(o), o); err != nil {
			return err
		}
	}
	return pulled(o)
}

func wantVerdict(t *testing.T, what string, v verdict, granted bool) {
	t.Helper()
	if v.granted() != granted {
		t.Errorf("%s: %s %s; want granted=%t", what, v, v.message, granted)
	}
}

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// traffic requests tokens, and verifies them with a cached public document.
type traffic struct {
	mint                         func(context.Context) (string, error)
	down                         atomic.Bool // true while the token server may be down
	minted, verified, unanswered atomic.Int64
}

// run starts after a pause. It ends with ctx, or with an error when a token is refused.
func (l *traffic) run(ctx context.Context, after time.Duration) error {
	pause(ctx, after)
	v := caching{url: ownIssuer, life: publishDelay}
	kept := map[string]string{} // a token of each key, by kid
	for ; ctx.Err() == nil; pause(ctx, 50*time.Millisecond) {
		// Read l.down both before and after the request: a refusal may arrive after the token
		// server is ready again.
		down := l.down.Load()
		token, err := l.mint(ctx)
		switch {
		case ctx.Err() != nil:
			return nil //nolint:nilerr // the test has ended
		case err != nil && (down || l.down.Load()):
			l.unanswered.Add(1)
			continue
		case err != nil:
			return fmt.Errorf("request a token: %w", err)
		}
		l.minted.Add(1)
		kid, err := kidOfToken(token)
		if err != nil {
			return err
		}
		if kept[kid] == "" {
			kept[kid] = token
		}
		for _, token := range append([]string{token}, slices.Collect(maps.Values(kept))...) {
			if err := v.verify(ctx, token); err != nil && ctx.Err() == nil {
				return fmt.Errorf("a token was refused: %w", err)
			}
			l.verified.Add(1)
		}
	}
	return nil
}

// caching is a verifier that caches an issuer's keys. The field life is how long it caches the
// keys; 0 means forever. An unknown key does not make the verifier read the keys again. If the
// issuer does not answer, the verifier keeps the old keys.
type caching struct {
	url  string
	life time.Duration

	keys jose.JSONWebKeySet
	read time.Time
}

func (v *caching) verify(ctx context.Context, token string) error {
	if v.read.IsZero() || v.life > 0 && time.Since(v.read) >= v.life {
		if err := v.fetch(ctx); err != nil && v.read.IsZero() {
			return err
		}
	}
	parsed, err := jose.ParseSignedCompact(token, []jose.SignatureAlgorithm{jose.RS256})
	if err != nil {
		return err
	}
	kid := parsed.Signatures[0].Header.KeyID
	found := v.keys.Key(kid)
	if len(found) == 0 {
		return fmt.Errorf("no key %s in a document of %s ago", kid, time.Since(v.read))
	}
	_, err = parsed.Verify(found[0])
	return err
}

func (v *caching) fetch(ctx context.Context) error {
	document, err := readDocument(ctx, v.url+"/jwks")
	if err != nil {
		return err
	}
	v.keys, v.read = jose.JSONWebKeySet{}, time.Now()
	return json.Unmarshal(document, &v.keys)
}

// readDocument reads a public document in the local cloud.
func readDocument(ctx context.Context, url string) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	c := cloudClient()
	defer c.CloseIdleConnections()
	res, err := c.Do(req)
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("read %s: HTTP %d", url, res.StatusCode)
	}
	return io.ReadAll(res.Body)
}

func kidOfToken(token string) (string, error) {
	parsed, err := jose.ParseSignedCompact(token, []jose.SignatureAlgorithm{jose.RS256})
	if err != nil {
		return "", err
	}
	return parsed.Signatures[0].Header.KeyID, nil
}
