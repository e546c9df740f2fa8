package ocirepository

import (
	"encoding/json"
	"reflect"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/lanyard-dev/lanyard/api/meta"
	"github.com/lanyard-dev/lanyard/api/toolkit/v1alpha1"
	"github.com/lanyard-dev/lanyard/auth/spec"
	"github.com/lanyard-dev/lanyard/internal/controller/controllertest"
	"github.com/lanyard-dev/lanyard/internal/controller/object"
	"github.com/lanyard-dev/lanyard/internal/controller/source"
)

func TestExclusions(t *testing.T) {
	controllertest.Exclusions(t, v1alpha1.OCIRepositoryKind, func(row json.RawMessage) (spec.Fields, error) {
		o := &v1alpha1.OCIRepository{ObjectMeta: metav1.ObjectMeta{Namespace: "tenant-a"}}
		err := yaml.UnmarshalStrict(row, &o.Spec)
		return kind{}.View(o).Fields, err
	})
}

// The frame sees every field that it looks at.
func TestView(t *testing.T) {
	secret, certs, proxy := "pull", "certs", "proxy"
	o := &v1alpha1.OCIRepository{
		ObjectMeta: metav1.ObjectMeta{Namespace: "tenant-a", Name: "app"},
		Spec: v1alpha1.OCIRepositorySpec{
			URL: "oci://cloud.example.com/app",
			RegistryAccess: v1alpha1.RegistryAccess{
				Provider: "aws", ServiceAccountName: "puller", Credential: &v1alpha1.Credential{Type: "SpiffeJWT", Audiences: []string{"a"}},
				SecretRef: &meta.LocalReference{Name: secret}, CertSecretRef: &meta.LocalReference{Name: certs},
				ProxySecretRef: &meta.LocalReference{Name: proxy}, Insecure: true,
			},
			Suspend: true, Interval: metav1.Duration{Duration: time.Hour}, Timeout: &metav1.Duration{Duration: time.Minute}, ExternalArtifact: true,
		},
	}
	if got := (kind{}).View(o); got.Artifact != nil {
		t.Errorf("nothing was fetched, and it shows %+v", got)
	}
	o.Status.Artifact = &v1alpha1.Artifact{Revision: "v1@sha256:0a"}
	want := source.View{
		Fields: spec.Fields{
			Kind: "OCIRepository", Namespace: "tenant-a", Name: "app", Address: "oci://cloud.example.com/app",
			Credential: &spec.Credential{Type: spec.SpiffeJWT, Audiences: []string{"a"}},
			Provider:   "aws", ServiceAccountName: "puller", SecretRef: &secret, CertSecretRef: &certs, ProxySecretRef: &proxy,
			Insecure: true, PullSecrets: true,
		},
		View:     object.View{Suspend: true, Interval: time.Hour, Timeout: &metav1.Duration{Duration: time.Minute}, Finalizer: true},
		Artifact: o.Status.Artifact.DeepCopy(), Publish: true,
	}
	got := (kind{}).View(o)
	controllertest.Overwrite(o) // the view is a copy
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, want %+v", got, want)
	}
}
