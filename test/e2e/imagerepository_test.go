package e2e

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/lanyard-dev/lanyard/api/meta"
	"github.com/lanyard-dev/lanyard/api/toolkit/v1alpha1"
)

// image returns an ImageRepository that scans the tenant's repository with the tenant's
// ServiceAccount.
func (tn *tenant) image(name string) *v1alpha1.ImageRepository {
	return &v1alpha1.ImageRepository{
		ObjectMeta: metav1.ObjectMeta{Namespace: tn.namespace, Name: name, Labels: tn.shard.labels()},
		Spec: v1alpha1.ImageRepositorySpec{
			Image:          strings.TrimPrefix(tn.url, "oci://"),
			Schedule:       v1alpha1.Schedule{Interval: metav1.Duration{Duration: interval}},
			RegistryAccess: v1alpha1.RegistryAccess{Access: v1alpha1.Access{Provider: v1alpha1.ProviderAWS, ServiceAccountName: puller}},
		},
	}
}

// TestImageRepository scans a tenant's repository at Amazon ECR. A scan of another tenant's
// repository must be refused.
func TestImageRepository(t *testing.T) {
	beside(t)
	tn, other := newTenant(t, "images"), newTenant(t, "images-other")
	for _, tag := range []string{"1.0.0", "1.1.0", "sha256-0a.sig"} {
		tn.pushFile(t, tag, tag)
	}
	other.pushFile(t, "9.0.0", "other")
	o := tn.image("app")
	create(t, o)
	scanned := func(want ...string) func() error {
		return func() error {
			scan := o.Status.LastScanResult
			return wantf(scan != nil && scan.TagCount == len(want) && slices.Equal(scan.LatestTags, want), "found %+v, want %v", scan, want)
		}
	}
	awaitImage(t, o, "the tags", scanned("1.1.0", "1.0.0"))
	first := o.Status.LastScanResult.Revision
	if id := o.Status.Identity; id == nil || id.CloudIdentity != tn.role || id.Subject != tn.subject {
		t.Errorf("scanned as %+v", id)
	}
	tn.pushFile(t, "2.0.0", "2.0.0")
	awaitImage(t, o, "a new tag", scanned("2.0.0", "1.1.0", "1.0.0"))
	if o.Status.LastScanResult.Revision == first {
		t.Error("the revision stayed the same")
	}

	foreign := tn.image("foreign")
	foreign.Spec.Image = strings.TrimPrefix(other.url, "oci://")
	create(t, foreign)
	awaitImage(t, foreign, "the refusal", func() error {
		c := apimeta.FindStatusCondition(foreign.Status.Conditions, meta.ConditionReady)
		return wantf(c != nil && c.Status == metav1.ConditionFalse && c.Reason == meta.ReasonRegistryRefused && strings.Contains(c.Message, tn.role), "Ready is %+v", c)
	})
	if foreign.Status.LastScanResult != nil {
		t.Errorf("found %+v at another tenant's", foreign.Status.LastScanResult)
	}
}

// awaitImage reads the ImageRepository into o again and again, until want() returns nil.
func awaitImage(t *testing.T, o *v1alpha1.ImageRepository, what string, want func() error) {
	t.Helper()
	eventually(t, fmt.Sprintf("%s/%s: %s", o.Namespace, o.Name, what), func(ctx context.Context) error {
		if err := objects.Get(ctx, client.ObjectKeyFromObject(o), o); err != nil {
			return err
		}
		return want()
	})
}
