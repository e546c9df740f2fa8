// Package objectstoretest has test helpers for the storages of all clouds.
package objectstoretest

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/lanyard-dev/lanyard/internal/artifact/objectstore"
)

// Serve serves a fake cloud over TLS until the test ends. The returned transport connects to the
// cloud for any host name.
func Serve(t *testing.T, cloud http.Handler) *http.Transport {
	t.Helper()
	server := httptest.NewTLSServer(cloud)
	t.Cleanup(server.Close)
	// The client of an httptest server has an *http.Transport.
	transport := server.Client().Transport.(*http.Transport).Clone()
	transport.TLSClientConfig.InsecureSkipVerify = true
	address := server.Listener.Addr().String()
	dial := transport.DialContext
	transport.DialContext = func(ctx context.Context, network, _ string) (net.Conn, error) { return dial(ctx, network, address) }
	return transport
}

// List returns the objects that a storage lists before its first error, and that error.
func List(t *testing.T, storage objectstore.Storage, prefix string) ([]objectstore.Object, error) {
	t.Helper()
	var objects []objectstore.Object
	for o, err := range storage.List(t.Context(), prefix) {
		if err != nil {
			return objects, err
		}
		objects = append(objects, o)
	}
	return objects, nil
}
