// Command controller shows how another project's controller uses Lanyard's library. For each
// ConfigMap that names a ServiceAccount, it asks AWS which identity this ServiceAccount has. The
// request uses the ServiceAccount's own credential. The controller writes the answer into the
// ConfigMap. docs/library.md explains the steps.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sts"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/lanyard-dev/lanyard/auth"
	"github.com/lanyard-dev/lanyard/auth/aws"
	"github.com/lanyard-dev/lanyard/auth/kube"
	"github.com/lanyard-dev/lanyard/auth/kube/manager"
)

// interval is the time between two reconciliations of an object.
const interval = 5 * time.Minute

func main() {
	if err := run(ctrl.SetupSignalHandler()); err != nil {
		fmt.Fprintln(os.Stderr, "controller:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	ctrl.SetLogger(klog.Background())
	config, err := ctrl.GetConfig() // $KUBECONFIG, or the cluster that the program runs in
	if err != nil {
		return err
	}
	// The program needs only one manager, which also has the tenants' accounts and the token cache.
	mgr, err := manager.New(ctx, config, manager.Options{
		Manager:  ctrl.Options{Metrics: server.Options{BindAddress: "0"}}, // no metrics server
		Accounts: kube.Options{APIAudiences: strings.Fields(os.Getenv("API_AUDIENCES"))},
	})
	if err != nil {
		return err
	}
	provider, err := aws.NewProvider(aws.Config{Region: os.Getenv("AWS_REGION")})
	if err != nil {
		return err
	}
	defer provider.Close()
	whoami := func(ctx context.Context, r reconcile.Request) (reconcile.Result, error) {
		object := &corev1.ConfigMap{}
		if err := mgr.GetClient().Get(ctx, r.NamespacedName, object); err != nil || object.Data["serviceAccountName"] == "" {
			return reconcile.Result{}, client.IgnoreNotFound(err)
		}
		// The tenant's credentials for the AWS SDK. The SDK gets them from the cache when it signs
		// a request; the cache shares, refreshes and drops them.
		credentials := aws.NewCredentialsProvider(provider,
			auth.WithServiceAccount(r.Namespace, object.Data["serviceAccountName"], mgr.Accounts),
			auth.WithCache(mgr.Tokens, auth.InvolvedObject{Kind: "ConfigMap", Namespace: r.Namespace, Name: r.Name}))
		answer, err := sts.New(sts.Options{Region: os.Getenv("AWS_REGION"), Credentials: credentials}).GetCallerIdentity(ctx, nil)
		before := client.MergeFrom(object.DeepCopy())
		refused, ok := errors.AsType[*auth.Error](err)
		switch {
		case err == nil:
			object.Data["identity"] = awssdk.ToString(answer.Arn)
		case ok && !refused.Temporary():
			object.Data["identity"] = "none: " + refused.Error() // the error says what to fix
		default:
			return reconcile.Result{}, err // controller-runtime retries, with growing pauses
		}
		// A refusal may end when somebody changes an annotation of the ServiceAccount, or the trust
		// policy in the cloud. Neither changes this object, so try again after the interval.
		return reconcile.Result{RequeueAfter: interval}, mgr.GetClient().Patch(ctx, object, before)
	}
	if err := ctrl.NewControllerManagedBy(mgr).For(&corev1.ConfigMap{}).Complete(reconcile.Func(whoami)); err != nil {
		return err
	}
	return mgr.Start(ctx)
}
