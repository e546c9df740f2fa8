package access

import (
	"net"
	"net/http"
	"testing"

	"github.com/lanyard-dev/lanyard/api/meta"
	"github.com/lanyard-dev/lanyard/auth/endpoint"
	"github.com/lanyard-dev/lanyard/auth/transport"
	"github.com/lanyard-dev/lanyard/internal/artifact/origin"
	"github.com/lanyard-dev/lanyard/internal/must"
)

// If a cloud's host gets no credential, the result of Caller names the cloud. The error text can
// then suggest the field that makes the controller send a credential.
func TestCaller(t *testing.T) {
	pool, err := transport.NewPool(transport.Options{
		Base: &http.Transport{}, CheckTarget: endpoint.Guard{}.CheckTarget, Dial: (&net.Dialer{}).DialContext,
	})
	must.Succeed(t, err)
	t.Cleanup(pool.Close)
	known := Login{Identity: &meta.Identity{}}
	for host, want := range map[string]string{
		"123456789123.dkr.ecr.eu-west-1.amazonaws.com": "aws", "contoso.azurecr.io": "azure", "contoso.blob.core.windows.net": "azure",
		"europe-docker.pkg.dev": "gcp", "storage.googleapis.com": "gcp", "ghcr.io": "",
	} {
		conn, err := (&Access{Transports: pool}).Connect(t.Context(), Call{}, host)
		must.Succeed(t, err)
		if got := Caller(conn, Login{}); got != (origin.Caller{Anonymous: true, Provider: want}) {
			t.Errorf("%s without a credential: %+v", host, got)
		}
		if got := Caller(conn, known); got != (origin.Caller{}) {
			t.Errorf("%s with a credential: %+v", host, got)
		}
	}
}
