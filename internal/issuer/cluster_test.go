package issuer_test

import (
	"testing"

	"github.com/lanyard-dev/lanyard/internal/issuer"
)

// TestCluster checks the claim lanyard.dev.cluster. A spoke is another cluster. Its user name is
// the prefix and the spoke's name. For such a user, the claim must be the spoke's name. For any
// other user, the claim must be the ID of this cluster. If the user name has the prefix, but no
// valid spoke name after it, Of must fail.
func TestCluster(t *testing.T) {
	const accounts = "system:serviceaccount:lanyard-spokes:"
	for _, c := range []struct{ id, prefix, user, want string }{
		{"hub", accounts, accounts + "eu-1", "eu-1"},
		{"", accounts, accounts + "eu-1", "eu-1"},
		{"hub", accounts, "system:serviceaccount:lanyard-system:lanyard-controller", "hub"},
		{"hub", accounts, "system:serviceaccount:lanyard-spokesman:eu-1", "hub"},
		{"hub", accounts, "eu-1", "hub"},
		{"hub", "gardener.cloud:system:seed:", "gardener.cloud:system:seed:aws-eu1", "aws-eu1"},
		{"hub", "", accounts + "eu-1", "hub"},
		{"", "", accounts + "eu-1", ""},
		{"hub", accounts, accounts, "error"},
		{"hub", accounts, accounts + "EU", "error"},
		{"hub", accounts, accounts + "eu:1", "error"},
		{"hub", accounts, accounts + "eu.1", "error"},
		{"hub", accounts, accounts + "hub", "error"},
	} {
		got := ""
		cluster, err := issuer.Clusters{ID: c.id, SpokeUserPrefix: c.prefix}.Of(c.user)
		if err != nil {
			got = "error"
		} else if cluster != nil {
			got = cluster.ID
		}
		if got != c.want {
			t.Errorf("%q with the prefix %q: %q, %v; want %q", c.user, c.prefix, got, err, c.want)
		}
	}
}

func TestSpokeUserPrefix(t *testing.T) {
	for prefix, ok := range map[string]bool{
		"": true, "system:serviceaccount:lanyard-spokes:": true, "gardener.cloud:system:seed:": true, "spoke:": true,
		"system:serviceaccount:lanyard-spokes": false, "system:serviceaccount:": false, "system:": false,
		"system:serviceaccount:a:b:": false, "system:serviceaccount:A:": false, "spoke": false,
	} {
		if err := (issuer.Clusters{SpokeUserPrefix: prefix}).Check(); (err == nil) != ok {
			t.Errorf("%q: %v", prefix, err)
		}
	}
}
