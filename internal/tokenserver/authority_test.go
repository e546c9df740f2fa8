package tokenserver

import (
	"bytes"
	"context"
	"crypto"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/cache/informertest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/lanyard-dev/lanyard/internal/must"
)

// newService returns the APIService that the chart creates.
func newService(t *testing.T) *unstructured.Unstructured {
	t.Helper()
	service := newAggregation().Unstructured
	must.Succeed(t, unstructured.SetNestedField(service.Object, "token.lanyard.dev", "spec", "group"))
	return service
}

func step(t *testing.T, c *Certificate) {
	t.Helper()
	must.Succeed(t, c.Step(t.Context()))
}

func readBundle(t *testing.T, c *Certificate) []byte {
	t.Helper()
	service, err := c.Service.get(t.Context())
	must.Succeed(t, err)
	return service.bundle()
}

// serving returns the serving certificate of a replica. It fails the test if API servers that trust
// the bundle would refuse the certificate.
func serving(t *testing.T, c *Certificate, bundle []byte) *x509.Certificate {
	t.Helper()
	pair, err := c.GetCertificate(nil)
	must.Succeed(t, err)
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(bundle)
	options := x509.VerifyOptions{Roots: roots, DNSName: serverHost, CurrentTime: time.Now()}
	if _, err := pair.Leaf.Verify(options); err != nil {
		t.Fatalf("%s: the API server refuses the certificate of %s to %s: %v", time.Now(), pair.Leaf.NotBefore, pair.Leaf.NotAfter, err)
	}
	return pair.Leaf
}

// TestNoCertificateIsRefused runs two replicas for more than a year. One of them sometimes sleeps
// for days. API servers must always trust the certificates of both replicas. The first authority
// may sign at once. API servers must trust each later authority for an hour before it signs a
// certificate.
func TestNoCertificateIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newClient(t, newService(t))
		replicas := []*Certificate{newCertificate(c), newCertificate(c)}
		known := map[string]time.Time{} // when the bundle first had each authority
		leaves := map[string]bool{}
		step(t, replicas[0])
		step(t, replicas[1])
		start := time.Now()
		for time.Since(start) < 400*24*time.Hour {
			pause := 12 * time.Hour
			// Authorities are replaced on these days, so the replicas call Step more often.
			if day := int(time.Since(start)/(24*time.Hour)) % 182; day < 2 {
				pause = 20 * time.Minute
			}
			for i, replica := range replicas {
				time.Sleep(pause)
				if i == 1 && time.Now().YearDay()%20 > 17 {
					continue // the second replica sleeps on these days, so it does not call Step
				}
				step(t, replica)
				bundle := readBundle(t, replica)
				for rest := bundle; len(rest) > 0; {
					var block *pem.Block
					block, rest = pem.Decode(rest)
					if _, ok := known[string(block.Bytes)]; !ok {
						known[string(block.Bytes)] = time.Now()
					}
				}
				for _, other := range replicas {
					leaf := serving(t, other, bundle)
					leaves[leaf.SerialNumber.String()] = true
					since := known[string(other.issuer.Raw)]
					if first := since.Sub(start) < time.Hour; !first && leaf.NotBefore.Add(clockMargin).Sub(since) < trustDelay {
						t.Fatalf("a certificate is made at %s whose authority is known since %s", leaf.NotBefore, since)
					}
				}
			}
		}
		if len(known) != 3 || len(leaves) < 200 {
			t.Errorf("there were %d authorities and %d certificates, want 3 and more than 200", len(known), len(leaves))
		}
	})
}

func TestReplicasStartTogether(t *testing.T) {
	c := newClient(t, newService(t))
	replicas := make([]*Certificate, 8)
	var wg sync.WaitGroup
	for i := range replicas {
		replicas[i] = newCertificate(c)
		wg.Go(func() {
			if err := replicas[i].Step(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	for _, replica := range replicas {
		serving(t, replica, readBundle(t, replica))
		if !replica.issuer.Equal(replicas[0].issuer) {
			t.Error("two replicas have two authorities")
		}
	}
}

// TestSlowReplicaUndoesNothing stops a replica between its read and its write, while another
// replica calls Step. The stopped replica must not undo what the other replica wrote.
func TestSlowReplicaUndoesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newClient(t, newService(t))
		fast := newCertificate(c)
		step(t, fast)
		time.Sleep(authorityLife/2 - time.Hour)
		wipeBundle(t, fast)
		stopped := false
		slow := newCertificate(interceptor.NewClient(c, interceptor.Funcs{
			Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, object client.Object, options ...client.GetOption) error {
				err := c.Get(ctx, key, object, options...)
				if _, ok := object.(*corev1.Secret); ok && !stopped {
					stopped = true
					for range 3 {
						time.Sleep(time.Hour)
						step(t, fast)
					}
				}
				return err
			},
		}))
		step(t, slow)
		serving(t, fast, readBundle(t, fast))
		serving(t, slow, readBundle(t, slow))
		if n := bytes.Count(readBundle(t, fast), []byte("BEGIN")); n != 2 {
			t.Errorf("API servers trust %d authorities, want 2", n)
		}
	})
}

