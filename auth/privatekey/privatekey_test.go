package privatekey_test

import (
	"crypto"
	"crypto/ecdh"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"encoding/pem"
	"math/big"
	"strings"
	"testing"

	"github.com/lanyard-dev/lanyard/auth/internal/must"
	"github.com/lanyard-dev/lanyard/auth/privatekey"
)

// numbers is the ASN.1 type RSAPrivateKey of PKCS #1 (RFC 8017 appendix A.1.2).
type numbers struct {
	Version                            int
	N, E, D, P, Q, DP, DQ, Coefficient *big.Int
	Others                             []other `asn1:"optional,omitempty"`
}

type other struct{ Prime, Exponent, Coefficient *big.Int }

func of(key *rsa.PrivateKey) numbers {
	return numbers{
		N: key.N, E: big.NewInt(int64(key.E)), D: key.D, P: key.Primes[0], Q: key.Primes[1],
		DP: key.Precomputed.Dp, DQ: key.Precomputed.Dq, Coefficient: key.Precomputed.Qinv,
	}
}

// derived computes D, DP, DQ and Coefficient from P, Q and E. It returns false if one of them does
// not exist, or if D is not less than N.
func (k *numbers) derived() bool {
	one := big.NewInt(1)
	p1, q1 := new(big.Int).Sub(k.P, one), new(big.Int).Sub(k.Q, one)
	k.DP, k.DQ = new(big.Int).ModInverse(k.E, p1), new(big.Int).ModInverse(k.E, q1)
	k.Coefficient = new(big.Int).ModInverse(k.Q, k.P)
	gcd := new(big.Int).GCD(nil, nil, p1, q1)
	k.D = new(big.Int).ModInverse(k.E, new(big.Int).Div(new(big.Int).Mul(p1, q1), gcd))
	return k.DP != nil && k.DQ != nil && k.Coefficient != nil && k.D != nil && k.D.Cmp(k.N) < 0
}

// panicking returns a key of 2048 bits that makes crypto/rsa panic, although crypto/x509 of Go 1.26
// accepts the key. One "prime" is even, and the product of both "primes" is twice the modulus.
func panicking(tb testing.TB) numbers {
	tb.Helper()
	for {
		r, q := odd(tb, 1024), odd(tb, 1024)
		k := numbers{N: new(big.Int).Mul(r, q), E: big.NewInt(65537), P: new(big.Int).Lsh(r, 1), Q: q}
		if k.N.BitLen() == 2048 && k.derived() {
			return k
		}
	}
}

// odd returns a random odd number with this number of bits.
func odd(tb testing.TB, bits int) *big.Int {
	tb.Helper()
	n, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), uint(bits-2)))
	must.Succeed(tb, err)
	return n.SetBit(n.SetBit(n, 0, 1), bits-1, 1)
}

func pkcs1(tb testing.TB, k any) []byte {
	tb.Helper()
	der, err := asn1.Marshal(k)
	must.Succeed(tb, err)
	return der
}

// pkcs8 wraps a PKCS #1 key in PKCS #8.
func pkcs8(tb testing.TB, key []byte) []byte {
	tb.Helper()
	return pkcs1(tb, struct {
		Version   int
		Algorithm pkix.AlgorithmIdentifier
		Key       []byte
	}{0, pkix.AlgorithmIdentifier{Algorithm: asn1.ObjectIdentifier{1, 2, 840, 113549, 1, 1, 1}, Parameters: asn1.NullRawValue}, key})
}

func newRSA(tb testing.TB, bits int) *rsa.PrivateKey {
	tb.Helper()
	key, err := rsa.GenerateKey(rand.Reader, bits)
	must.Succeed(tb, err)
	return key
}

func newECDSA(tb testing.TB, curve elliptic.Curve) *ecdsa.PrivateKey {
	tb.Helper()
	key, err := ecdsa.GenerateKey(curve, rand.Reader)
	must.Succeed(tb, err)
	return key
}

// works reports whether the public key verifies a signature made with the private key.
func works(t *testing.T, key crypto.Signer) bool {
	t.Helper()
	digest := sha256.Sum256([]byte("x"))
	switch public := key.Public().(type) {
	case *rsa.PublicKey:
		signature, err := key.Sign(rand.Reader, digest[:], crypto.SHA256)
		return err == nil && rsa.VerifyPKCS1v15(public, crypto.SHA256, digest[:], signature) == nil
	case *ecdsa.PublicKey:
		signature, err := key.Sign(rand.Reader, digest[:], crypto.SHA256)
		return err == nil && ecdsa.VerifyASN1(public, digest[:], signature)
	case ed25519.PublicKey:
		signature, err := key.Sign(rand.Reader, digest[:], crypto.Hash(0))
		return err == nil && ed25519.Verify(public, digest[:], signature)
	}
	return false
}

