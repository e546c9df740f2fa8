package issuer

import (
	"errors"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
)

// Clusters says which cluster a token names: the one whose program asked for the token. A spoke is
// a cluster whose identities are in this one.
type Clusters struct {
	// ID is the name of this cluster; empty for tokens that do not name it.
	ID string
	// SpokeUserPrefix is what the user names of spokes begin with at this cluster's API server,
	// such as "system:serviceaccount:lanyard-spokes:". The rest is the name of the spoke. Empty:
	// there are no spokes.
	SpokeUserPrefix string
}

// Check refuses a prefix with which other users could be taken for spokes.
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

// Spoke returns the name of the spoke that a user stands for; empty for a user of this cluster. It
// fails for a user whose name begins as a spoke's, but names no spoke.
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

// Of returns the claim cluster of a token that a user gets; nil for none. The user name is the one
// that the API server has authenticated. Errors are those of [Clusters.Spoke].
func (c Clusters) Of(user string) (*Cluster, error) {
	id, err := c.Spoke(user)
	switch {
	case err != nil:
		return nil, err
	case id == "":
		id = c.ID
	}
	if id == "" {
		return nil, nil //nolint:nilnil // no name is no error
	}
	return &Cluster{ID: id}, nil
}
