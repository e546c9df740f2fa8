// Command capa measures what Cluster API Provider AWS does for an identity at each reconciliation.
// The provider computes a hash of the identity, by which it finds a credential. The command calls
// the provider's own package for this. The output is one [Cost] as JSON. Package bench runs the
// command, and prints Lanyard's cost beside it.
//
// The command has its own module, because the provider's package needs other versions of
// Kubernetes' libraries than Lanyard. The command does not measure the lookup of a session. Only
// the constructors in the provider's package pkg/cloud/scope give access to the lookup. That
// package needs the SDK's whole EC2 client and the libraries of ROSA.
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"testing"

	"github.com/go-logr/logr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	infrav1 "sigs.k8s.io/cluster-api-provider-aws/v2/api/v1beta2"
	"sigs.k8s.io/cluster-api-provider-aws/v2/pkg/cloud/identity"
	"sigs.k8s.io/cluster-api-provider-aws/v2/pkg/logger"
)

// Cost is the cost of one operation.
type Cost struct {
	// Nanoseconds is the time of the operation.
	Nanoseconds int64 `json:"nanoseconds"`
	// Allocations is how often the operation allocates memory.
	Allocations int64 `json:"allocations"`
}

func main() {
	least, err := cost()
	if err == nil {
		err = json.NewEncoder(os.Stdout).Encode(least)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "capa:", err)
		os.Exit(1)
	}
}

// cost benchmarks the hashing of the identity three times, and returns the least cost: other work
// of the machine only adds cost.
func cost() (Cost, error) {
	provider := identity.NewAWSRolePrincipalTypeProvider(role(), nil, "eu-west-1", logger.NewLogger(logr.Discard()))
	var least Cost
	for range 3 {
		var failed error
		r := testing.Benchmark(func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, failed = provider.Hash(); failed != nil {
					return
				}
			}
		})
		if failed != nil {
			return least, failed
		}
		if least.Nanoseconds == 0 || r.NsPerOp() < least.Nanoseconds {
			least = Cost{Nanoseconds: r.NsPerOp(), Allocations: r.AllocsPerOp()}
		}
	}
	return least, nil
}

// role returns an identity with the same values as Lanyard's identity in package bench.
func role() *infrav1.AWSClusterRoleIdentity {
	o := &infrav1.AWSClusterRoleIdentity{ObjectMeta: metav1.ObjectMeta{
		Name: "target", UID: "0f8e2f6e-4a4e-4c35-9c1f-5e9a55b7a2cd", ResourceVersion: "12345", Generation: 1,
		Labels: map[string]string{"clusterctl.cluster.x-k8s.io/move-hierarchy": ""},
	}}
	o.Spec.RoleArn, o.Spec.SessionName, o.Spec.DurationSeconds = "arn:aws:iam::222233334444:role/target", "target", 3600
	o.Spec.ExternalID, o.Spec.PolicyARNs = "7a5b816a-7743-4377-a382-2d695bf1f172", []string{"arn:aws:iam::222233334444:policy/restricted"}
	o.Spec.AllowedNamespaces = &infrav1.AllowedNamespaces{NamespaceList: []string{"team-a"}}
	return o
}
