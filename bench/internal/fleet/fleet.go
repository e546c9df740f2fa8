// Package fleet makes many tenants: namespaces, ServiceAccounts in them, and a role at AWS for each
// ServiceAccount.
package fleet

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/lanyard-dev/lanyard/api/meta"
	"github.com/lanyard-dev/lanyard/cloudtest/aws"
	"github.com/lanyard-dev/lanyard/examples"
	"github.com/lanyard-dev/lanyard/internal/local"
)

const (
	// Repository is the repository that every role may pull.
	Repository = "tenant-a/app"
	// Tag is the tag of the artifact in [Repository].
	Tag = "1.0.0"
	// ObjectsPerAccount is the number of objects that share a ServiceAccount.
	ObjectsPerAccount = 10

	objectsPerNamespace = 100
)

// Publish pushes the artifacts of package examples, one of them into [Repository].
func Publish(ctx context.Context, cloud *local.Cloud) error {
	artifacts, err := examples.Artifacts()
	if err != nil {
		return err
	}
	_, err = cloud.PushAll(ctx, artifacts, Tag)
	return err
}

// URL returns the URL of [Repository] in a region.
func URL(region string) string {
	return "oci://" + local.Account + ".dkr.ecr." + region + ".amazonaws.com/" + Repository
}

// Meta returns the name and the namespace of the i-th object of a kind. A hundred objects share a
// namespace.
func Meta(kind string, i int) metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Namespace: fmt.Sprintf("scale-%04d", i/objectsPerNamespace), Name: fmt.Sprintf("%s-%05d", kind, i),
	}
}

// Account returns the name and the namespace of the i-th ServiceAccount. The objects that use it
// are in its namespace.
func Account(i int) metav1.ObjectMeta {
	account := Meta("sa", i)
	account.Namespace = Meta("", i*ObjectsPerAccount).Namespace
	return account
}

// AddRoles adds a role at AWS for each of n ServiceAccounts. The role trusts the ServiceAccount,
// and may pull [Repository].
func AddRoles(o *local.CloudOptions, n int) {
	issuer := strings.TrimPrefix(local.Issuer, "https://")
	pull := policy(`{"Effect":"Allow","Action":"ecr:GetAuthorizationToken","Resource":"*"},
		{"Effect":"Allow","Action":["ecr:BatchCheckLayerAvailability","ecr:BatchGetImage","ecr:GetDownloadUrlForLayer"],
		"Resource":"arn:aws:ecr:%s:%s:repository/%s"}`, local.Region, local.Account, Repository)
	for i := range n {
		account := Account(i)
		trust := policy(`{"Effect":"Allow","Action":"sts:AssumeRoleWithWebIdentity",
			"Principal":{"Federated":"arn:aws:iam::%s:oidc-provider/%s"},"Condition":{"StringEquals":{
				"%[2]s:sub":"system:serviceaccount:%[3]s:%[4]s","%[2]s:aud":"sts.amazonaws.com"}}}`,
			local.Account, issuer, account.Namespace, account.Name)
		addRole(o, aws.Role{
			Name: account.Name, TrustPolicy: trust, Policies: map[string]json.RawMessage{"pull": pull},
		})
	}
}

// AddUser adds an IAM user with this name. Lanyard's programs act as this user. AddUser also adds
// roles that trust the user.
func AddUser(o *local.CloudOptions, user string, roles int) {
	o.ProgramUser = user
	assume := policy(`{"Effect":"Allow","Action":"sts:AssumeRole","Resource":"*"}`)
	account := &o.Config.AWS.Accounts[0]
	account.Users = append(account.Users, aws.User{Name: user, Policies: map[string]json.RawMessage{"assume": assume}})
	trust := policy(`{"Effect":"Allow","Action":"sts:AssumeRole","Principal":{"AWS":"arn:aws:iam::%s:user/%s"}}`,
		local.Account, user)
	for i := range roles {
		addRole(o, aws.Role{Name: Role(i), TrustPolicy: trust})
	}
}

// Role returns the name of the i-th role that [AddUser] adds.
func Role(i int) string { return fmt.Sprintf("role-%03d", i) }

// ARN returns the ARN of a role.
func ARN(role string) string { return "arn:aws:iam::" + local.Account + ":role/" + role }

func addRole(o *local.CloudOptions, role aws.Role) {
	account := &o.Config.AWS.Accounts[0]
	account.Roles = append(account.Roles, role)
}

// policy returns an IAM policy with these statements.
func policy(statements string, args ...any) json.RawMessage {
	return fmt.Appendf(nil, `{"Version":"2012-10-17","Statement":[`+statements+`]}`, args...)
}

// Namespaces creates the namespaces of n objects, and returns their names.
func Namespaces(ctx context.Context, c client.Client, n int) ([]string, error) {
	var names []string
	for i := 0; i < n; i += objectsPerNamespace {
		names = append(names, Meta("", i).Namespace)
	}
	return names, Create(ctx, c, len(names), func(i int) client.Object {
		return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: names[i], Labels: Labels()}}
	})
}

// Labels returns the labels of each namespace.
func Labels() map[string]string { return map[string]string{"scale": "yes"} }

// Accounts creates n ServiceAccounts. Their namespaces must exist.
func Accounts(ctx context.Context, c client.Client, n int) error {
	return Create(ctx, c, n, func(i int) client.Object {
		account := &corev1.ServiceAccount{ObjectMeta: Account(i)}
		account.Annotations = map[string]string{"eks.amazonaws.com/role-arn": ARN(account.Name)}
		return account
	})
}

// Create creates many objects, several at a time.
func Create(ctx context.Context, c client.Client, count int, object func(int) client.Object) error {
	return Each(ctx, count, func(ctx context.Context, i int) error { return c.Create(ctx, object(i)) })
}

// Each calls a function with each number from 0 to count-1, with up to 16 calls at the same time.
// It returns the first error.
func Each(ctx context.Context, count int, do func(ctx context.Context, i int) error) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(16)
	for i := range count {
		group.Go(func() error { return do(ctx, i) })
	}
	return group.Wait()
}

// Ready reads a list of objects and returns how many of them are ready.
func Ready(ctx context.Context, c client.Client, list client.ObjectList) (n int, err error) {
	if err := c.List(ctx, list); err != nil {
		return 0, err
	}
	err = apimeta.EachListItem(list, func(item runtime.Object) error {
		o, ok := item.(interface{ GetStatus() *meta.Status })
		if !ok {
			return fmt.Errorf("%T has no conditions", item)
		}
		if apimeta.IsStatusConditionTrue(o.GetStatus().Conditions, meta.ConditionReady) {
			n++
		}
		return nil
	})
	return n, err
}
