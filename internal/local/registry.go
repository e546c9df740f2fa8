package local

import (
	"context"
	"io"
	"net/http"
	"sync"

	"github.com/distribution/distribution/v3/configuration"
	"github.com/distribution/distribution/v3/registry/handlers"
	_ "github.com/distribution/distribution/v3/registry/storage/driver/inmemory" // the storage of the registries
	"github.com/sirupsen/logrus"
)

// registries are the data planes of a cloud's registries, in memory. Each is an instance of
// distribution (github.com/distribution/distribution). The cloud checks permissions before a
// request reaches them.
type registries struct {
	ctx context.Context //nolint:containedctx // the life of the registries, which are made at their first request

	mu   sync.Mutex // guards what follows
	made map[string]http.Handler
}

// newRegistries returns in-memory registries that live until ctx ends. The library that implements
// a registry logs with logrus. newRegistries sets the output of logrus to the given writer, for the
// whole process.
func newRegistries(ctx context.Context, log io.Writer) *registries {
	logrus.SetOutput(log)
	return &registries{ctx: ctx, made: map[string]http.Handler{}}
}

// handler returns the data plane of the registry with this name.
func (r *registries) handler(name string) http.Handler {
	r.mu.Lock()
	defer r.mu.Unlock()
	h := r.made[name]
	if h == nil {
		cfg := &configuration.Configuration{Storage: configuration.Storage{
			"inmemory":    configuration.Parameters{},
			"maintenance": configuration.Parameters{"uploadpurging": map[any]any{"enabled": false}},
		}}
		cfg.HTTP.RelativeURLs = true
		cfg.Log.AccessLog.Disabled = true // the cloud's journal has every request
		h = handlers.NewApp(r.ctx, cfg)
		r.made[name] = h
	}
	return h
}
