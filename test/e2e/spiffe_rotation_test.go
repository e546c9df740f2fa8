package e2e

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/spiffe/go-spiffe/v2/bundle/spiffebundle"
	"github.com/spiffe/go-spiffe/v2/spiffeid"
	"github.com/spiffe/go-spiffe/v2/svid/x509svid"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	identityv1 "github.com/lanyard-dev/lanyard/api/identity/v1alpha1"
	"github.com/lanyard-dev/lanyard/api/toolkit/v1alpha1"
	"github.com/lanyard-dev/lanyard/internal/keyring"
	"github.com/lanyard-dev/lanyard/internal/local"
)

const (
	// patientHost is the host at which a [patientRegistry] accepts JWT-SVIDs. The registry accepts
	// certificates at another address. patientApp is the registry's repository.
	patientHost, patientApp = "patient.registry.example.com", "app"
	// authoritySecret is the release's Secret with an authority of the trust domain.
	authoritySecret = "spiffe-ca"
)

// keysChange revokes and rotates the keys and authorities that sign SVIDs. It begins with those of
// the key ring. It goes on with authorities from a Secret, in the form that cert-manager writes.
// Objects keep pulling during each rotation, and no pull may fail.
func keysChange(t *testing.T, w *spiffeWorld) {
	t.Helper()
	registry := newPatientRegistry(t, w)
	t.Run("revocation", func(t *testing.T) { svidsAreRevoked(t, w, registry) })

	end := registry.pull(t, w)
	t.Run("rotation", func(t *testing.T) {
		for range 2 {
			before := w.signing(t)
			changeKeys(t, w.Cluster, "rotate", "--ring", identityv1.SPIFFEKeyRing)
			after := w.signing(t)
			if after.kid == before.kid || after.authority.ID == before.authority.ID {
				t.Errorf("%s signs after %s", after, before)
			}
			// Wait until each service of the registry has read the public documents again.
			pause(t.Context(), publishDelay)
		}
	})
	t.Run("authority in a Secret", func(t *testing.T) {
		authorityIsImported(t, w, registry)
		pause(t.Context(), publishDelay)
	})
	t.Run("next authority in the Secret", func(t *testing.T) {
		w.awaitAuthority(t, isAuthority(w.renewSecret(t).certificate))
		pause(t.Context(), publishDelay)
	})
	end()

	t.Run("revoked authority of the Secret", func(t *testing.T) { importedIsRevoked(t, w, registry) })
}

// signing has the key and the authority that sign SVIDs.
type signing struct {
	kid       string
	authority keyring.Authority
}

func (s signing) String() string { return "key " + s.kid + " and authority " + s.authority.ID }

// signing waits until a key and an authority are active, and returns them.
func (w *spiffeWorld) signing(t *testing.T) (now signing) {
	t.Helper()
	w.awaitAuthority(t, func(a *identityv1.Authority) bool {
		parsed, err := keyring.ParseAuthority(a)
		must(t, "read an authority", err)
		now.authority = parsed
		return true
	})
	now.kid = kidOf(readRing(t, w.people, identityv1.SPIFFEKeyRing), identityv1.KeyActive)
	return now
}

// awaitStandby waits until a standby key and a standby authority can take over.
func (w *spiffeWorld) awaitStandby(t *testing.T) {
	t.Helper()
	eventually(t, "a standby of each", func(context.Context) error {
		ring := readRing(t, w.people, identityv1.SPIFFEKeyRing)
		ready := map[bool]bool{}
		for _, e := range keyring.Entries(&ring.Status) {
			if e.State == identityv1.KeyPublished && time.Since(e.PublishedAt.Time) > publishDelay {
				ready[e.Role == keyring.X509] = true
			}
		}
		return wantf(len(ready) == 2, "the ring is %+v", ring.Status)
	})
}

