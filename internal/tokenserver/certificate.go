package tokenserver

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Certificate is the serving certificate of one replica. Its authority is in a Secret that all
// replicas share. The leaf and its key are only in memory. The authority and the leaf are replaced
// in time, without a restart.
type Certificate struct {
	// Client reads and writes the Secret. It must not read from a cache.
	Client client.Client
	// Secret names the Secret, which is made if it is missing.
	Secret client.ObjectKey
	// Hosts are the names under which the API server reaches this program.
	Hosts []string
	// Service is the APIService, whose spec.caBundle has the authorities that the API server
	// trusts.
	Service *APIService

	mu      sync.Mutex        // guards the fields below; never held during I/O
	leaf    *tls.Certificate  // the serving certificate; nil before the first Step
	issuer  *x509.Certificate // the CA that signed leaf
	renewAt time.Time
}

// GetCertificate returns the current serving certificate, for the field GetCertificate of a
// [tls.Config]. Before the first call of [Certificate.Step], GetCertificate returns an error.
func (c *Certificate) GetCertificate(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.leaf == nil {
		return nil, errors.New("there is no serving certificate yet")
	}
	return c.leaf, nil
}

// Step creates what is missing and replaces what is due. This applies to the authorities, the
// bundle that the API server trusts, and the leaf. Replicas may call Step at the same time. Without
// an APIService, Step still makes the leaf: an installation may create the APIService last.
func (c *Certificate) Step(ctx context.Context) error {
	var err error
	// The error of OnError is not used. After a timeout, that error is nil.
	_ = retry.OnError(retry.DefaultBackoff, anotherWasFaster, func() error {
		err = c.step(ctx)
		return err
	})
	return err
}

func anotherWasFaster(err error) bool {
	return apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err)
}

func (c *Certificate) step(ctx context.Context) error {
	now := time.Now()
	// Read the trusted bundle before the Secret. Write the bundle only if nobody else has written
	// it since. So a replica that was suspended in between cannot undo the changes of other
	// replicas.
	service, err := c.Service.get(ctx)
	if err != nil {
		return err
	}
	trusted := service.bundle()
	known, err := c.authorities(ctx, now, trusted)
	if err != nil {
		return fmt.Errorf("authority in Secret %s: %w", c.Secret, err)
	}
	if want := known.bundle(now); service != nil && !bytes.Equal(trusted, want) {
		if err := c.Service.trust(ctx, service, want); err != nil {
			return err
		}
	}
	return c.renew(known.current, now)
}

// authorities reads the authorities from the Secret. If the Secret is missing, it creates one with
// a new authority. If a change of the authorities is due, it stores the changed authorities in the
// Secret. For example, a new authority is due when the current one has reached half of its life.
func (c *Certificate) authorities(ctx context.Context, now time.Time, trusted []byte) (authorities, error) {
	secret := &corev1.Secret{}
	err := c.Client.Get(ctx, c.Secret, secret)
	if apierrors.IsNotFound(err) {
		return c.create(ctx, now)
	}
	if err != nil {
		return authorities{}, err
	}
	known, err := parseAuthorities(secret.Data)
	if err != nil {
		return authorities{}, fmt.Errorf("%w; delete the Secret, and a new authority is made", err)
	}
	next, changed, err := known.step(now, trusted)
	if err != nil || !changed {
		return known, err
	}
	if secret.Data, err = next.encode(); err != nil {
		return authorities{}, err
	}
	return next, c.Client.Update(ctx, secret)
}

func (c *Certificate) create(ctx context.Context, now time.Time) (authorities, error) {
	made, err := newAuthority(now)
	if err != nil {
		return authorities{}, err
	}
	first := authorities{current: made}
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: c.Secret.Namespace, Name: c.Secret.Name}, Type: corev1.SecretTypeOpaque,
	}
	if secret.Data, err = first.encode(); err != nil {
		return authorities{}, err
	}
	return first, c.Client.Create(ctx, secret)
}

// renew makes a new leaf if the authority has changed, or if half of the leaf's life is over.
func (c *Certificate) renew(a authority, now time.Time) error {
	if c.fresh(a, now) {
		return nil
	}
	cert, key, err := a.leaf(c.Hosts, now)
	if err != nil {
		return err
	}
	leaf, err := tls.X509KeyPair(cert, key)
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.leaf, c.issuer, c.renewAt = &leaf, a.cert, now.Add(leafLife/2)
	return nil
}

func (c *Certificate) fresh(a authority, now time.Time) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.issuer != nil && c.issuer.Equal(a.cert) && now.Before(c.renewAt)
}