func TestParse(t *testing.T) {
	_, edwards, err := ed25519.GenerateKey(rand.Reader)
	must.Succeed(t, err)
	for what, key := range map[string]crypto.Signer{
		"RSA of 2048 bits": newRSA(t, 2048), "RSA of 3072 bits": newRSA(t, 3072), "Ed25519": edwards,
		"P-256": newECDSA(t, elliptic.P256()), "P-384": newECDSA(t, elliptic.P384()), "P-521": newECDSA(t, elliptic.P521()),
	} {
		der, err := x509.MarshalPKCS8PrivateKey(key)
		must.Succeed(t, err)
		forms := map[string][]byte{"PKCS #8": der}
		switch key := key.(type) {
		case *rsa.PrivateKey:
			forms["PKCS #1"] = x509.MarshalPKCS1PrivateKey(key)
		case *ecdsa.PrivateKey:
			if forms["SEC 1"], err = x509.MarshalECPrivateKey(key); err != nil {
				t.Fatal(err)
			}
		}
		for form, der := range forms {
			got, err := privatekey.Parse(der)
			if err != nil || !got.Public().(interface{ Equal(crypto.PublicKey) bool }).Equal(key.Public()) || !works(t, got) {
				t.Errorf("%s in %s: %v", what, form, err)
			}
		}
	}
}

// TestParseHostile checks that Parse refuses RSA keys that are not safe to compute with. Each key
// is tried in PKCS #1 and in PKCS #8, and the error must say what is wrong with its numbers.
func TestParseHostile(t *testing.T) {
	good := newRSA(t, 2048)
	big1 := func(bits int) *big.Int { return odd(t, bits) }
	with := func(change func(*numbers)) numbers {
		k := of(good)
		change(&k)
		return k
	}
	const apart = "do not fit together"
	for what, c := range map[string]struct {
		key  numbers
		says string
	}{
		"makes crypto/rsa panic":      {panicking(t), apart},
		"fifteen":                     {numbers{N: big.NewInt(15), E: big.NewInt(3), D: big.NewInt(3), P: big.NewInt(3), Q: big.NewInt(5), DP: big.NewInt(1), DQ: big.NewInt(3), Coefficient: big.NewInt(2)}, "4 bits"},
		"fifteen of an even prime":    {numbers{N: big.NewInt(15), E: big.NewInt(7), D: big.NewInt(13), P: big.NewInt(10), Q: big.NewInt(3), DP: big.NewInt(4), DQ: big.NewInt(1), Coefficient: big.NewInt(7)}, "4 bits"},
		"1024 bits":                   {of(newRSA(t, 1024)), "1024 bits"},
		"8194 bits":                   {with(func(k *numbers) { k.P, k.Q = big1(4097), big1(4097); k.N = new(big.Int).Mul(k.P, k.Q) }), " bits"},
		"65,536 bits":                 {with(func(k *numbers) { k.N = big1(65536) }), "more than 5120 bytes"},
		"a prime of 30,000 bits":      {with(func(k *numbers) { k.P = big1(30000) }), apart},
		"a prime as long as both":     {with(func(k *numbers) { k.P = big1(2048) }), apart},
		"an exponent of 20,000 bits":  {with(func(k *numbers) { k.D = big1(20000) }), apart},
		"a public exponent of 64 bit": {with(func(k *numbers) { k.E = big1(64) }), "public exponent"},
		"an even public exponent":     {with(func(k *numbers) { k.E = big.NewInt(65536) }), "public exponent"},
		"a negative public exponent":  {with(func(k *numbers) { k.E = big.NewInt(-3) }), "public exponent"},
		"a long part of the exponent": {with(func(k *numbers) { k.DP = big1(20000) }), apart},
		"a long coefficient":          {with(func(k *numbers) { k.Coefficient = big1(20000) }), apart},
		"a coefficient of zero":       {with(func(k *numbers) { k.Coefficient = new(big.Int) }), apart},
		"a wrong exponent":            {with(func(k *numbers) { k.DP = big.NewInt(5) }), "not a private key that can be used"},
		"negative primes":             {with(func(k *numbers) { k.P, k.Q = new(big.Int).Neg(k.P), new(big.Int).Neg(k.Q) }), apart},
		"a negative modulus":          {with(func(k *numbers) { k.N = new(big.Int).Neg(k.N) }), " bits"},
		"three primes":                {with(func(k *numbers) { k.Version = 1; k.Others = []other{{big1(512), big1(512), big1(512)}} }), "more than two primes"},
		"three primes, said to be two": {
			with(func(k *numbers) { k.Others = []other{{big1(512), big1(512), big1(512)}} }), "more than two primes",
		},
	} {
		der := pkcs1(t, c.key)
		for form, der := range map[string][]byte{"PKCS #1": der, "PKCS #8": pkcs8(t, der)} {
			if key, err := privatekey.Parse(der); err == nil || !strings.Contains(err.Error(), c.says) {
				t.Errorf("%s in %s: %T, %v, want %q", what, form, key, err, c.says)
			}
		}
	}
	// This key has no CRT values, although RFC 8017 requires them.
	short := pkcs1(t, struct {
		Version       int
		N, E, D, P, Q *big.Int
	}{0, good.N, big.NewInt(int64(good.E)), good.D, good.Primes[0], good.Primes[1]})
	x25519, err := ecdh.X25519().GenerateKey(rand.Reader)
	must.Succeed(t, err)
	agreement, err := x509.MarshalPKCS8PrivateKey(x25519)
	must.Succeed(t, err)
	for what, der := range map[string][]byte{
		"nothing": nil, "text": []byte("hello"), "no CRT values": short, "trailing bytes": append(x509.MarshalPKCS1PrivateKey(good), 0), "a key that cannot sign": agreement,
	} {
		if key, err := privatekey.Parse(der); err == nil || !strings.Contains(err.Error(), "not a private key that can be used") {
			t.Errorf("%s: %T, %v", what, key, err)
		}
	}
}

