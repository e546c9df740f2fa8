// Package fleet makes many tenants: namespaces, ServiceAccounts in them, and a role at AWS for each
// ServiceAccount.
package fleet

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/client"

	identityv1 "github.com/lanyard-dev/lanyard/api/identity/v1alpha1"
	"github.com/lanyard-dev/lanyard/api/meta"
	tokenv1 "github.com/lanyard-dev/lanyard/api/token/v1alpha1"
	"github.com/lanyard-dev/lanyard/cloudtest/aws"
	"github.com/lanyard-dev/lanyard/internal/local"
)

const (
	// Repository is what every role may pull.
	Repository = "tenant-a/app"
	// Tag is what stands there.
	Tag = "1.0.0"

	accountsPerNamespace = 10
)

// URL is where [Repository] is for objects, in a region.
func URL(region string) string {
	return "oci://" + local.Account + ".dkr.ecr." + region + ".amazonaws.com/" + Repository
}

// Names are where the i-th account lives. Ten accounts share a namespace.
func Names(i int) (namespace, account string) {
	return fmt.Sprintf("scale-%04d", i/accountsPerNamespace), fmt.Sprintf("sa-%05d", i)
}

// Role is the i-th account's role: it trusts this account and may pull.
func Role(i int) aws.Role {
	namespace, account := Names(i)
	issuer := strings.TrimPrefix(local.Issuer, "https://")
	document := func(statements ...map[string]any) json.RawMessage {
		data, err := json.Marshal(map[string]any{"Version": "2012-10-17", "Statement": statements})
		if err != nil {
			panic(err) // maps of strings
		}
		return data
	}
	return aws.Role{
		Name: account,
		TrustPolicy: document(map[string]any{
			"Effect": "Allow", "Action": "sts:AssumeRoleWithWebIdentity",
			"Principal": map[string]any{"Federated": "arn:aws:iam::" + local.Account + ":oidc-provider/" + issuer},
			"Condition": map[string]any{"StringEquals": map[string]any{
				issuer + ":sub": "system:serviceaccount:" + namespace + ":" + account, issuer + ":aud": "sts.amazonaws.com",
			}},
		}),
		Policies: map[string]json.RawMessage{"pull": document(
			map[string]any{"Effect": "Allow", "Action": "ecr:GetAuthorizationToken", "Resource": "*"},
			map[string]any{
				"Effect": "Allow", "Action": []string{"ecr:BatchCheckLayerAvailability", "ecr:BatchGetImage", "ecr:GetDownloadUrlForLayer"},
				"Resource": "arn:aws:ecr:" + local.Region + ":" + local.Account + ":repository/" + Repository,
			},
		)},
	}
}

// Accounts creates n ServiceAccounts with their namespaces, as the administrator.
func Accounts(ctx context.Context, c client.Client, n int) error {
	if err := Create(ctx, c, (n+accountsPerNamespace-1)/accountsPerNamespace, func(i int) client.Object {
		namespace, _ := Names(i * accountsPerNamespace)
		return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}
	}); err != nil {
		return err
	}
	return Create(ctx, c, n, func(i int) client.Object {
		namespace, account := Names(i)
		return &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: account,
			Annotations: map[string]string{"eks.amazonaws.com/role-arn": "arn:aws:iam::" + local.Account + ":role/" + account},
		}}
	})
}

// WorkloadIdentity is an identity whose tokens are for a role at AWS with the identity's name.
func WorkloadIdentity(namespace, name string) *identityv1.WorkloadIdentity {
	return &identityv1.WorkloadIdentity{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: identityv1.WorkloadIdentitySpec{
			Audiences: []string{"sts.amazonaws.com"},
			TargetSystem: identityv1.TargetSystem{
				Type: "aws", ProviderConfig: &runtime.RawExtension{Raw: fmt.Appendf(nil, `{"iamRoleARN":"arn:aws:iam::%s:role/%s"}`, local.Account, name)},
			},
		},
	}
}

// RequestToken asks the token server for a token of a WorkloadIdentity.
func RequestToken(ctx context.Context, c *kubernetes.Clientset, namespace, name string) error {
	return c.RESTClient().Post().AbsPath("/apis", tokenv1.Group, tokenv1.Version, "namespaces", namespace, "workloadidentities", name, "token").
		SetHeader("Content-Type", "application/json").Body([]byte(`{"apiVersion":"token.lanyard.dev/v1alpha1","kind":"TokenRequest"}`)).MaxRetries(0).Do(ctx).Error()
}

// Create creates many objects, some at once.
func Create(ctx context.Context, c client.Client, count int, object func(int) client.Object) error {
	return Each(ctx, count, func(ctx context.Context, i int) error { return c.Create(ctx, object(i)) })
}

// Each does something for each number below count, for some at once. It ends with the first error.
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

// Await repeats a look, with a pause after each, until it succeeds or the time is over.
func Await(ctx context.Context, timeout, pause time.Duration, look func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	for {
		err := look(ctx)
		if err == nil {
			return nil
		}
		if sleepErr := Sleep(ctx, pause); sleepErr != nil {
			return errors.Join(err, sleepErr)
		}
	}
}

// Sleep ends early with the cause of ctx's end.
func Sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
