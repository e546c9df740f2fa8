package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	identityv1 "github.com/lanyard-dev/lanyard/api/identity/v1alpha1"
	infrav1 "github.com/lanyard-dev/lanyard/api/infrastructure/v1alpha1"
	"github.com/lanyard-dev/lanyard/api/meta"
	"github.com/lanyard-dev/lanyard/bench/internal/fleet"
	"github.com/lanyard-dev/lanyard/bench/internal/stage"
	"github.com/lanyard-dev/lanyard/cloudtest/aws"
	"github.com/lanyard-dev/lanyard/internal/local"
)

const (
	// owner is the user that the identity controller is at AWS.
	owner = "owner"

	clustersPerNamespace = 100
	// label is what namespaces have that the identities are lent to.
	label = "scale"
)

// world is the cluster of one run.
type world struct {
	*local.Cluster

	settings settings
	n        int // AWSClusters
}

// newWorld starts the cloud and the control plane, and creates all objects. The function stop ends
// what was started. After an error nothing is left.
func newWorld(ctx context.Context, s settings, n int) (_ *world, stop func() error, err error) {
	cluster, stop, err := stage.Start(ctx, s.controlPlane, func(o *local.CloudOptions) {
		o.ProgramUser = owner
		addRoles(&o.Config.AWS.Accounts[0], s.identities)
	})
	if err != nil {
		return nil, nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, stop())
		}
	}()
	err = cluster.InstallChart(ctx, map[string]any{
		"identity":   map[string]any{"awsIdentities": true},
		"rbac":       map[string]any{"tenantNamespaces": []any{}},
		"tokenCache": map[string]any{"maxDuration": s.tokenLife.String()},
	})
	if err != nil {
		return nil, nil, err
	}
	w := &world{Cluster: cluster, settings: s, n: n}
	return w, stop, w.populate(ctx)
}

// addRoles gives an account the identity controller's user, and some roles that trust this user.
func addRoles(account *aws.Account, roles int) {
	account.Users = append(account.Users, aws.User{Name: owner, Policies: map[string]json.RawMessage{"assume": statement(`"Resource":"*"`)}})
	trust := statement(fmt.Sprintf(`"Principal":{"AWS":"arn:aws:iam::%s:user/%s"}`, local.Account, owner))
	for i := range roles {
		account.Roles = append(account.Roles, aws.Role{Name: role(i), TrustPolicy: trust})
	}
}

// statement is an IAM policy that allows sts:AssumeRole.
func statement(field string) json.RawMessage {
	return json.RawMessage(`{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Action":"sts:AssumeRole",` + field + `}]}`)
}

func role(i int) string      { return fmt.Sprintf("role-%03d", i) }
func namespace(i int) string { return fmt.Sprintf("scale-%03d", i/clustersPerNamespace) }
func name(i int) string      { return fmt.Sprintf("cluster-%05d", i) }

// populate creates the identities and the AWSClusters, as the administrator.
func (w *world) populate(ctx context.Context) error {
	lent := identityv1.AWSClusterIdentitySpec{AllowedNamespaces: &identityv1.AllowedNamespaces{
		Selector: &identityv1.NamespaceSelector{MatchLabels: map[string]string{label: "yes"}},
	}}
	if err := w.Client().Create(ctx, &identityv1.AWSClusterControllerIdentity{
		ObjectMeta: metav1.ObjectMeta{Name: identityv1.DefaultControllerIdentity},
		Spec:       identityv1.AWSClusterControllerIdentitySpec{AWSClusterIdentitySpec: lent},
	}); err != nil {
		return err
	}
	for _, some := range []struct {
		count  int
		object func(int) client.Object
	}{
		{w.settings.identities, func(i int) client.Object {
			return &identityv1.AWSClusterRoleIdentity{
				ObjectMeta: metav1.ObjectMeta{Name: role(i)},
				Spec: identityv1.AWSClusterRoleIdentitySpec{
					AWSClusterIdentitySpec: lent, AWSRoleSpec: identityv1.AWSRoleSpec{RoleARN: "arn:aws:iam::" + local.Account + ":role/" + role(i)},
				},
			}
		}},
		{(w.n + clustersPerNamespace - 1) / clustersPerNamespace, func(i int) client.Object {
			return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace(i * clustersPerNamespace), Labels: map[string]string{label: "yes"}}}
		}},
		{w.n, w.cluster},
	} {
		if err := fleet.Create(ctx, w.Client(), some.count, some.object); err != nil {
			return err
		}
	}
	return nil
}

// cluster is the i-th AWSCluster. The regions of one identity's clusters differ.
func (w *world) cluster(i int) client.Object {
	regions := []string{"eu-west-1", "eu-central-1", "us-east-1"}
	return &infrav1.AWSCluster{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace(i), Name: name(i)},
		Spec: infrav1.AWSClusterSpec{
			Region:      regions[i/w.settings.identities%len(regions)],
			IdentityRef: &meta.AWSIdentityReference{Kind: identityv1.AWSClusterRoleIdentityKind, Name: role(i % w.settings.identities)},
		},
	}
}

// pokeEvery is the time between two uses of each credential while refreshes are counted.
const pokeEvery = time.Minute

// poke asks for a reconciliation of one AWSCluster of each identity every minute, until ctx ends. A
// credential is refreshed when it is used, and at rest an AWSCluster uses it every ten minutes.
func (w *world) poke(ctx context.Context) error {
	ticker := time.NewTicker(pokeEvery / time.Duration(w.settings.identities))
	defer ticker.Stop()
	for i := 0; ; i = (i + 1) % w.settings.identities {
		select {
		case <-ctx.Done():
			return nil
		case now := <-ticker.C:
			patch := fmt.Appendf(nil, `{"metadata":{"annotations":{%q:%q}}}`, meta.ReconcileRequestedAnnotation, now.UTC().Format(time.RFC3339Nano))
			if err := w.Client().Patch(ctx, w.cluster(i), client.RawPatch(types.MergePatchType, patch)); err != nil && ctx.Err() == nil {
				return err
			}
		}
	}
}
