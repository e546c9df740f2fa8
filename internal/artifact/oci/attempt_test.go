package oci_test

import (
	"net/http"
	"testing"

	"github.com/lanyard-dev/lanyard/auth/transport/attempt"
	"github.com/lanyard-dev/lanyard/auth/transport/attempt/attempttest"
	"github.com/lanyard-dev/lanyard/internal/artifact/oci"
	"github.com/lanyard-dev/lanyard/internal/artifact/origin"
)

func TestDisconnections(t *testing.T) {
	attempttest.Run(t, attempttest.Sender{
		Side:     attempt.Side{Name: "the registry", Certificates: "spec.certSecretRef", Insecure: "spec.insecure"},
		Attempts: attempt.Reads,
		Send: func(t *testing.T, base *http.Transport) error {
			t.Helper()
			_, err := oci.Connect(t.Context(), repository(t, appURL), oci.Options{Transport: base})
			if err != nil && origin.CodeOf(err) != origin.CodeUnreachable {
				t.Errorf("code %s: %v", origin.CodeOf(err), err)
			}
			return err
		},
	})
}