func wipeBundle(t *testing.T, c *Certificate) {
	t.Helper()
	service, err := c.Service.get(t.Context())
	if err == nil {
		err = c.Service.trust(t.Context(), service, nil)
	}
	must.Succeed(t, err)
}

// TestSecretIsTouched deletes, edits and restores the Secret with the authority. API servers must
// always trust the serving certificate of the replica.
func TestSecretIsTouched(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newClient(t, newService(t))
		replica := newCertificate(c)
		read := func() *corev1.Secret {
			secret := &corev1.Secret{}
			must.Succeed(t, c.Get(t.Context(), replica.Secret, secret))
			return secret
		}
		write := func(data map[string][]byte) {
			secret := read()
			secret.Data = data
			must.Succeed(t, c.Update(t.Context(), secret))
		}
		step(t, replica)
		yesterday := read().Data

		must.Succeed(t, c.Delete(t.Context(), read()))
		step(t, replica)
		serving(t, replica, readBundle(t, replica))
		fresh := read().Data
		if bytes.Equal(fresh[currentCert], yesterday[currentCert]) {
			t.Error("a deleted authority is back")
		}

		write(yesterday)
		step(t, replica)
		serving(t, replica, readBundle(t, replica))

		pair, err := replica.GetCertificate(nil)
		must.Succeed(t, err)
		leaf := encodeCert(pair.Certificate[0])
		leafKey, err := encodeKey(pair.PrivateKey.(crypto.Signer))
		must.Succeed(t, err)
		for name, data := range map[string]map[string][]byte{
			"nothing":                  nil,
			"no PEM":                   {currentCert: []byte("x"), currentKey: []byte("y")},
			"another's key":            {currentCert: yesterday[currentCert], currentKey: fresh[currentKey]},
			"no authority":             {currentCert: leaf, currentKey: leafKey},
			"a successor without keys": {currentCert: yesterday[currentCert], currentKey: yesterday[currentKey], nextCert: fresh[currentCert]},
		} {
			write(data)
			err := replica.Step(t.Context())
			if err == nil || !strings.Contains(err.Error(), secretName) || !strings.Contains(err.Error(), "delete the Secret") || strings.Contains(err.Error(), "PRIVATE") {
				t.Errorf("%s: %v; want an error that names the Secret and what to do", name, err)
			}
			// The replica still serves with its last valid certificate.
			serving(t, replica, readBundle(t, replica))
		}

		write(yesterday)
		time.Sleep(2 * authorityLife) // no replica runs
		step(t, replica)
		serving(t, replica, readBundle(t, replica))
	})
}

// TestAPIServiceComesLater checks that the server can start before the APIService exists, and that
// it restores a bundle that somebody has changed.
func TestAPIServiceComesLater(t *testing.T) {
	c := newClient(t)
	replica := newCertificate(c)
	step(t, replica)
	if _, err := replica.GetCertificate(nil); err != nil {
		t.Fatal("there is no certificate without an APIService:", err)
	}
	must.Succeed(t, c.Create(t.Context(), newService(t)))
	step(t, replica)
	serving(t, replica, readBundle(t, replica))
	wipeBundle(t, replica)
	step(t, replica)
	serving(t, replica, readBundle(t, replica))
}

// TestStepReportsTimeouts checks that Step does not report success if the API server did not answer
// in time.
func TestStepReportsTimeouts(t *testing.T) {
	replica := newCertificate(interceptor.NewClient(newClient(t), interceptor.Funcs{
		Get: func(context.Context, client.WithWatch, client.ObjectKey, client.Object, ...client.GetOption) error {
			return fmt.Errorf("get: %w", context.DeadlineExceeded)
		},
	}))
	if err := replica.Step(t.Context()); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("after a timeout: %v", err)
	}
}

func TestDeleteWithNamespace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		failures := 2
		c := interceptor.NewClient(newClient(t, newService(t)), interceptor.Funcs{
			Delete: func(ctx context.Context, c client.WithWatch, object client.Object, options ...client.DeleteOption) error {
				if failures--; failures >= 0 {
					return errors.New("the API server does not answer")
				}
				return c.Delete(ctx, object, options...)
			},
		})
		service := &APIService{Client: c}
		informers := &informertest.FakeInformers{Scheme: c.Scheme()}
		informer, err := informers.FakeInformerFor(t.Context(), &corev1.Namespace{})
		must.Succeed(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		done := make(chan error, 1)
		go func() {
			done <- service.DeleteWithNamespace(ctx, informers, "lanyard-system", slog.New(slog.DiscardHandler))
		}()
		synctest.Wait()
		exists := func() bool {
			got, err := service.get(t.Context())
			must.Succeed(t, err)
			return got != nil
		}
		now := metav1.Now()
		alive := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "lanyard-system"}}
		other := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "tenant-a", DeletionTimestamp: &now}}
		informer.Add(alive)
		informer.Add(other)
		synctest.Wait()
		if !exists() {
			t.Fatal("the APIService is deleted with another namespace")
		}
		ending := alive.DeepCopy()
		ending.DeletionTimestamp = &now
		informer.Update(alive, ending)
		cancel() // Kubernetes stops the program before the APIService is deleted
		if err := <-done; err != nil || exists() {
			t.Errorf("the namespace is deleted, and the APIService stays: %v", err)
		}
	})
}
