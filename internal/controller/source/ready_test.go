package source

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lanyard-dev/lanyard/api/toolkit/v1alpha1"
)

// A tenant's slow registry must not keep everybody's artifacts from being served.
func TestReadyDoesNotWaitForEver(t *testing.T) {
	w := newWorld(t)
	w.create("tenant-a", "lost", func(o *v1alpha1.OCIRepository) {
		o.Status.Artifact = &v1alpha1.Artifact{Digest: "sha256:" + strings.Repeat("0", 64)}
	})
	synctest.Test(t, func(t *testing.T) {
		elected := make(chan struct{})
		late := &Artifacts{Store: w.shared.Artifacts.Store, Elected: elected}
		late.register(w.r)
		check := func() error { return late.Ready(httptest.NewRequest(http.MethodGet, "/readyz", nil)) }
		for range 2 { // a standby waits as long as it has to
			if check() == nil {
				t.Fatal("a standby that lacks an artifact is ready")
			}
			time.Sleep(2 * readyWithin)
		}
		close(elected)
		if check() == nil {
			t.Error("ready before anything was tried")
		}
		time.Sleep(readyWithin + time.Second)
		if err := check(); err != nil {
			t.Errorf("not ready after %s: %v", readyWithin, err)
		}
	})
}
