package awskms_test

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"log/slog"
	"math/big"
	"strings"
	"testing"
	"time"

	"github.com/spiffe/go-spiffe/v2/bundle/x509bundle"
	"github.com/spiffe/go-spiffe/v2/spiffeid"
	"github.com/spiffe/go-spiffe/v2/svid/x509svid"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/lanyard-dev/lanyard/api/identity/v1alpha1"
	"github.com/lanyard-dev/lanyard/auth/svid"
	"github.com/lanyard-dev/lanyard/internal/keyring"
	"github.com/lanyard-dev/lanyard/internal/keyring/sign"
	"github.com/lanyard-dev/lanyard/internal/keyring/sign/awskms"
	"github.com/lanyard-dev/lanyard/internal/must"
)

// caSecret is the Secret with the certificate of the CA whose key is in KMS.
const caSecret = "spiffe-ca"

// TestAuthorityInKMS imports a CA whose key is in KMS, and whose certificate is in a Secret. After
// the import, no step and no certificate may need a signature of KMS.
func TestAuthorityInKMS(t *testing.T) {
	w := newWorld(t, allowing("kms:*"))
	domain := spiffeid.RequireTrustDomainFromString("example.com")
	data, private, err := w.vault.Create(t.Context(), "ring", v1alpha1.ES256)
	must.Succeed(t, err)
	arn := string(data["arn"])
	certificate := w.putAuthority(private)
	rotator := w.importing(domain, arn)
	w.settle(rotator)
	signed := len(w.calls("Sign"))
	for range 5 {
		w.settle(rotator)
	}
	if n := len(w.calls("Sign")); n != signed {
		t.Errorf("%d more calls of Sign, although nothing has changed", n-signed)
	}

	signer := sign.NewSigner(w.object(), rotator.Store, noSkew, slog.New(slog.DiscardHandler))
	must.Succeed(t, signer.Refresh(t.Context()))
	id := spiffeid.RequireFromString("spiffe://example.com/ocirepositories/production/app")
	leaf, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must.Succeed(t, err)
	made, err := signer.Certificate(id, &leaf.PublicKey)
	must.Succeed(t, err)
	chain, err := svid.ParseChain(made.Chain())
	must.Succeed(t, err)
	if _, _, err := x509svid.Verify(chain, x509bundle.FromX509Authorities(domain, []*x509.Certificate{certificate})); err != nil {
		t.Error(err)
	}
	if n := len(w.calls("Sign")); n != signed {
		t.Error("a certificate needed KMS: the intermediate's key is the ring's")
	}

	// The CA is not imported if the certificate is for another key, or if the role may not use the
	// key.
	other, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must.Succeed(t, err)
	w.putAuthority(other)
	w.wantProblem(rotator, "the key of --spiffe-kms-key is not the key of the certificate in tls.crt")
	w.putAuthority(private) // another certificate of the same key
	w.allow(allowing("kms:DescribeKey"))
	w.wantProblem(rotator, "allow kms:GetPublicKey")
	if deleted := w.calls("ScheduleKeyDeletion"); len(deleted) > 0 {
		t.Errorf("the token server deletes a CA's key: %+v", deleted)
	}
}

// importing returns a rotator that imports a CA whose key is in KMS.
func (w *world) importing(domain spiffeid.TrustDomain, arn string) *sign.Rotator {
	return &sign.Rotator{
		Object: w.object(), Store: sign.NewSecrets(w.object()), Skew: noSkew, Log: slog.New(slog.DiscardHandler),
		Policy: keyring.Policy{TrustDomain: domain, Import: true, PublishDelay: time.Hour, RotationPeriod: 2 * time.Hour, MaxLife: time.Hour},
		Probe: func(context.Context) (*keyring.Document, error) {
			document := &keyring.Document{}
			for _, a := range w.ring().Status.Authorities {
				document.KIDs = append(document.KIDs, a.ID)
			}
			return document, nil
		},
		Import: sign.ImportWithKey(w.api, client.ObjectKey{Namespace: namespace, Name: caSecret}, domain, "the key of --spiffe-kms-key",
			func(ctx context.Context) (crypto.Signer, error) { return w.vault.OpenKey(ctx, arn) }),
	}
}

// putAuthority writes the certificate of a CA, but not its key, into the Secret.
func (w *world) putAuthority(key crypto.Signer) *x509.Certificate {
	w.t.Helper()
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: "CA"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(1000 * time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	must.Succeed(w.t, err)
	certificate, err := x509.ParseCertificate(der)
	must.Succeed(w.t, err)
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: caSecret}, Type: corev1.SecretTypeTLS,
		Data: map[string][]byte{
			corev1.TLSCertKey: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), corev1.TLSPrivateKeyKey: nil,
		},
	}
	must.Succeed(w.t, client.IgnoreNotFound(w.api.Delete(w.t.Context(), secret.DeepCopy())))
	must.Succeed(w.t, w.api.Create(w.t.Context(), secret))
	return certificate
}

// wantProblem checks that a condition of the ring says why the CA is not imported.
func (w *world) wantProblem(rotator *sign.Rotator, words string) {
	w.t.Helper()
	w.settle(rotator)
	var said string
	for _, c := range w.ring().Status.Conditions {
		if c.Reason == v1alpha1.ReasonImportFailed {
			said = c.Message
		}
	}
	if !strings.Contains(said, words) {
		w.t.Errorf("the ring says %q, want %q", said, words)
	}
}

func TestRegionOf(t *testing.T) {
	if got, err := awskms.RegionOf("arn:aws-cn:kms:cn-north-1:123456789123:key/abc"); got != "cn-north-1" || err != nil {
		t.Errorf("%q, %v", got, err)
	}
	for _, arn := range []string{"", "abc", "alias/ca", "arn:aws:kms:eu-west-1:123456789123:alias/ca", "arn:aws:s3:::key/a", "arn:aws:kms::123456789123:key/a"} {
		if region, err := awskms.RegionOf(arn); err == nil {
			t.Errorf("%q is in %q", arn, region)
		}
	}
}
