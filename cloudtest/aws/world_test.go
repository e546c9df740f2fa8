package aws_test

import (
	"testing"

	"github.com/lanyard-dev/lanyard/cloudtest/internal/rig"
)

const (
	account      = rig.Account
	otherAccount = rig.OtherAccount
	region       = rig.Region
	issuerURL    = rig.IssuerURL
	audience     = rig.Audience
	registryHost = rig.RegistryHost

	subjectA = rig.SubjectA
	subjectB = rig.SubjectB
	roleA    = rig.RoleA
	roleB    = rig.RoleB

	pusherKey    = rig.PusherKey
	pusherSecret = rig.PusherSecret
)

// world is the rig's cloud, with helpers in sdk_test.go and registry_test.go.
type world struct{ *rig.World }

func newWorld(t *testing.T) *world {
	t.Helper()
	return &world{rig.NewWorld(t)}
}
