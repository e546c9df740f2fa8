// Command controller is a controller of somebody else's with Lanyard's library in it: it asks AWS who the ServiceAccount is that a ConfigMap
// names, as that ServiceAccount, and writes the answer into the ConfigMap. docs/library.md walks through it.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sts"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	kubecache "sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/lanyard-dev/lanyard/auth"
	"github.com/lanyard-dev/lanyard/auth/aws"
	"github.com/lanyard-dev/lanyard/auth/cache"
	"github.com/lanyard-dev/lanyard/auth/kube"
)

// interval is how often each object is looked at.
const interval = 5 * time.Minute

func main() {
	if err := run(ctrl.SetupSignalHandler()); err != nil {
		fmt.Fprintln(os.Stderr, "controller:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	ctrl.SetLogger(klog.Background())
	mgr, err := ctrl.NewManager(ctrl.GetConfigOrDie(), ctrl.Options{
		Cache:   kubecache.Options{ByObject: kube.ByObject(kube.DefaultAnnotations())},
		Metrics: server.Options{BindAddress: "0"}, // none
	})
	if err != nil {
		return err
	}
	// Who the tenants are, what is remembered of them, and the cloud: once per program.
	accounts, err := kube.FromManager(ctx, mgr, kube.Options{})
	if err != nil {
		return err
	}
	tokens := cache.New(cache.Options{MaxSize: 10_000})
	accounts.Subscribe(tokens.Invalidate) // a changed account loses its tokens at once
	provider, err := aws.NewProvider(aws.Config{Region: os.Getenv("AWS_REGION")})
	if err != nil {
		return err
	}
	whoami := func(ctx context.Context, r reconcile.Request) (reconcile.Result, error) {
		object := &corev1.ConfigMap{}
		if err := mgr.GetClient().Get(ctx, r.NamespacedName, object); err != nil || object.Data["serviceAccountName"] == "" {
			return reconcile.Result{}, client.IgnoreNotFound(err)
		}
		// The tenant's credentials for the AWS SDK: got when a request is signed, shared, refreshed and forgotten by the cache.
		identity := aws.NewCredentialsProvider(provider,
			auth.WithServiceAccount(r.Namespace, object.Data["serviceAccountName"], accounts),
			auth.WithCache(tokens, auth.InvolvedObject{Kind: "ConfigMap", Namespace: r.Namespace, Name: r.Name}))
		answer, err := sts.New(sts.Options{Region: os.Getenv("AWS_REGION"), Credentials: identity}).GetCallerIdentity(ctx, nil)
		before := client.MergeFrom(object.DeepCopy())
		refused, ok := errors.AsType[*auth.Error](err)
		switch {
		case err == nil:
			object.Data["identity"] = awssdk.ToString(answer.Arn)
		case ok && !auth.IsTemporary(err):
			object.Data["identity"] = "none: " + refused.Error() // which says what to do
		default:
			return reconcile.Result{}, err // tried again, at a slowing pace
		}
		// What mends a refusal, an annotation or the cloud's own trust, need not be a change of the object.
		return reconcile.Result{RequeueAfter: interval}, mgr.GetClient().Patch(ctx, object, before)
	}
	if err := mgr.Add(manager.RunnableFunc(tokens.Run)); err != nil {
		return err
	}
	if err := ctrl.NewControllerManagedBy(mgr).For(&corev1.ConfigMap{}).Complete(reconcile.Func(whoami)); err != nil {
		return err
	}
	return mgr.Start(ctx)
}
