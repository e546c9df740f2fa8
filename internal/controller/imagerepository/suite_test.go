package imagerepository

import (
	"fmt"
	"testing"

	"github.com/lanyard-dev/lanyard/api/toolkit/v1alpha1"
	"github.com/lanyard-dev/lanyard/internal/controller/controllertest"
)

func TestConformance(t *testing.T) {
	controllertest.Run(t, func(t *testing.T) *controllertest.Case[*v1alpha1.ImageRepository] {
		t.Helper()
		w := newWorld(t)
		w.tenant("tenant-a", "1.0.0")
		c := controllertest.CaseOf(w.World, w.create("tenant-a", "app", nil))
		c.Forge = func(o *v1alpha1.ImageRepository) {
			o.Status.CanonicalImageName, o.Status.LastScanResult.TagCount = "another.example.com/app", 99
		}
		c.Offers = func(o *v1alpha1.ImageRepository) string {
			if o.Status.LastScanResult == nil {
				return ""
			}
			return fmt.Sprint(o.Status.CanonicalImageName, o.Status.LastScanResult.TagCount, o.Status.LastScanResult.Revision)
		}
		return c
	})
}
