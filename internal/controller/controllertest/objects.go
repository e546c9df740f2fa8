package controllertest

import (
	"archive/tar"
	"compress/gzip"
	"errors"
	"io"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/lanyard-dev/lanyard/api/toolkit/v1alpha1"
	"github.com/lanyard-dev/lanyard/internal/artifact/store"
	"github.com/lanyard-dev/lanyard/internal/must"
)

// Create stores an object.
func Create(t *testing.T, kube client.Client, o client.Object) {
	t.Helper()
	must.Succeed(t, kube.Create(t.Context(), o))
}

// CreateSecret stores a Secret.
func CreateSecret(t *testing.T, kube client.Client, namespace, name string, kind corev1.SecretType, data map[string]string) {
	t.Helper()
	s := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Type: kind, Data: map[string][]byte{}}
	for key, value := range data {
		s.Data[key] = []byte(value)
	}
	Create(t, kube, s)
}

// CreateAccount stores a ServiceAccount with image pull secrets.
func CreateAccount(t *testing.T, kube client.Client, namespace, name string, pullSecrets ...string) {
	t.Helper()
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	for _, secret := range pullSecrets {
		account.ImagePullSecrets = append(account.ImagePullSecrets, corev1.LocalObjectReference{Name: secret})
	}
	Create(t, kube, account)
}

// BaseURL is the base URL of the artifact server.
const BaseURL = "http://artifacts.example.com"

// Served reads an artifact by its URL below [BaseURL], and returns its files: name -> content.
func Served(t *testing.T, artifacts *store.Store, artifact *v1alpha1.Artifact) map[string]string {
	t.Helper()
	if artifact == nil {
		return nil
	}
	f, _, err := artifacts.ByURLPath(strings.TrimPrefix(artifact.URL, BaseURL))
	if err != nil {
		t.Fatalf("open the artifact: %v", err)
	}
	defer f.Close() //nolint:errcheck // read only
	gz, err := gzip.NewReader(f)
	must.Succeed(t, err)
	files := map[string]string{}
	for tr := tar.NewReader(gz); ; {
		h, err := tr.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		must.Succeed(t, err)
		content, err := io.ReadAll(tr)
		must.Succeed(t, err)
		files[h.Name] = string(content)
	}
}
