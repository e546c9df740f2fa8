package e2e

import (
	"fmt"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	identityv1 "github.com/lanyard-dev/lanyard/api/identity/v1alpha1"
	infrav1 "github.com/lanyard-dev/lanyard/api/infrastructure/v1alpha1"
	"github.com/lanyard-dev/lanyard/cloudtest/aws"
	"github.com/lanyard-dev/lanyard/cloudtest/journal"
)

// TestExchangesOfManyClusters counts the calls of AWS STS in the journal. AWSClusters with the same
// role must share one call: 60 AWSClusters with 20 roles make 20 calls. `make scale-awsclusters`
// counts the calls of 200 and of 10,000 AWSClusters.
func TestExchangesOfManyClusters(t *testing.T) {
	alone(t, "AWS identities are of the whole cluster, and the chart grants more for them")
	const roles, clustersOfEach, namespace = 20, 3, "counted"
	begin := world.Cloud().Journal().Last()
	makeNamespace(t, namespace, nil)
	startIdentities(t, nil, namespace)
	own := &identityv1.AWSClusterControllerIdentity{ObjectMeta: metav1.ObjectMeta{Name: "default"}}
	lendIdentity(t, own, &own.Spec.AWSClusterIdentitySpec, namespace)
	trust := trustPrincipal("arn:aws:iam::" + managementAccount + ":user/ClusterAPI-Owner")
	for i := range roles {
		name := fmt.Sprint("counted-", i)
		must(t, "make a role", world.Cloud().AWS().PutRole(workloadAccount, aws.Role{Name: name, TrustPolicy: trust}))
		role := &identityv1.AWSClusterRoleIdentity{ObjectMeta: metav1.ObjectMeta{Name: name}}
		role.Spec.RoleARN = "arn:aws:iam::" + workloadAccount + ":role/" + name
		lendIdentity(t, role, &role.Spec.AWSClusterIdentitySpec, namespace)
	}
	for round := range clustersOfEach {
		var made []*infrav1.AWSCluster
		for i := range roles {
			made = append(made, awsCluster(t, namespace, fmt.Sprint("cluster-", round, "-", i), identityv1.AWSClusterRoleIdentityKind, fmt.Sprint("counted-", i)))
		}
		for _, o := range made {
			await(t, o, "it has the role's credential", inAccount(workloadAccount))
		}
		calls := world.Cloud().Journal().Calls(journal.Filter{Service: "sts", Operation: "AssumeRole", After: begin})
		if len(calls) != roles {
			t.Fatalf("%d calls of AssumeRole for %d AWSClusters over %d roles", len(calls), (round+1)*roles, roles)
		}
	}
}
