package report

import (
	"context"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	identityv1 "github.com/lanyard-dev/lanyard/api/identity/v1alpha1"
	infrav1 "github.com/lanyard-dev/lanyard/api/infrastructure/v1alpha1"
	"github.com/lanyard-dev/lanyard/api/meta"
	"github.com/lanyard-dev/lanyard/auth/spec"
)

// awsObject is an object whose status says what AWS gave it.
type awsObject interface {
	client.Object

	GetStatus() *meta.Status
}

// Identities returns the rows of the AWSClusters and the AWS identities of a namespace or, if it is
// empty, of all namespaces and of the cluster. The kinds that the cluster does not have, or that
// the caller may not list, have no rows: most tenants do not see what administrators lend.
func Identities(ctx context.Context, c client.Reader, namespace string) ([]Row, error) {
	lists := []client.ObjectList{&infrav1.AWSClusterList{}, &identityv1.AWSServiceAccountIdentityList{}}
	if namespace == "" {
		lists = append(lists, &identityv1.AWSClusterControllerIdentityList{}, &identityv1.AWSClusterRoleIdentityList{}, &identityv1.AWSClusterStaticIdentityList{})
	}
	var rows []Row
	for _, list := range lists {
		err := c.List(ctx, list, client.InNamespace(namespace))
		if apimeta.IsNoMatchError(err) || apierrors.IsNotFound(err) || apierrors.IsForbidden(err) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("list AWSClusters and AWS identities: %w", err)
		}
		err = apimeta.EachListItem(list, func(o runtime.Object) error {
			rows = append(rows, ofAWS(o.(awsObject))) //nolint:forcetypeassert // all kinds in lists are
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	slices.SortFunc(rows, compare)
	return rows, nil
}

// ofAWS returns the row of an AWSCluster or an AWS identity.
func ofAWS(o awsObject) Row {
	ready := apimeta.FindStatusCondition(o.GetStatus().Conditions, meta.ConditionReady)
	if ready == nil {
		ready = &metav1.Condition{}
	}
	row := Row{Namespace: o.GetNamespace(), Name: o.GetName(), Reason: ready.Reason, Message: ready.Message}
	ref := meta.AWSIdentityReference{Name: o.GetName()}
	switch o := o.(type) {
	case *infrav1.AWSCluster:
		row.Kind, row.Source = infrav1.AWSClusterKind, o.Spec.Region
		if o.Spec.IdentityRef != nil {
			ref = *o.Spec.IdentityRef
		}
		if o.Status.Identity != nil {
			row.Identity = o.Status.Identity.CloudIdentity
		}
	case *identityv1.AWSServiceAccountIdentity:
		row.Kind, row.Source, row.Identity = identityv1.AWSServiceAccountIdentityKind, o.Spec.RoleARN, o.Status.ARN
	case *identityv1.AWSClusterControllerIdentity:
		row.Kind, row.Source, row.Identity = identityv1.AWSClusterControllerIdentityKind, chainOf(o.Status), o.Status.ARN
		row.Message = strings.TrimPrefix(row.Message+"; "+ruleOfSources, "; ")
	case *identityv1.AWSClusterRoleIdentity:
		row.Kind, row.Source, row.Identity = identityv1.AWSClusterRoleIdentityKind, chainOf(o.Status), o.Status.ARN
	case *identityv1.AWSClusterStaticIdentity:
		row.Kind, row.Source, row.Identity = identityv1.AWSClusterStaticIdentityKind, chainOf(o.Status), o.Status.ARN
	}
	if ref.Kind == "" {
		ref.Kind = row.Kind
	}
	if subject, err := spec.AWSIdentity(ref.Kind, o.GetNamespace(), ref.Name); err == nil {
		row.Subject = subject.String()
	}
	row.Result = resultOf(o, ready)
	return row
}

// ruleOfSources is in force whenever the cluster has the object, also while it gives no credential.
const ruleOfSources = "an OCIRepository, Bucket or ImageRepository of AWS that names no identity needs this grant, and that of --controller-identity-namespaces"

// chainOf names the identities of a chain, the root last.
func chainOf(status identityv1.AWSIdentityStatus) string { return strings.Join(status.Chain, " > ") }

func resultOf(o awsObject, ready *metav1.Condition) Result {
	switch {
	case o.GetStatus().ObservedGeneration != o.GetGeneration():
		return Pending
	case ready.Status == metav1.ConditionTrue:
		return Ready
	case ready.Status != metav1.ConditionFalse:
		return Pending
	case refusal(ready.Reason):
		return Refused
	}
	return Failed
}
