package cloudtest_test

import (
	"net/http"
	"testing"
	"testing/synctest"

	"github.com/lanyard-dev/lanyard/cloudtest"
	"github.com/lanyard-dev/lanyard/cloudtest/internal/must"
	"github.com/lanyard-dev/lanyard/cloudtest/internal/rig"
)

// TestCloseEndsEverything checks that a synctest bubble can end as soon as the cloud is closed. A
// client that has not read its answer closes the connection only later. So Close must end the
// connection.
func TestCloseEndsEverything(t *testing.T) {
	for range 100 {
		synctest.Test(t, func(t *testing.T) {
			c, err := cloudtest.New(cloudtest.Config{})
			must.Succeed(t, err)
			transport := c.Transport()
			res, err := transport.RoundTrip(rig.NewRequest(t, http.MethodGet, "https://sts.amazonaws.com/", "", ""))
			must.Succeed(t, err)
			_ = res.Body.Close() // closed without reading
			transport.CloseIdleConnections()
			_ = c.Close()
		})
	}
}
