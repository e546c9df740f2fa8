package ocirepository

import (
	"testing"

	"github.com/lanyard-dev/lanyard/api/toolkit/v1alpha1"
	"github.com/lanyard-dev/lanyard/internal/controller/controllertest"
)

func TestConformance(t *testing.T) {
	controllertest.Run(t, func(t *testing.T) *controllertest.Case[*v1alpha1.OCIRepository] {
		t.Helper()
		w := newWorld(t)
		w.tenant("tenant-a", roleA)
		return controllertest.CaseOf(w.World, w.create("tenant-a", "app", nil))
	})
}
