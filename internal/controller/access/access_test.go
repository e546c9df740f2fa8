package access_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/lanyard-dev/lanyard/auth"
	"github.com/lanyard-dev/lanyard/auth/spec"
	"github.com/lanyard-dev/lanyard/internal/controller/access"
	"github.com/lanyard-dev/lanyard/internal/controller/controllertest"
	"github.com/lanyard-dev/lanyard/internal/controller/object"
)

// TestObjectsWaitForTheControllersIdentity checks objects whose cloud identity is missing or
// malformed:
//   - An object with the controller's identity must be retried, because the controller's node may
//     get a role later, and no event reports that.
//   - An object with a ServiceAccount's identity must be stalled. The controller watches
//     ServiceAccounts, so a change of the account starts the next attempt.
func TestObjectsWaitForTheControllersIdentity(t *testing.T) {
	account, err := auth.ServiceAccount("tenant-a", "puller")
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		subject auth.Subject
		code    auth.Code
		stalled bool
	}{
		"an account's":                  {account, auth.CodeIdentityMissing, true},
		"an account's, malformed":       {account, auth.CodeIdentityInvalid, true},
		"the controller's":              {auth.Controller(), auth.CodeIdentityMissing, false},
		"the controller's, malformed":   {auth.Controller(), auth.CodeIdentityInvalid, false},
		"the controller's, not for all": {auth.Controller(), auth.CodeEndpointRefused, true},
	} {
		t.Run(name, func(t *testing.T) {
			call := access.Call{Identity: spec.Identity{Subject: c.subject}}
			missing := fmt.Errorf("x: %w", &auth.Error{Stage: auth.StageIdentity, Code: c.code, Err: errors.New("none")})
			got := object.Explain(call.Explain(missing), func(error) (object.Failure, bool) { return object.Failure{}, false })
			if got.Reason != string(c.code) || got.Stalled != c.stalled {
				t.Errorf("%+v", got)
			}
		})
	}
}

// TestSubscribe checks that the change and the deletion of a ServiceAccount are each reported, with
// its kind, namespace and name.
func TestSubscribe(t *testing.T) {
	accounts := &controllertest.Accounts{}
	reach := &access.Access{Accounts: accounts}
	var heard []object.Dependency
	reach.Subscribe(func(d object.Dependency) { heard = append(heard, d) })
	accounts.Put(t, "tenant-a", "puller", "1", nil)
	accounts.Put(t, "tenant-a", "puller", "1", map[string]string{"role": "role/a"})
	accounts.Remove(t, "tenant-a", "puller")
	want := object.Dependency{Kind: "ServiceAccount", Namespace: "tenant-a", Name: "puller"}
	if len(heard) != 2 || heard[0] != want || heard[1] != want {
		t.Errorf("heard %+v", heard)
	}
}