// svidsAreRevoked revokes the key that signs JWT-SVIDs, and then the authority that signs
// certificates. Within a minute, the controller must drop the SVIDs of the revoked signer, and pull
// with other SVIDs. Verifiers that have read the public documents must refuse the old SVIDs.
func svidsAreRevoked(t *testing.T, w *spiffeWorld, registry *patientRegistry) {
	t.Helper()
	token, certificate := registry.objects(t, w, "revoked")
	for _, o := range []*v1alpha1.OCIRepository{token, certificate} {
		w.await(t, o, revision(registry.manifest))
	}
	revoke := func(id string, o *v1alpha1.OCIRepository, svid func() shown) (former, next shown) {
		w.awaitStandby(t)
		former = svid()
		began := time.Now()
		changeKeys(t, w.Cluster, "revoke", "--ring", identityv1.SPIFFEKeyRing, "--yes", id)
		eventually(t, "the object pulls with another SVID", func(ctx context.Context) error {
			if err := reconcile(ctx, w.people, o); err != nil {
				return err
			}
			next = svid()
			return wantf(next.signer != former.signer, "it shows an SVID of the revoked %s", former.signer)
		})
		// On a busy machine, the replacement takes 20 s. Without the revocation, the controller
		// would present its old SVIDs for half an hour.
		if took := time.Since(began); took > time.Minute {
			t.Errorf("the controller's SVIDs were replaced within %s", took)
		}
		return former, next
	}

	former, next := revoke(w.signing(t).kid, token, registry.lastToken)
	fresh := caching{url: spiffeIssuer}
	must(t, "verify a token of the successor", fresh.verify(t.Context(), next.token))
	if fresh.verify(t.Context(), former.token) == nil {
		t.Error("a service that has read the document accepts the revoked key")
	}

	former, next = revoke(w.signing(t).authority.ID, certificate, registry.lastChain)
	bundle := keptBundle{}
	must(t, "verify a certificate of the successor", bundle.verify(t.Context(), next.chain))
	if bundle.verify(t.Context(), former.chain) == nil {
		t.Error("a service that has read the bundle accepts the revoked authority")
	}
	for _, o := range []*v1alpha1.OCIRepository{token, certificate} {
		must(t, "delete an object", w.people.Delete(t.Context(), o))
	}
}

// importedIsRevoked revokes the only authority of the trust domain. This authority comes from a
// Secret. No object gets a certificate until the Secret has another authority.
func importedIsRevoked(t *testing.T, w *spiffeWorld, registry *patientRegistry) {
	t.Helper()
	token, certificate := registry.objects(t, w, "stopped")
	for _, o := range []*v1alpha1.OCIRepository{token, certificate} {
		w.await(t, o, revision(registry.manifest))
	}
	changeKeys(t, w.Cluster, "revoke", "--ring", identityv1.SPIFFEKeyRing, "--yes", w.signing(t).authority.ID)
	w.await(t, certificate, failing("Unavailable", "no active authority"))
	must(t, "an object with a token", reconcile(t.Context(), w.people, token))
	w.awaitAuthority(t, isAuthority(w.renewSecret(t).certificate))
	w.await(t, certificate, revision(registry.manifest))
}

// isAuthority returns a function that reports whether an imported authority has this certificate.
func isAuthority(certificate *x509.Certificate) func(*identityv1.Authority) bool {
	sum := sha256.Sum256(certificate.Raw)
	return func(a *identityv1.Authority) bool { return a.Imported && a.ID == hex.EncodeToString(sum[:]) }
}

// renewSecret writes another authority to the Secret, as cert-manager does.
func (w *spiffeWorld) renewSecret(t *testing.T) *authority {
	t.Helper()
	next := newAuthority(t)
	secret := &corev1.Secret{}
	must(t, "read the Secret", w.people.Get(t.Context(), client.ObjectKey{Namespace: local.Namespace, Name: authoritySecret}, secret))
	secret.Data = next.secret(t)
	must(t, "write the Secret", w.people.Update(t.Context(), secret))
	return next
}

// patientRegistry is the registry CNCF Distribution behind several services that verify SVIDs. Each
// service caches the public documents of the trust domain for the whole publish delay. The services
// read the documents at different times. A pull succeeds only if all services accept its SVID.
type patientRegistry struct {
	*federatedRegistry

	manifest string // digest of the manifest

	mu      sync.Mutex // guards the fields below
	keys    []caching
	bundles []keptBundle
	token   shown           // the token that was presented last
	chain   shown           // the certificate chain that was presented last
	signers map[string]bool // signers of all SVIDs so far
	refused []error
}

// shown is an SVID that a client presented to a registry.
type shown struct {
	token string              // empty for a certificate
	chain []*x509.Certificate // leaf first
	// signer is the token's kid, or the ID of the key that signed the last certificate of the
	// chain.
	signer string
}

