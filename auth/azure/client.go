package azure

import (
	"context"
	"net/http"
	"net/url"

	"github.com/lanyard-dev/lanyard/auth"
	"github.com/lanyard-dev/lanyard/auth/internal/remote"
)

// post sends a form to target. It uses the request's proxy, if there is one.
func (p *Provider) post(ctx context.Context, request *auth.Request, target string, form url.Values) (remote.Answer, error) {
	return remote.Call(ctx, p.calls.Via(request.ProxyURL), func(ctx context.Context) (*http.Request, error) {
		return remote.NewPost(ctx, target, "application/x-www-form-urlencoded", form.Encode())
	})
}
