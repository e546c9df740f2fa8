package report

import (
	"context"
	"fmt"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	identityv1 "github.com/lanyard-dev/lanyard/api/identity/v1alpha1"
	infrav1 "github.com/lanyard-dev/lanyard/api/infrastructure/v1alpha1"
	"github.com/lanyard-dev/lanyard/api/meta"
)

// Identities returns the rows of the AWSClusters and the AWS identities of a namespace or, if it is
// empty, of all namespaces and of the cluster. The kinds that the cluster does not have, or that
// the caller may not list, have no rows: most tenants do not see what administrators lend.
func Identities(ctx context.Context, c client.Reader, namespace string) ([]Row, error) {
	lists := []client.ObjectList{&infrav1.AWSClusterList{}, &identityv1.AWSServiceAccountIdentityList{}}
	if namespace == "" {
		lists = append(lists, &identityv1.AWSClusterControllerIdentityList{}, &identityv1.AWSClusterRoleIdentityList{}, &identityv1.AWSClusterStaticIdentityList{})
	}
	var objects []Object
	for _, list := range lists {
		err := add(ctx, c, namespace, list, &objects)
		if err != nil && !apimeta.IsNoMatchError(err) && !apierrors.IsNotFound(err) && !apierrors.IsForbidden(err) {
			return nil, fmt.Errorf("list AWSClusters and AWS identities: %w", err)
		}
	}
	rows := All(objects)
	for i := range rows {
		if rows[i].Kind == identityv1.AWSClusterControllerIdentityKind {
			rows[i].Message = strings.TrimPrefix(rows[i].Message+"; "+ruleOfSources, "; ")
		}
	}
	return rows, nil
}

// ruleOfSources is in force whenever the cluster has the object, also while it gives no credential.
const ruleOfSources = "an OCIRepository, Bucket or ImageRepository of AWS that names no identity needs this grant, and that of --controller-identity-namespaces"

func readAWSCluster(o *infrav1.AWSCluster) Object {
	read := Object{Resource: o, Kind: infrav1.AWSClusterKind, Source: o.Spec.Region, AWSIdentity: o.Spec.IdentityRef, lent: true}
	if o.Status.Identity != nil {
		read.CloudIdentity = o.Status.Identity.CloudIdentity
	}
	return read
}

// readAWSIdentity returns the Object of an AWS identity.
func readAWSIdentity(o Resource, kind, source, arn string) Object {
	return Object{
		Resource: o, Kind: kind, Source: source, CloudIdentity: arn, lent: true,
		AWSIdentity: &meta.AWSIdentityReference{Kind: kind, Name: o.GetName()},
	}
}

// chainOf names the identities of a chain, the root last.
func chainOf(status identityv1.AWSIdentityStatus) string { return strings.Join(status.Chain, " > ") }