func newPatientRegistry(t *testing.T, w *spiffeWorld) *patientRegistry {
	t.Helper()
	r := &patientRegistry{federatedRegistry: newFederatedRegistry(t, patientHost), signers: map[string]bool{}}
	r.manifest = r.push(t, patientApp, "latest", "the app")
	const services = 4
	for range services {
		keys, bundle := caching{url: spiffeIssuer, life: publishDelay}, keptBundle{life: publishDelay}
		must(t, "read the public documents", errors.Join(keys.fetch(t.Context()), bundle.fetch(t.Context())))
		r.keys, r.bundles = append(r.keys, keys), append(r.bundles, bundle)
		pause(t.Context(), publishDelay/services)
	}
	must(t, "close the registry", world.Cloud().Handle(r.host, http.HandlerFunc(r.serveTokens)))
	r.serveCertificates(t, w)
	return r
}

// serveTokens serves a request only if each service in r.keys accepts the request's token.
func (r *patientRegistry) serveTokens(w http.ResponseWriter, req *http.Request) {
	token, ok := strings.CutPrefix(req.Header.Get("Authorization"), "Bearer ")
	if !ok || r.judgeToken(req.Context(), token) != nil {
		w.Header().Set("WWW-Authenticate", "Bearer")
		w.WriteHeader(http.StatusUnauthorized)
		return
	}
	r.storage.ServeHTTP(w, req)
}

// serveCertificates starts the registry's HTTPS server. A client can connect only if each service
// in r.bundles accepts the client's certificate. The server closes each connection after one
// request. So the services verify the certificate again before the next request.
func (r *patientRegistry) serveCertificates(t *testing.T, w *spiffeWorld) {
	t.Helper()
	own, err := tls.X509KeyPair(w.company.issue(t))
	must(t, "read a certificate", err)
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", w.patient)
	must(t, "listen", err)
	ctx := context.WithoutCancel(t.Context())
	server := &http.Server{Handler: r.storage, ReadHeaderTimeout: patience, ErrorLog: log.New(io.Discard, "", 0), TLSConfig: &tls.Config{
		Certificates: []tls.Certificate{own}, MinVersion: tls.VersionTLS12, ClientAuth: tls.RequireAnyClientCert,
		VerifyConnection: func(c tls.ConnectionState) error { return r.judgeChain(ctx, c.PeerCertificates) },
	}}
	server.SetKeepAlivesEnabled(false)
	ended := make(chan error, 1)
	go func() { ended <- server.ServeTLS(l, "", "") }()
	t.Cleanup(func() {
		_ = server.Close()
		<-ended
	})
}

// judgeToken lets each service of the registry verify a token.
func (r *patientRegistry) judgeToken(ctx context.Context, token string) error {
	kid, err := kidOfToken(token)
	if err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for n := range r.keys {
		err = errors.Join(err, r.keys[n].verify(ctx, token))
	}
	r.token = shown{token: token, signer: kid}
	return r.note(r.token.signer, err)
}

// judgeChain lets each service of the registry verify a certificate and its intermediates.
func (r *patientRegistry) judgeChain(ctx context.Context, chain []*x509.Certificate) (err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for n := range r.bundles {
		err = errors.Join(err, r.bundles[n].verify(ctx, chain))
	}
	r.chain = shown{chain: chain, signer: hex.EncodeToString(chain[len(chain)-1].AuthorityKeyId)}
	return r.note(r.chain.signer, err)
}

// note records a verdict and returns it. The caller holds r.mu.
func (r *patientRegistry) note(signer string, verdict error) error {
	r.signers[signer] = true
	if verdict != nil {
		r.refused = append(r.refused, verdict)
	}
	return verdict
}

// lastToken returns the token that was presented last.
func (r *patientRegistry) lastToken() shown {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.token
}

// lastChain returns the certificate that was presented last.
func (r *patientRegistry) lastChain() shown {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.chain
}

// objects creates one object that presents a token, and one that presents a certificate.
func (r *patientRegistry) objects(t *testing.T, w *spiffeWorld, name string) (token, certificate *v1alpha1.OCIRepository) {
	t.Helper()
	token = w.newObject(t, productionNamespace, name+"-token", "oci://"+r.host+"/"+patientApp,
		v1alpha1.Credential{Type: v1alpha1.CredentialSpiffeJWT, Audiences: []string{r.host}})
	certificate = w.newObject(t, productionNamespace, name+"-certificate", "oci://"+w.patient+"/"+patientApp,
		v1alpha1.Credential{Type: v1alpha1.CredentialSpiffeCertificate})
	return token, certificate
}

