package issuer

import (
	"cmp"
	"errors"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
)

// Clusters determines the claim cluster of a token: the cluster whose program requested the token.
// A spoke is another cluster whose identities are in this cluster.
type Clusters struct {
	// ID is the name of this cluster. If it is empty, tokens for users of this cluster do not have
	// the claim cluster.
	ID string
	// SpokeUserPrefix is the prefix of the spokes' user names at this cluster's API server, such as
	// "system:serviceaccount:lanyard-spokes:". The rest of a user name is the spoke's name. An
	// empty prefix means that there are no spokes.
	SpokeUserPrefix string
}

// Check refuses a prefix that could match users that are no spokes.
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
// fails for a user name that has the prefix, but no valid spoke name after the prefix.
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

// Of returns the claim cluster of a user's token; nil for a token without this claim. The API
// server must have authenticated the user name. Errors are those of [Clusters.Spoke].
func (c Clusters) Of(user string) (*Cluster, error) {
	spoke, err := c.Spoke(user)
	id := cmp.Or(spoke, c.ID)
	if err != nil || id == "" { // without a name of this cluster, there is no claim
		return nil, err
	}
	return &Cluster{ID: id}, nil
}
