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
	// the claim.
	ID string
	// SpokeUserPrefix is the prefix of the spokes' user names at this cluster's API server, such as
	// "system:serviceaccount:lanyard-spokes:". The rest of a user name is the spoke's name. An
	// empty prefix means that there are no spokes.
	SpokeUserPrefix string
}

// Check refuses a prefix that could match users that are not spokes.
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

// Of returns the value of the claim lanyard.dev.cluster for a token that is issued to a user; nil
// if the token gets no such claim. The API server must have authenticated the user name. Of fails
// if [Clusters.Spoke] fails.
func (c Clusters) Of(user string) (*Cluster, error) {
	spoke, err := c.Spoke(user)
	id := cmp.Or(spoke, c.ID)
	if err != nil || id == "" { // if this cluster has no name, its tokens do not have the claim
		return nil, err
	}
	return &Cluster{ID: id}, nil
}
