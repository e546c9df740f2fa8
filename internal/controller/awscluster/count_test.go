package awscluster_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	identityv1 "github.com/lanyard-dev/lanyard/api/identity/v1alpha1"
	"github.com/lanyard-dev/lanyard/api/infrastructure/v1alpha1"
	"github.com/lanyard-dev/lanyard/api/meta"
	"github.com/lanyard-dev/lanyard/auth"
	cloudaws "github.com/lanyard-dev/lanyard/cloudtest/aws"
	"github.com/lanyard-dev/lanyard/cloudtest/fault"
	"github.com/lanyard-dev/lanyard/internal/identity/identitytest"
	"github.com/lanyard-dev/lanyard/internal/must"
)

// TestExchangesOfManyClusters counts the calls to AWS STS. Each role needs one call, whatever the
// number of clusters, regions and reconciliations. A test of package identity counts the calls for
// 200 roles and 10,000 uses.
func TestExchangesOfManyClusters(t *testing.T) {
	const roles, clustersOfEach = 30, 3
	w := newWorld(t, false)
	w.Static("root", identitytest.Admits())
	for i := range roles {
		name := fmt.Sprint("role-", i)
		w.Role(name, identitytest.RoleSpec(w.CloudRole(identitytest.Workload, name, identitytest.Root, nil), "root", identitytest.Admits()))
	}
	regions := []string{"eu-west-1", "eu-central-1", "us-east-1"}
	all := func(round int) {
		for i := range roles {
			name := fmt.Sprint("cluster-", round, "-", i)
			w.cluster("team-a", name, v1alpha1.AWSClusterSpec{
				Region: regions[(i+round)%len(regions)], IdentityRef: ref(identityv1.AWSClusterRoleIdentityKind, fmt.Sprint("role-", i)),
			})
			if o := w.reconcile("team-a", name); o.Status.AccountID != identitytest.Workload {
				t.Fatalf("%s: %+v", name, o.Status)
			}
			w.reconcile("team-a", name)
		}
	}
	for round := range clustersOfEach {
		all(round)
		if n := w.Count("AssumeRole"); n != roles {
			t.Fatalf("%d calls of AssumeRole for %d clusters of %d roles", n, (round+1)*roles, roles)
		}
	}
	if n := w.Count("GetCallerIdentity"); n != 1 {
		t.Errorf("%d calls of GetCallerIdentity, want 1 for the root", n)
	}
}

// TestThrottledForTenMinutes makes AWS STS throttle the account of a source identity for ten
// minutes. All clusters that use this source must report the throttling, and together make few
// calls. When the throttling ends, a cluster whose source is in another account must be ready at
// once. The throttled clusters must be ready within two minutes, without a restart.
func TestThrottledForTenMinutes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const clusters, otherKey, otherSecret = 40, "AKIAOTHEROTHEROTHERO", "other-secret-other-secret"
		w := newWorld(t, false)
		w.Static("root", identitytest.Admits())
		w.otherStatic("other-root", otherKey, otherSecret)
		cluster := func(name, source, principal string) {
			w.Role(name, identitytest.RoleSpec(w.CloudRole(identitytest.Workload, name, principal, nil), source, identitytest.Admits()))
			w.cluster("team-a", name, v1alpha1.AWSClusterSpec{IdentityRef: ref(identityv1.AWSClusterRoleIdentityKind, name)})
		}
		for i := range clusters {
			cluster(fmt.Sprint("cluster-", i), "root", identitytest.Root)
		}
		throttle := fault.Fault{Kind: fault.Throttle, Service: "sts", Operation: "AssumeRole"}
		id, err := w.Cloud.Faults().Add(throttle)
		must.Succeed(t, err)
		ready := func(name string) bool {
			return apimeta.IsStatusConditionTrue(w.reconcile("team-a", name).Status.Conditions, meta.ConditionReady)
		}
		for started := time.Now(); time.Since(started) < 10*time.Minute; time.Sleep(5 * time.Second) {
			for i := range clusters {
				if ready(fmt.Sprint("cluster-", i)) {
					t.Fatal("ready while STS throttles")
				}
			}
		}
		if n := w.Count("AssumeRole"); n > 20 {
			t.Errorf("%d calls of AssumeRole in ten minutes", n)
		}
		got := apimeta.FindStatusCondition(w.reconcile("team-a", "cluster-0").Status.Conditions, meta.ConditionReady)
		if got.Reason != string(auth.CodeThrottled) || !strings.Contains(got.Message, "STS quota of account "+identitytest.Management) {
			t.Errorf("%+v", got)
		}
		w.Cloud.Faults().Remove(id)
		cluster("of-another-account", "other-root", "arn:aws:iam::"+identitytest.Workload+":user/other")
		if !ready("of-another-account") {
			t.Error("a cluster of another account waits for the throttled account")
		}
		time.Sleep(2 * time.Minute)
		for i := range clusters {
			if !ready(fmt.Sprint("cluster-", i)) {
				t.Errorf("cluster %d is not ready two minutes after", i)
			}
		}
	})
}

// otherStatic creates a static identity with the access key of a user in the account Workload.
func (w *world) otherStatic(name, id, secret string) {
	w.t.Helper()
	err := w.Cloud.AWS().PutUser(identitytest.Workload, cloudaws.User{
		Name: "other", AccessKeys: []cloudaws.AccessKey{{ID: id, Secret: secret}},
		Policies: map[string]json.RawMessage{"all": identitytest.Policy(map[string]any{"Effect": "Allow", "Action": "sts:AssumeRole", "Resource": "*"})},
	})
	must.Succeed(w.t, err)
	w.Secret(name, map[string]string{"accessKeyID": id, "secretAccessKey": secret})
	w.Put(&identityv1.AWSClusterStaticIdentity{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       identityv1.AWSClusterStaticIdentitySpec{AWSClusterIdentitySpec: identitytest.Admits(), SecretRef: identityv1.AWSClusterSecretReference{Name: name}},
	})
}
