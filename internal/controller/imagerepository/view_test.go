package imagerepository

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

func TestIdentityExclusions(t *testing.T) {
	controllertest.Exclusions(t, v1alpha1.ImageRepositoryKind, func(row json.RawMessage) (spec.Fields, error) {
		o := &v1alpha1.ImageRepository{ObjectMeta: metav1.ObjectMeta{Namespace: "tenant-a"}}
		err := yaml.UnmarshalStrict(row, &o.Spec)
		return kind{}.View(o).Fields, err
	})
}

// The frame sees every field that it looks at.
func TestView(t *testing.T) {
	secret, certs, proxy := "pull", "certs", "proxy"
	o := &v1alpha1.ImageRepository{
		ObjectMeta: metav1.ObjectMeta{Namespace: "tenant-a", Name: "app"},
		Spec: v1alpha1.ImageRepositorySpec{
			Image: "cloud.example.com/app",
			RegistryAccess: v1alpha1.RegistryAccess{
				Provider: "aws", ServiceAccountName: "puller", Credential: &v1alpha1.Credential{Type: "SpiffeJWT", Audiences: []string{"a"}},
				SecretRef: &meta.LocalReference{Name: secret}, CertSecretRef: &meta.LocalReference{Name: certs},
				ProxySecretRef: &meta.LocalReference{Name: proxy}, Insecure: true,
			},
			Suspend: true, Interval: metav1.Duration{Duration: time.Hour}, Timeout: &metav1.Duration{Duration: time.Minute},
		},
	}
	if got := (kind{}).View(o); got.Found != "" {
		t.Errorf("nothing was found, and it shows %+v", got)
	}
	o.Status.CanonicalImageName, o.Status.LastScanResult = "cloud.example.com/app", &v1alpha1.ScanResult{TagCount: 3}
	want := source.View{
		Fields: spec.Fields{
			Kind: "ImageRepository", Namespace: "tenant-a", Name: "app", Address: "cloud.example.com/app",
			Credential: &spec.Credential{Type: spec.SpiffeJWT, Audiences: []string{"a"}},
			Provider:   "aws", ServiceAccountName: "puller", SecretRef: &secret, CertSecretRef: &certs, ProxySecretRef: &proxy,
			Insecure: true, PullSecrets: true,
		},
		View:  object.View{Suspend: true, Interval: time.Hour, Timeout: &metav1.Duration{Duration: time.Minute}},
		Found: "tags of cloud.example.com/app: 3",
	}
	got := (kind{}).View(o)
	controllertest.Overwrite(o) // the view is a copy
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, want %+v", got, want)
	}
}
