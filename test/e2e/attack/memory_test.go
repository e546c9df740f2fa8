package attack

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/asn1"
	"encoding/pem"
	"fmt"
	"io"
	"maps"
	"math/big"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/lanyard-dev/lanyard/api/meta"
)

// greedy is the number of objects in an attack on the controller's memory. Ten objects are enough:
// if they get past a memory bound, the controller exceeds the chart's limit.
const greedy = 10

// burn acts as a tenant with TLS keys so large that a computation with one of them takes minutes.
func burn(tn *tenant) {
	t := tn.t
	host := tn.host("tls")
	tn.serve(t, host, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusForbidden) })
	small, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(t, "make a key", err)
	certificate, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{SerialNumber: big.NewInt(1)}, &x509.Certificate{SerialNumber: big.NewInt(1)}, small.Public(), small)
	must(t, "make a certificate", err)
	chain := string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: certificate}))
	var all []client.Object
	for name, data := range map[string]map[string]string{
		"rsa-65536":   {"tls.crt": chain, "tls.key": burningKey(t, 65536)},
		"rsa-262144":  {"tls.crt": chain, "tls.key": burningKey(t, 262144)},
		"authorities": {"ca.crt": strings.Repeat(chain, 1000)},
	} {
		create(t, &corev1.Secret{ObjectMeta: tn.meta(name), StringData: data})
		for i := range 3 {
			o := tn.repository(fmt.Sprint(name, "-", i), host+"/app")
			o.Spec.CertSecretRef = &meta.LocalReference{Name: name}
			all = append(all, o)
		}
	}
	began, before := time.Now(), processorTime(t, controller)
	tn.refused(t, all, []string{host}, "SecretRefused")
	pause(t, lasting(2*time.Second, 20*time.Second))
	if took := processorTime(t, controller) - before; took > time.Since(began) {
		t.Errorf("the controller computed for %s in %s", took, time.Since(began))
	}
}

// burningKey returns an RSA key of the given size in bits, encoded as in RFC 8017, A.1.2. The key's
// factors are not prime.
func burningKey(t *testing.T, bits uint) string {
	t.Helper()
	odd := func(bits uint) *big.Int {
		n := new(big.Int).Lsh(big.NewInt(1), bits)
		return n.Sub(n, big.NewInt(1))
	}
	p := odd(bits / 2)
	der, err := asn1.Marshal(struct {
		Version                int
		N, E, D, P, Q, A, B, C *big.Int
	}{0, new(big.Int).Mul(p, p), big.NewInt(65537), odd(bits), p, p, p, p, p})
	must(t, "make a key", err)
	return string(pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: der}))
}

// growListings acts as a tenant with servers whose listings are small on the wire, and large in
// memory.
func growListings(tn *tenant) {
	t := tn.t
	const wire = 8 << 20
	fill := func(begin, part string) string { return begin + strings.Repeat(part, (wire-len(begin))/len(part)) }
	var all []client.Object
	bodies := map[string]string{
		"quote":      fill(`"<ListBucketResult>`, `<Contents/>`),
		"attributes": fill(`<ListBucketResult `, `a="" `),
	}
	if !testing.Short() {
		maps.Copy(bodies, map[string]string{
			"tags":  fill(`<ListBucketResult>`, `<Contents/>`),
			"depth": fill(``, `<a>`),
			"names": fill(`<ListBucketResult>`, `<a:b xmlns:a="c"/>`),
		})
	}
	for name, body := range bodies {
		tn.serve(t, tn.host(name), func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, body) })
		for i := range greedy {
			all = append(all, tn.bucket(fmt.Sprint(name, "-", i), tn.host(name)))
		}
	}
	tn.refused(t, all, nil, "BucketRefused", "ArchiveRefused", "BucketUnreachable")
}

// growManifests acts as a tenant with registries whose manifests are small on the wire, and large
// in memory.
func growManifests(tn *tenant) {
	t := tn.t
	const wire = 4<<20 - 1<<10
	fill := func(begin, part, end string) []byte {
		return []byte(begin + strings.Repeat(part, (wire-len(begin)-len(end))/len(part)) + end)
	}
	var all []client.Object
	for name, content := range map[string][]byte{
		"number": fill(`{"x":1e999,"schemaVersion":2,"layers":[`, `{},`, `{}]}`),
		"layers": fill(`{"schemaVersion":2,"layers":[`, `{},`, `{}]}`),
		"depth":  fill(`{"x":`, `[`, ``),
		"names":  fill(`{"schemaVersion":2,"annotations":{`, `"a":"",`, `"b":""}}`),
	} {
		bad := &registry{manifest: func() []byte { return content }}
		tn.serve(t, tn.host(name), bad.ServeHTTP)
		for i := range greedy {
			all = append(all, tn.repository(fmt.Sprint(name, "-", i), tn.host(name)+"/app"))
		}
	}
	tn.refused(t, all, nil)
}

// bomb acts as a tenant with a registry whose archive is small on the wire, and large when
// unpacked.
func bomb(tn *tenant) {
	t := tn.t
	layer := archive(t, 3<<30, zeros{})
	manifest := manifestOf(t, layer, "bomb")
	bad := &registry{manifest: func() []byte { return manifest }, blob: func(w http.ResponseWriter) { _, _ = w.Write(layer) }}
	tn.serve(t, tn.host("bomb"), bad.ServeHTTP)
	var all []client.Object
	for i := range greedy {
		all = append(all, tn.repository(fmt.Sprint("bomb-", i), tn.host("bomb")+"/app"))
	}
	tn.refused(t, all, nil)
}

// zeros is an endless reader of zero bytes.
type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}

// crowd acts as a tenant whose server lists one object more than an artifact may have.
func crowd(tn *tenant) {
	t := tn.t
	const page, size = 1000, 100_001
	tn.serve(t, tn.host("crowd"), func(w http.ResponseWriter, r *http.Request) {
		from, _ := strconv.Atoi(r.URL.Query().Get("continuation-token"))
		to := min(from+page, size)
		fmt.Fprintf(w, "<ListBucketResult><EncodingType>url</EncodingType><IsTruncated>%t</IsTruncated>", to < size)
		if to < size {
			fmt.Fprintf(w, "<NextContinuationToken>%d</NextContinuationToken>", to)
		}
		for i := from; i < to; i++ {
			fmt.Fprintf(w, "<Contents><Key>%s</Key><ETag>%q</ETag><Size>1</Size></Contents>", url.QueryEscape(fmt.Sprintf("%0512d", i)), strconv.Itoa(i))
		}
		_, _ = io.WriteString(w, "</ListBucketResult>")
	})
	var all []client.Object
	for i := range greedy {
		all = append(all, tn.bucket(fmt.Sprint("crowd-", i), tn.host("crowd")))
	}
	tn.refused(t, all, nil)
}
