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

// refusedGreedy creates [greedy] objects in two namespaces of the tenant, and asserts that the
// controller refuses them; see [tenant.refused]. The function object returns a new object with the
// given name. At the end, refusedGreedy deletes the objects, so that they do not delay the next
// objects.
func (tn *tenant) refusedGreedy(name string, object func(in *tenant, name string) client.Object, reasons ...string) {
	const namespaces = 2
	var all []client.Object
	for _, in := range tn.in(namespaces) {
		for i := range greedy / namespaces {
			all = append(all, object(in, fmt.Sprint(name, "-", i)))
		}
	}
	tn.refused(tn.t, all, nil, reasons...)
	for _, o := range all {
		must(tn.t, "delete "+o.GetName(), client.IgnoreNotFound(objects.Delete(tn.t.Context(), o)))
	}
}

// repeated returns a text of about the given size, which consists of the texts begin, part and end.
// The part is repeated, but not more often than most. If this text is shorter than the size, the
// byte x in each part is repeated too.
func repeated(begin, part, end string, most, size int) string {
	number := min(most, (size-len(begin)-len(end))/len(part))
	if room := (size-len(begin)-len(end))/number - len(part); room > 0 {
		part = strings.Replace(part, "x", strings.Repeat("x", room+1), 1)
	}
	return begin + strings.Repeat(part, number) + end
}

// growListings acts as a tenant with servers whose listings are large in memory. Some listings
// exceed the bounds of a page, so that the controller must not decode them. Other listings are just
// within the bounds: they have almost 4 MiB, or almost 100,000 tags and attributes.
func growListings(tn *tenant) {
	t := tn.t
	const (
		wire  = 4<<20 - 1<<10
		parts = 99_000
		many  = wire // the size is the only bound
	)
	bodies := map[string]string{
		"quote":   repeated(`"<ListBucketResult>`, `<Contents/>`, ``, many, wire),
		"objects": repeated(`<ListBucketResult>`, `<Contents/>`, `</ListBucketResult>`, parts, wire),
	}
	if !testing.Short() {
		maps.Copy(bodies, map[string]string{
			"long":       repeated(`<ListBucketResult>`, `<!--x-->`, `</ListBucketResult>`, 1, 2*wire),
			"comment":    repeated(`<ListBucketResult>`, `<!--x`, ``, 1, wire),
			"text":       repeated(`<ListBucketResult><Contents>`, `<Key>x</Key>`, `</Contents></ListBucketResult>`, 1, wire),
			"attributes": repeated(`<ListBucketResult `, `x="" `, `/>`, parts, wire),
		})
	}
	for name, body := range bodies {
		host := tn.host(name)
		tn.serve(t, host, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, body) })
		tn.refusedGreedy(name, func(in *tenant, name string) client.Object { return in.bucket(name, host) },
			"BucketRefused", "ArchiveRefused", "BucketUnreachable")
	}
}

// growManifests acts as a tenant with registries whose manifests are large in memory. Some
// manifests exceed the bound of JSON values, so that the controller must not decode them. Other
// manifests are just within the bounds: they have almost 4 MiB, or almost 50,000 values.
func growManifests(tn *tenant) {
	t := tn.t
	const (
		wire   = 4<<20 - 1<<10
		values = 49_000
		many   = wire // the size is the only bound
	)
	manifests := map[string]string{
		"number":  repeated(`{"x":1e999,"schemaVersion":2,"layers":[`, `{},`, `{}]}`, many, wire),
		"objects": repeated(`{"schemaVersion":2,"layers":[`, `{},`, `{}]}`, values/2, wire),
	}
	if !testing.Short() {
		maps.Copy(manifests, map[string]string{
			"layers":      repeated(`{"schemaVersion":2,"layers":[`, `{},`, `{}]}`, many, wire),
			"depth":       repeated(`{"x":`, `[`, ``, many, wire),
			"names":       repeated(`{"schemaVersion":2,"annotations":{`, `"a":"",`, `"b":""}}`, many, wire),
			"text":        repeated(`{"schemaVersion":2,"annotations":{`, `"a":"x",`, `"b":""}}`, 1, wire),
			"annotations": numbered(`{"schemaVersion":2,"annotations":{`, `"%074d":"",`, `"b":""}}`, values/2),
		})
	}
	for name, content := range manifests {
		host := tn.host(name)
		bad := &registry{manifest: func() []byte { return []byte(content) }}
		tn.serve(t, host, bad.ServeHTTP)
		tn.refusedGreedy(name, func(in *tenant, name string) client.Object { return in.repository(name, host+"/app") })
	}
}

// numbered returns a text that consists of the texts begin, part and end. The part is repeated, and
// formats the number of the repetition.
func numbered(begin, part, end string, number int) string {
	var all strings.Builder
	all.WriteString(begin)
	for i := range number {
		fmt.Fprintf(&all, part, i)
	}
	return all.String() + end
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
