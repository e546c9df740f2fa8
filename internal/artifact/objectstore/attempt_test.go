package objectstore_test

import (
	"net/http"
	"testing"

	"github.com/lanyard-dev/lanyard/auth/transport/attempt"
	"github.com/lanyard-dev/lanyard/auth/transport/attempt/attempttest"
	"github.com/lanyard-dev/lanyard/internal/artifact/objectstore"
	"github.com/lanyard-dev/lanyard/internal/artifact/origin"
)

func TestDisconnections(t *testing.T) {
	attempttest.Run(t, attempttest.Sender{
		Side:     attempt.Side{Name: "the endpoint", Certificates: "spec.certSecretRef", Insecure: "spec.insecure"},
		Attempts: attempt.Reads,
		Send: func(t *testing.T, base *http.Transport) error {
			t.Helper()
			_, err := get(t.Context(), objectstore.NewClient(base, false, origin.Caller{}), "https://endpoint.example/")
			if err != nil && origin.CodeOf(err) != origin.CodeUnreachable {
				t.Errorf("code %s: %v", origin.CodeOf(err), err)
			}
			return err
		},
	})
}
