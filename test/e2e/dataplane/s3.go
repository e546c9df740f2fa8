package dataplane

import (
	"fmt"
	"net/http"

	"github.com/johannesboyne/gofakes3"
	"github.com/johannesboyne/gofakes3/backend/s3mem"
)

// S3 returns a gofakes3 server with these buckets in memory. The server expects path-style URLs.
// Pass the handler to the local cloud's ServeS3.
func S3(buckets ...string) (http.Handler, error) {
	store := s3mem.New()
	for _, name := range buckets {
		if err := store.CreateBucket(name); err != nil {
			return nil, fmt.Errorf("make bucket %s: %w", name, err)
		}
	}
	return gofakes3.New(store, gofakes3.WithoutVersioning()).Server(), nil
}
