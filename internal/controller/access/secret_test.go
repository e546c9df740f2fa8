package access_test

import (
	"bytes"
	"context"
	"crypto"
	"crypto/rand"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"encoding/asn1"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/lanyard-dev/lanyard/api/meta"
	"github.com/lanyard-dev/lanyard/internal/controller/access"
	"github.com/lanyard-dev/lanyard/internal/controller/controllertest"
	"github.com/lanyard-dev/lanyard/internal/controller/object"
	"github.com/lanyard-dev/lanyard/internal/must"
)

func TestReadProxy(t *testing.T) {
	for name, c := range map[string]struct {
		data map[string]string
		want string
		says string
	}{
		"plain":              {data: map[string]string{"address": "http://proxy.example.com:3128"}, want: "http://proxy.example.com:3128"},
		"with a slash":       {data: map[string]string{"address": "https://proxy.example.com/"}, want: "https://proxy.example.com"},
		"user and password":  {data: map[string]string{"address": "http://p:1", "username": "u@x", "password": "s3cret/?"}, want: "http://u%40x:s3cret%2F%3F@p:1"},
		"no address":         {data: map[string]string{"username": "u"}, says: "no key address"},
		"no host":            {data: map[string]string{"address": "http://"}, says: "no URL with a host"},
		"no scheme":          {data: map[string]string{"address": "proxy:3128"}, says: "no URL with a host"},
		"socks":              {data: map[string]string{"address": "socks5://s3cret:1"}, says: "neither http nor https"},
		"user in address":    {data: map[string]string{"address": "http://u:s3cret@p:1"}, says: "holds a user or password"},
		"path":               {data: map[string]string{"address": "http://p:1/s3cret"}, says: "path, query or fragment"},
		"query":              {data: map[string]string{"address": "http://p:1?s3cret"}, says: "path, query or fragment"},
		"control characters": {data: map[string]string{"address": "http://p:1\ns3cret"}, says: "no URL with a host"},
		"password alone":     {data: map[string]string{"address": "http://p:1", "password": "s3cret"}, says: "no username"},
	} {
		t.Run(name, func(t *testing.T) {
			secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "proxy"}, Data: map[string][]byte{}}
			for key, value := range c.data {
				secret.Data[key] = []byte(value)
			}
			got, err := access.ReadProxy(secret)
			if c.says != "" {
				if err == nil || !strings.Contains(err.Error(), c.says) || strings.Contains(err.Error(), "s3cret") {
					t.Errorf("error %v, want %q", err, c.says)
				}
				return
			}
			if err != nil || got.String() != c.want {
				t.Errorf("%v, %v, want %s", got, err, c.want)
			}
		})
	}
}