func TestFind(t *testing.T) {
	block := func(kind, text string, headers map[string]string) string {
		return string(pem.EncodeToMemory(&pem.Block{Type: kind, Headers: headers, Bytes: []byte(text)}))
	}
	for what, c := range map[string]struct{ text, want, says string }{
		"PKCS #8":            {block("PRIVATE KEY", "a", nil), "a", ""},
		"PKCS #1":            {block("RSA PRIVATE KEY", "a", nil), "a", ""},
		"after others":       {"words\n" + block("EC PARAMETERS", "x", nil) + block("EC PRIVATE KEY", "a", nil) + block("PRIVATE KEY", "b", nil), "a", ""},
		"headers":            {block("PRIVATE KEY", "a", map[string]string{"Comment": "x"}), "a", ""},
		"nothing":            {"", "", "no private key in PEM"},
		"certificate":        {block("CERTIFICATE", "a", nil), "", "no private key in PEM"},
		"another word":       {block("UNPRIVATE KEY", "a", nil), "", "no private key in PEM"},
		"encrypted":          {block("ENCRYPTED PRIVATE KEY", "a", nil), "", "encrypted"},
		"encrypted, PKCS #1": {block("RSA PRIVATE KEY", "a", map[string]string{"Proc-Type": "4,ENCRYPTED", "DEK-Info": "AES-256-CBC,00"}), "", "encrypted"},
	} {
		got, err := privatekey.Find([]byte(c.text))
		if string(got) != c.want || (err == nil) != (c.says == "") || err != nil && !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %q, %v", what, got, err)
		}
	}
}

// FuzzParse checks that every key that Parse returns is safe to compute with: its length is within
// the bounds, and signing never panics.
func FuzzParse(f *testing.F) {
	good := newRSA(f, 2048)
	seeds := [][]byte{x509.MarshalPKCS1PrivateKey(good), pkcs1(f, panicking(f)), pkcs1(f, numbers{
		N: big.NewInt(15), E: big.NewInt(3), D: big.NewInt(3), P: big.NewInt(3), Q: big.NewInt(5), DP: big.NewInt(1), DQ: big.NewInt(3), Coefficient: big.NewInt(2),
	})}
	for _, seed := range seeds {
		f.Add(seed)
		f.Add(pkcs8(f, seed))
	}
	sec1, err := x509.MarshalECPrivateKey(newECDSA(f, elliptic.P256()))
	must.Succeed(f, err)
	f.Add(sec1)
	f.Fuzz(func(t *testing.T, der []byte) {
		key, err := privatekey.Parse(der)
		if err != nil {
			return
		}
		if key, ok := key.(*rsa.PrivateKey); ok {
			if bits := key.N.BitLen(); bits < 2048 || bits > 8192 || len(key.Primes) != 2 {
				t.Errorf("accepted: %d bits, %d primes", bits, len(key.Primes))
			}
		}
		digest := sha256.Sum256(nil)
		// Numbers that are not prime may cause an error, but no panic.
		_, _ = key.Sign(rand.Reader, digest[:], crypto.SHA256)
	})
}
