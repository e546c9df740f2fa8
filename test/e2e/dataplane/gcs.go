package dataplane

import (
	"fmt"
	"net/http"

	"github.com/fsouza/fake-gcs-server/fakestorage"
)

// GCS returns fake-gcs-server with these buckets, in memory. The server answers for Google's own
// host storage.googleapis.com. Pass the handler to the local cloud's ServeStorage. The function
// closeServer ends the server.
func GCS(buckets ...string) (h http.Handler, closeServer func(), err error) {
	server, err := fakestorage.NewServerWithOptions(fakestorage.Options{
		NoListener: true, Scheme: "https", ExternalURL: "https://storage.googleapis.com", PublicHost: "storage.googleapis.com",
	})
	if err != nil {
		return nil, nil, fmt.Errorf("start fake-gcs-server: %w", err)
	}
	for _, name := range buckets {
		server.CreateBucketWithOpts(fakestorage.CreateBucketOpts{Name: name})
	}
	return server.HTTPHandler(), server.Stop, nil
}