// pull makes objects of both types pull continuously until end is called. No pull may fail, and no
// service may refuse an SVID.
func (r *patientRegistry) pull(t *testing.T, w *spiffeWorld) (end func()) {
	t.Helper()
	var all []*v1alpha1.OCIRepository
	for n := range 2 {
		token, certificate := r.objects(t, w, fmt.Sprint("pulling-", n))
		all = append(all, token, certificate)
	}
	for _, o := range all {
		w.await(t, o, revision(r.manifest))
	}
	r.mu.Lock()
	r.refused, r.signers = nil, map[string]bool{}
	r.mu.Unlock()
	ctx, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	var pulls atomic.Int64
	for _, o := range all {
		running.Go(func() {
			for ctx.Err() == nil {
				if err := reconcile(ctx, w.people, o); err != nil && ctx.Err() == nil {
					t.Errorf("a pull of %s failed: %v", o.Name, err)
					return
				}
				pulls.Add(1)
			}
		})
	}
	t.Cleanup(running.Wait)
	t.Cleanup(stop)
	return func() {
		t.Helper()
		stop()
		running.Wait()
		r.mu.Lock()
		defer r.mu.Unlock()
		for _, err := range r.refused {
			t.Errorf("a service refused an SVID: %v", err)
		}
		// A signer is a key or an authority. The pulls begin with one key and one authority, and
		// the rotations bring two new keys and four new authorities. Not all of these eight signers
		// must appear: an object may keep a valid SVID of a former signer while a newer signer
		// comes and goes. So five signers are enough.
		if t.Logf("%d pulls by SVIDs of %d keys and authorities", pulls.Load(), len(r.signers)); pulls.Load() < 50 || len(r.signers) < 5 {
			t.Error("that is too little to show anything")
		}
	}
}

// keptBundle is a verifier of certificates that caches the SPIFFE bundle. The field life is how
// long it caches the bundle; 0 means forever.
type keptBundle struct {
	life time.Duration

	bundle *spiffebundle.Bundle
	read   time.Time
}

func (b *keptBundle) verify(ctx context.Context, chain []*x509.Certificate) error {
	if b.read.IsZero() || b.life > 0 && time.Since(b.read) >= b.life {
		if err := b.fetch(ctx); err != nil {
			return err
		}
	}
	_, _, err := x509svid.Verify(chain, b.bundle)
	return err
}

func (b *keptBundle) fetch(ctx context.Context) error {
	document, err := readDocument(ctx, spiffeIssuer+"/bundle")
	if err != nil {
		return err
	}
	b.bundle, err = spiffebundle.Parse(spiffeid.RequireTrustDomainFromString(trustDomain), document)
	b.read = time.Now()
	return err
}

// authorityIsImported replaces the trust domain's own authority by one from a Secret in the form
// that cert-manager writes. Certificates come from the new authority once it is public. The former
// authority stays public.
func authorityIsImported(t *testing.T, w *spiffeWorld, registry *patientRegistry) {
	t.Helper()
	_, app := registry.objects(t, w, "imported")
	w.readBundle(t, spiffeIssuer)
	ours, former := newAuthority(t), w.certificate(t, app)
	must(t, "make a Secret", w.people.Create(t.Context(), &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: local.Namespace, Name: authoritySecret}, Type: corev1.SecretTypeTLS, Data: ours.secret(t),
	}))
	w.install(t, authoritySecret)
	must(t, "stop the token server", w.tokenServer.Stop(t.Context()))
	_, err := w.StartProgram(t.Context(), local.ProgramOptions{Workload: tokenServer, Binary: daemon(tokenServer)})
	must(t, "start the token server", err)
	w.awaitAuthority(t, isAuthority(ours.certificate))
	w.readBundle(t, spiffeIssuer)
	if _, _, err := x509svid.ParseAndVerify(former.Certificate, w.bundle); err != nil {
		t.Errorf("a certificate of the former authority is still valid, but no longer accepted: %v", err)
	}
	// The ring lists the authority as active a little before the token server signs with this
	// authority. So wait.
	eventually(t, "the authority of the Secret signs", func(context.Context) error {
		chain := w.certificate(t, app).Certificate
		intermediate, err := x509.ParseCertificate(chain[len(chain)-1])
		must(t, "read the intermediate", err)
		return intermediate.CheckSignatureFrom(ours.certificate)
	})
}
