package bucket

import (
	"strings"
	"testing"

	"github.com/lanyard-dev/lanyard/api/toolkit/v1alpha1"
	"github.com/lanyard-dev/lanyard/auth"
	"github.com/lanyard-dev/lanyard/auth/spec"
	"github.com/lanyard-dev/lanyard/internal/controller/source"
)

// TestControllerStaysAtTheCloud holds that the controller's identity is shown to no host that is only listed, where a tenant's
// own may be.
func TestControllerStaysAtTheCloud(t *testing.T) {
	tenant, err := auth.ServiceAccount("tenant-a", "reader")
	if err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		subject auth.Subject
		listed  bool
		refused bool
	}{
		"the tenant's at the cloud":     {tenant, false, false},
		"the tenant's at a listed host": {tenant, true, false},
		"the controller's at the cloud": {auth.Controller(), false, false},
		"the controller's at a listed":  {auth.Controller(), true, true},
		"nobody's at a listed host":     {auth.Subject{}, true, false},
	} {
		t.Run(name, func(t *testing.T) {
			call := source.Call{Identity: spec.Identity{Source: spec.Cloud, Provider: "aws", Subject: tc.subject}}
			err := checkLent(call, Place{Endpoint: "s3.internal.example:9000", Listed: tc.listed})
			if tc.refused != (auth.CodeOf(err) == auth.CodeEndpointRefused) || !tc.refused && err != nil {
				t.Fatalf("%v", err)
			}
			if !tc.refused {
				return
			}
			// Before anything is connected to: the kind has nothing to connect with.
			p := plan{service: struct{ Service }{}, place: Place{Listed: true}}
			err = kind{}.Fetch(t.Context(), &v1alpha1.Bucket{}, p, call)
			if auth.CodeOf(err) != auth.CodeEndpointRefused || !strings.Contains(err.Error(), "spec.serviceAccountName") {
				t.Errorf("%v", err)
			}
		})
	}
}
