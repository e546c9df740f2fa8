package issuer

import (
	"cmp"
	"errors"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
)

// Clusters determines the claim lanyard.dev.cluster of a token: the cluster whose program requested
// the token. The program may run in this cluster or in a spoke. A spoke is a cluster that keeps its
// identities in this cluster.
type Clusters struct {
	// ID is the name of this cluster. If it is empty, tokens for users of this cluster do not have
	// the claim lanyard.dev.cluster.
	ID string
	// SpokeUserPrefix is the prefix of the spokes' user names at this cluster's API server, such as
	// "system:serviceaccount:lanyard-spokes:". The rest of a user name is the spoke's name. An
	// empty prefix means that there are no spokes.
	SpokeUserPrefix string
}

// Check returns an error if SpokeUserPrefix could match users that belong to no spoke. A spoke is a
// cluster that keeps its identities in this cluster.
func (c Clusters) Check() error {
	const accounts = "system:serviceaccount:"
	namespace, ofAccounts := strings.CutPrefix(c.SpokeUserPrefix, accounts)
	namespace, complete := strings.CutSuffix(namespace, ":")
	switch {
	case c.SpokeUserPrefix == "":
		return nil
	case !complete:
		return fmt.Errorf("%q must end with a colon, as %q does", c.SpokeUserPrefix, accounts+"lanyard-spokes:")
	case ofAccounts && len(validation.IsDNS1123Label(namespace)) > 0, strings.HasPrefix(accounts, c.SpokeUserPrefix):
		return fmt.Errorf("%q must name one namespace of ServiceAccounts, as %q does", c.SpokeUserPrefix, accounts+"lanyard-spokes:")
	}
	return nil
}

// Spoke returns the name of the spoke that a user belongs to; empty for a user of this cluster. It
// fails if the user name has the prefix, but the rest is this cluster's ID or no valid spoke name.
func (c Clusters) Spoke(user string) (string, error) {
	name, is := strings.CutPrefix(user, c.SpokeUserPrefix)
	switch {
	case c.SpokeUserPrefix == "" || !is:
		return "", nil
	case name == c.ID:
		return "", errors.New("the spoke has the name of the hub: rename its account")
	case len(validation.IsDNS1123Label(name)) > 0:
		return "", fmt.Errorf("the rest of the user name after %q is not the name of a spoke: it must be a DNS label", c.SpokeUserPrefix)
	}
	return name, nil
}

// Of returns the claim lanyard.dev.cluster for a token of this user; nil if the token does not get
// the claim. The API server must have authenticated the user name. Of fails if [Clusters.Spoke]
// fails.
func (c Clusters) Of(user string) (*Cluster, error) {
	spoke, err := c.Spoke(user)
	id := cmp.Or(spoke, c.ID)
	if err != nil || id == "" { // id is empty: the user belongs to this cluster, which has no name
		return nil, err
	}
	return &Cluster{ID: id}, nil
}
