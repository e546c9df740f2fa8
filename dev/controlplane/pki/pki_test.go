package pki_test

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lanyard-dev/lanyard/dev/controlplane/pki"
)

const server = "https://127.0.0.1:6443"

func TestPrepareIssues(t *testing.T) {
	t.Parallel()
	now := time.Now()
	f, err := pki.Prepare(t.TempDir(), server, now)
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name           string
		cert, key      string
		authority      string
		wrongAuthority string
		usage          x509.ExtKeyUsage
		user           string
		groups         []string
	}{
		{"serving", f.ServingCert, f.ServingKey, f.CACert, f.FrontProxyCACert, x509.ExtKeyUsageServerAuth, "kube-apiserver", nil},
		{"aggregator", f.FrontProxyCert, f.FrontProxyKey, f.FrontProxyCACert, f.CACert, x509.ExtKeyUsageClientAuth, pki.FrontProxyName, nil},
		{"controllers", f.ControllerCert, f.ControllerKey, f.CACert, f.FrontProxyCACert, x509.ExtKeyUsageClientAuth, "system:kube-controller-manager", nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			pair, err := tls.LoadX509KeyPair(tt.cert, tt.key)
			if err != nil {
				t.Fatal(err)
			}
			if pair.Leaf.Subject.CommonName != tt.user || !slices.Equal(pair.Leaf.Subject.Organization, tt.groups) {
				t.Errorf("subject = %s, want user %q, groups %q", pair.Leaf.Subject, tt.user, tt.groups)
			}
			for _, at := range []time.Time{now.Add(-time.Minute), now.Add(300 * 24 * time.Hour)} {
				if err := verify(t, pair.Leaf, tt.authority, tt.usage, at); err != nil {
					t.Errorf("not valid at %s: %v", at, err)
				}
			}
			if err := verify(t, pair.Leaf, tt.wrongAuthority, tt.usage, now); err == nil {
				t.Error("the other authority vouches for it too")
			}
			other := x509.ExtKeyUsageClientAuth
			if tt.usage == other {
				other = x509.ExtKeyUsageServerAuth
			}
			if err := verify(t, pair.Leaf, tt.authority, other, now); err == nil {
				t.Error("usable for the other side of TLS")
			}
		})
	}
	t.Run("names of the server", func(t *testing.T) {
		t.Parallel()
		pair, err := tls.LoadX509KeyPair(f.ServingCert, f.ServingKey)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"127.0.0.1", "::1", "localhost", "kubernetes.default.svc", "10.0.0.1"} {
			if err := pair.Leaf.VerifyHostname(name); err != nil {
				t.Error(err)
			}
		}
	})
	t.Run("signing key", func(t *testing.T) {
		t.Parallel()
		block, _ := pem.Decode(read(t, f.ServiceAccountKey))
		if block == nil {
			t.Fatal("no PEM")
		}
		key, err := x509.ParsePKCS1PrivateKey(block.Bytes)
		if err != nil {
			t.Fatal(err)
		}
		if got := key.N.BitLen(); got != 2048 {
			t.Errorf("key has %d bits, want 2048", got)
		}
	})
	t.Run("kubeconfig", func(t *testing.T) {
		t.Parallel()
		text := string(read(t, f.AdminKubeconfig))
		if !strings.Contains(text, "server: "+server+"\n") {
			t.Errorf("does not name the server:\n%s", text)
		}
	})
}

// TestPrepareKeepsAuthorities checks that a second Prepare keeps the authorities and the signing
// key. So older tokens and certificates stay valid. Users may have copies of client certificates in
// kubeconfig files.
func TestPrepareKeepsAuthorities(t *testing.T) {
	t.Parallel()
	dir, now := t.TempDir(), time.Now()
	first, err := pki.Prepare(dir, server, now)
	if err != nil {
		t.Fatal(err)
	}
	kept := map[string][]byte{}
	for _, file := range []string{first.CACert, first.FrontProxyCACert, first.ServiceAccountKey} {
		kept[file] = read(t, file)
	}
	oldServing := read(t, first.ServingCert)

	second, err := pki.Prepare(dir, "https://127.0.0.1:7443", now.Add(200*24*time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	for file, want := range kept {
		if string(read(t, file)) != string(want) {
			t.Errorf("%s was made anew", filepath.Base(file))
		}
	}
	if string(read(t, second.ServingCert)) == string(oldServing) {
		t.Error("the serving certificate was not renewed")
	}
	if text := string(read(t, second.AdminKubeconfig)); !strings.Contains(text, "https://127.0.0.1:7443\n") {
		t.Errorf("the kubeconfig names the old server:\n%s", text)
	}
}

// TestPrepareResumes checks that Prepare succeeds if an authority has a key but no certificate. A
// start that is killed between writing the key and the certificate leaves this state.
func TestPrepareResumes(t *testing.T) {
	t.Parallel()
	dir, now := t.TempDir(), time.Now()
	f, err := pki.Prepare(dir, server, now)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(f.CACert); err != nil {
		t.Fatal(err)
	}
	if f, err = pki.Prepare(dir, server, now); err != nil {
		t.Fatal(err)
	}
	pair, err := tls.LoadX509KeyPair(f.ServingCert, f.ServingKey)
	if err != nil {
		t.Fatal(err)
	}
	if err := verify(t, pair.Leaf, f.CACert, x509.ExtKeyUsageServerAuth, now); err != nil {
		t.Error(err)
	}
}

func TestPrepareRefuses(t *testing.T) {
	t.Parallel()
	now := time.Now()
	for _, tt := range []struct {
		name  string
		spoil func(t *testing.T, f pki.Files)
		now   time.Time
		want  string
	}{
		{"an authority about to expire", func(*testing.T, pki.Files) {}, now.Add(9*365*24*time.Hour + time.Hour), "expires on"},
		{"a spoilt certificate", func(t *testing.T, f pki.Files) {
			t.Helper()
			if err := os.WriteFile(f.CACert, []byte("spoilt"), 0o600); err != nil {
				t.Fatal(err)
			}
		}, now, "ca.crt: holds no PEM block"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			f, err := pki.Prepare(dir, server, now)
			if err != nil {
				t.Fatal(err)
			}
			tt.spoil(t, f)
			if _, err = pki.Prepare(dir, server, tt.now); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("Prepare() = %v, want %q", err, tt.want)
			}
		})
	}
}

func TestFilesArePrivate(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if _, err := pki.Prepare(dir, server, time.Now()); err != nil {
		t.Fatal(err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	if len(entries) == 0 {
		t.Fatal("nothing was written")
	}
	for _, e := range entries {
		info, err := e.Info()
		if err != nil {
			t.Fatal(err)
		}
		if info.Mode().Perm() != 0o600 {
			t.Errorf("%s has mode %s", e.Name(), info.Mode())
		}
		if strings.HasPrefix(e.Name(), ".") {
			t.Errorf("temporary file %s was left behind", e.Name())
		}
	}
}

func verify(t *testing.T, leaf *x509.Certificate, authority string, usage x509.ExtKeyUsage, at time.Time) error {
	t.Helper()
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(read(t, authority)) {
		t.Fatalf("%s holds no certificate", authority)
	}
	_, err := leaf.Verify(x509.VerifyOptions{Roots: roots, CurrentTime: at, KeyUsages: []x509.ExtKeyUsage{usage}})
	return err
}

func read(t *testing.T, file string) []byte {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return text
}
