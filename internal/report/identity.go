package report

import (
	"context"
	"fmt"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	identityv1 "github.com/lanyard-dev/lanyard/api/identity/v1alpha1"
	"github.com/lanyard-dev/lanyard/internal/kinds"
)

// Identities returns the rows of the AWSClusters and the AWS identities of a namespace. For an
// empty namespace, it returns the rows of all namespaces and of cluster-scoped objects. Kinds that
// the cluster does not have, or that the caller may not list, have no rows. For example, most
// tenants may not list the identities that administrators lend.
func Identities(ctx context.Context, c client.Reader, table kinds.Table, namespace string) ([]Row, error) {
	var objects []Object
	for _, kind := range table.Where(aboutAWS) {
		if namespace != "" && kind.ClusterScoped {
			continue
		}
		err := add(ctx, c, namespace, kind, &objects)
		if err != nil && !apimeta.IsNoMatchError(err) && !apierrors.IsNotFound(err) && !apierrors.IsForbidden(err) {
			return nil, fmt.Errorf("list AWSClusters and AWS identities: %w", err)
		}
	}
	rows := All(objects)
	for i := range rows {
		if rows[i].Kind == identityv1.AWSClusterControllerIdentityKind {
			rows[i].Message = strings.TrimPrefix(rows[i].Message+"; "+ruleOfSources(table), "; ")
		}
	}
	return rows, nil
}

// ruleOfSources returns a text for people about objects that fetch from AWS and name no identity.
// It says which grants such an object needs. These grants are needed while the cluster has the
// AWSClusterControllerIdentity, even if this identity gives no credential.
func ruleOfSources(table kinds.Table) string {
	return "an " + AnyOf(table.Where(kinds.Kind.Fetches).Names()) +
		" of AWS that names no identity needs this grant, and that of --controller-identity-namespaces"
}

// AnyOf joins names as a sentence does: "a, b or c".
func AnyOf(names []string) string {
	last := len(names) - 1
	if last < 1 {
		return strings.Join(names, "")
	}
	return strings.Join(names[:last], ", ") + " or " + names[last]
}