func TestReadCertificates(t *testing.T) {
	certificate, key := controllertest.Pair(t)
	_, otherKey := controllertest.Pair(t)
	issuer, issuerKey := authority(t)
	of := func(bits, names int) string { return issued(t, issuer, issuerKey, odd(bits), names) }
	// The key's primes are 3 and 5. crypto/tls accepts this key and its certificate like any other
	// pair.
	const fifteenKey = "-----BEGIN RSA PRIVATE KEY-----\nMBsCAQACAQ8CAQMCAQMCAQMCAQUCAQECAQMCAQI=\n-----END RSA PRIVATE KEY-----\n"
	fifteen := issued(t, issuer, issuerKey, big.NewInt(15), 0)
	for name, c := range map[string]struct {
		data map[string]string
		says string
	}{
		"authority":         {data: map[string]string{"ca.crt": certificate}},
		"client":            {data: map[string]string{"tls.crt": certificate, "tls.key": key}},
		"both":              {data: map[string]string{"ca.crt": certificate, "tls.crt": certificate, "tls.key": key}},
		"nothing":           {says: "holds no certificate"},
		"authority is none": {data: map[string]string{"ca.crt": key}, says: "ca.crt holds no certificate"},
		"half a pair":       {data: map[string]string{"tls.key": key}, says: "one half"},
		// Keys and certificates that would take seconds or minutes of CPU time to check are refused
		// before any computation.
		"key that burns":                {data: map[string]string{"tls.crt": of(4096, 0), "tls.key": burning(t, 65536)}, says: "tls.key: the key has more than 5120 bytes; use an RSA key of 2048 to 8192 bits"},
		"first of two keys":             {data: map[string]string{"tls.crt": certificate, "tls.key": key + burning(t, 65536)}},
		"key of four bits":              {data: map[string]string{"tls.crt": fifteen, "tls.key": fifteenKey}, says: "tls.key: the RSA key has 4 bits; use an RSA key of 2048 to 8192 bits"},
		"key of 1024 bits":              {data: map[string]string{"tls.crt": certificate, "tls.key": burning(t, 1024)}, says: "tls.key: the RSA key has 1024 bits"},
		"key of two equal primes":       {data: map[string]string{"tls.crt": certificate, "tls.key": burning(t, 4096)}, says: "tls.key: the numbers of the RSA key do not fit together"},
		"key with a password":           {data: map[string]string{"tls.crt": certificate, "tls.key": strings.Replace(key, "KEY-----\n", "KEY-----\nProc-Type: 4,ENCRYPTED\nDEK-Info: AES-256-CBC,00\n\n", 1)}, says: "tls.key: the key is encrypted; write a PEM key without a password into tls.key"},
		"no key":                        {data: map[string]string{"tls.crt": certificate, "tls.key": certificate}, says: "tls.key: there is no private key in PEM"},
		"certificate with headers":      {data: map[string]string{"tls.crt": headed(certificate), "tls.key": key}, says: "tls.crt holds no certificate"},
		"certificate of a burning key":  {data: map[string]string{"tls.crt": of(16384, 0), "tls.key": burning(t, 16384)}, says: "tls.crt holds a certificate with an RSA key of 16384 bits"},
		"authority that burns":          {data: map[string]string{"ca.crt": of(8193, 0)}, says: "ca.crt holds a certificate with an RSA key of 8193 bits; use RSA of at most 8192 bits"},
		"second authority that burns":   {data: map[string]string{"ca.crt": certificate + of(65536, 0)}, says: "RSA key of 65536 bits"},
		"authority too long to be read": {data: map[string]string{"ca.crt": of(262144, 0)}, says: "ca.crt holds a certificate of more than 16384 bytes"},
		"authority of many names":       {data: map[string]string{"ca.crt": of(4096, 2000)}, says: "ca.crt holds a certificate of more than 16384 bytes"},
		"authority as large as may be":  {data: map[string]string{"ca.crt": of(8192, 100)}},
		"as many authorities as may be": {data: map[string]string{"ca.crt": strings.Repeat(certificate, 256)}},
		"more authorities than may be":  {data: map[string]string{"ca.crt": strings.Repeat(certificate, 257)}, says: "ca.crt holds more than 256 certificates"},
		"chain without an end":          {data: map[string]string{"tls.crt": strings.Repeat(certificate, 17), "tls.key": key}, says: "tls.crt holds more than 16 certificates"},
		"key of another pair":           {data: map[string]string{"tls.crt": certificate, "tls.key": otherKey}, says: "no pair"},
		"older keys":                    {data: map[string]string{"caFile": certificate, "certFile": certificate, "keyFile": key}},
		"older keys, no pair":           {data: map[string]string{"certFile": certificate, "keyFile": otherKey}, says: "no pair"},
		"older key that burns":          {data: map[string]string{"certFile": of(4096, 0), "keyFile": burning(t, 65536)}, says: "keyFile: the key has more than 5120 bytes"},
		"a newer key wins":              {data: map[string]string{"tls.crt": certificate, "tls.key": key, "keyFile": otherKey}},
		"one key of each age":           {data: map[string]string{"tls.crt": certificate, "keyFile": key}},
	} {
		t.Run(name, func(t *testing.T) {
			secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "tls"}, Data: map[string][]byte{}}
			for k, v := range c.data {
				secret.Data[k] = []byte(v)
			}
			_, _, err := access.ReadCertificates(secret)
			if c.says == "" && err != nil || c.says != "" && (err == nil || !strings.Contains(err.Error(), c.says)) {
				t.Errorf("error %v, want %q", err, c.says)
			}
		})
	}
}

// authority returns a certificate that can sign other certificates, and its key.
func authority(t *testing.T) (*x509.Certificate, crypto.Signer) {
	t.Helper()
	text, key := controllertest.Pair(t)
	pair, err := tls.X509KeyPair([]byte(text), []byte(key))
	must.Succeed(t, err)
	return pair.Leaf, pair.PrivateKey.(crypto.Signer)
}

// headed returns a certificate's PEM with a header.
func headed(text string) string {
	return strings.Replace(text, "CERTIFICATE-----\n", "CERTIFICATE-----\nComment: x\n\n", 1)
}

// The client certificate contains only the parts that ReadCertificates has checked.
// [tls.X509KeyPair] would also take the certificates that ReadCertificates leaves out.
func TestClientIsWhatWasJudged(t *testing.T) {
	certificate, key := controllertest.Pair(t)
	issuer, issuerKey := authority(t)
	long := issued(t, issuer, issuerKey, odd(262144), 0)
	broken := string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: []byte("x")}))
	client, _, err := access.ReadCertificates(&corev1.Secret{Data: map[string][]byte{
		"tls.crt": []byte(headed(long) + certificate + strings.Repeat(headed(certificate), 100) + broken), "tls.key": []byte(key),
	}})
	if err != nil || len(client) != 1 {
		t.Fatalf("%d, %v", len(client), err)
	}
	want, err := tls.X509KeyPair([]byte(certificate), []byte(key))
	must.Succeed(t, err)
	if got := client[0]; len(got.Certificate) != 1 || !bytes.Equal(got.Certificate[0], want.Certificate[0]) || !got.Leaf.Equal(want.Leaf) || got.PrivateKey == nil {
		t.Errorf("%d certificates", len(got.Certificate))
	}
}

// issued returns a PEM certificate, signed by the issuer. It has this number of DNS names, and an
// RSA key with this modulus.
func issued(t *testing.T, issuer *x509.Certificate, key crypto.Signer, modulus *big.Int, names int) string {
	t.Helper()
	template := &x509.Certificate{SerialNumber: big.NewInt(2), NotAfter: time.Now().Add(time.Hour)}
	for i := range names {
		template.DNSNames = append(template.DNSNames, fmt.Sprintf("host-%d.example.com", i))
	}
	der, err := x509.CreateCertificate(rand.Reader, template, issuer, &rsa.PublicKey{N: modulus, E: 3}, key)
	must.Succeed(t, err)
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
}

// burning returns a PKCS #1 private key whose factors are not prime. Large primes would take too
// long to find, and these tests do not need them.
func burning(t *testing.T, bits int) string {
	t.Helper()
	p := odd(bits / 2)
	der, err := asn1.Marshal(struct {
		Version                int
		N, E, D, P, Q, A, B, C *big.Int
	}{0, new(big.Int).Mul(p, p), big.NewInt(65537), odd(bits), p, p, p, p, p})
	must.Succeed(t, err)
	return string(pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: der}))
}

// odd returns an odd number of the given length in bits.
func odd(bits int) *big.Int {
	n := new(big.Int).Lsh(big.NewInt(1), uint(bits))
	return n.Sub(n, big.NewInt(1))
}

// If the controller lacks a right that the chart grants, the failure says which right. It does not
// quote the API server.
func TestSecretThatMayNotBeRead(t *testing.T) {
	reach := &access.Access{Live: interceptor.NewClient(fake.NewClientBuilder().Build(), interceptor.Funcs{
		Get: func(_ context.Context, _ client.WithWatch, key client.ObjectKey, _ client.Object, _ ...client.GetOption) error {
			return apierrors.NewForbidden(schema.GroupResource{Resource: "secrets"}, key.Name, errors.New("details for the administrator"))
		},
	})}
	_, err := reach.Secret(t.Context(), "spec.secretRef", "tenant-a", "login")
	got := object.Explain(err, func(error) (object.Failure, bool) { return object.Failure{}, false })
	const want = `read Secret tenant-a/login of spec.secretRef: the Kubernetes API does not let the controller get secrets in namespace tenant-a; ` +
		`have the cluster's administrator grant "get" on secrets in namespace tenant-a to the controller's ServiceAccount`
	if got.Reason != meta.ReasonControllerForbidden || got.Message != want || got.Stalled {
		t.Errorf("%+v, want %s", got, want)
	}
}
