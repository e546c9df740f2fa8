package main

import (
	"context"
	"errors"
	"os"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/metadata/metadatainformer"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/controller-manager/pkg/clientbuilder"
	"k8s.io/controller-manager/pkg/informerfactory"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/controller/certificates/rootcacertpublisher"
	"k8s.io/kubernetes/pkg/controller/clusterroleaggregation"
	"k8s.io/kubernetes/pkg/controller/garbagecollector"
	"k8s.io/kubernetes/pkg/controller/namespace"
	"k8s.io/kubernetes/pkg/controller/serviceaccount"

	"github.com/lanyard-dev/lanyard/dev/controlplane/pki"
)

// As kube-controller-manager has them by default.
const (
	qps                 = 20
	burst               = 30
	resync              = 12 * time.Hour
	discoveryPeriod     = 30 * time.Second // between looks for new resources
	namespaceSyncPeriod = 5 * time.Minute
	namespaceWorkers    = 10
	collectorWorkers    = 20
	aggregationWorkers  = 5
)

// controllers has what the controllers share, and collects the loops that run
// them.
type controllers struct {
	clients  clientbuilder.ControllerClientBuilder
	typed    informers.SharedInformerFactory
	metadata metadatainformer.SharedInformerFactory
	mapper   *restmapper.DeferredDiscoveryRESTMapper
	loops    []func(context.Context)
}

// newControllerManager prepares those controllers of kube-controller-manager
// that an API without nodes needs, and returns a function that runs them until
// its context ends. kube-apiserver must be ready.
//
// kube-controller-manager's own package imports all other controllers too. They
// are three hundred packages, which take minutes to compile.
func newControllerManager(files pki.Files) (func(context.Context) error, error) {
	config, err := clientcmd.BuildConfigFromFlags("", files.ControllerKubeconfig)
	if err != nil {
		return nil, err
	}
	rest.AddUserAgent(config, "kube-controller-manager")
	config.QPS, config.Burst, config.ContentType = qps, burst, runtime.ContentTypeProtobuf
	authority, err := os.ReadFile(files.CACert)
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context) error { return runControllers(ctx, config, authority) }, nil
}

func runControllers(ctx context.Context, config *rest.Config, authority []byte) error {
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	metadataClient, err := metadata.NewForConfig(config)
	if err != nil {
		return err
	}
	c := &controllers{
		// As in a cluster: each controller under its own ServiceAccount and RBAC.
		clients:  clientbuilder.NewDynamicClientBuilder(rest.AnonymousClientConfig(config), client.CoreV1(), metav1.NamespaceSystem),
		typed:    informers.NewSharedInformerFactoryWithOptions(client, resync, informers.WithTransform(trim)),
		metadata: metadatainformer.NewSharedInformerFactoryWithOptions(metadataClient, resync, metadatainformer.WithTransform(trim)),
		mapper:   restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(client.Discovery())),
	}
	c.loops = append(c.loops, func(ctx context.Context) {
		wait.UntilWithContext(ctx, func(context.Context) { c.mapper.Reset() }, discoveryPeriod)
	})

	started := make(chan struct{})
	err = errors.Join(
		c.addNamespace(ctx),
		c.addServiceAccount(ctx),
		c.addRootCAPublisher(authority),
		c.addClusterRoleAggregation(),
		c.addGarbageCollector(ctx, metadataClient, started),
	)
	if err != nil {
		return err
	}

	c.typed.Start(ctx.Done())
	defer c.typed.Shutdown()
	c.metadata.Start(ctx.Done())
	defer c.metadata.Shutdown()
	close(started)
	var running sync.WaitGroup
	for _, loop := range c.loops {
		running.Go(func() { loop(ctx) })
	}
	running.Wait()
	return nil
}

// trim drops an object's managedFields, which no controller reads, to save
// memory.
func trim(object any) (any, error) {
	if accessor, err := meta.Accessor(object); err == nil {
		accessor.SetManagedFields(nil)
	}
	return object, nil
}

// addNamespace empties namespaces that are deleted.
func (c *controllers) addNamespace(ctx context.Context) error {
	config, err := c.clients.Config("namespace-controller")
	if err != nil {
		return err
	}
	// The controller makes many calls for each namespace.
	config.QPS, config.Burst = qps*20, burst*100
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	metadataClient, err := metadata.NewForConfig(config)
	if err != nil {
		return err
	}
	controller := namespace.NewNamespaceController(ctx, client, metadataClient, client.Discovery().ServerPreferredNamespacedResources,
		c.typed.Core().V1().Namespaces(), namespaceSyncPeriod, corev1.FinalizerKubernetes)
	c.loops = append(c.loops, func(ctx context.Context) { controller.Run(ctx, namespaceWorkers) })
	return nil
}

// addServiceAccount gives each namespace its ServiceAccount "default".
func (c *controllers) addServiceAccount(ctx context.Context) error {
	client, err := c.clients.Client("service-account-controller")
	if err != nil {
		return err
	}
	core := c.typed.Core().V1()
	controller, err := serviceaccount.NewServiceAccountsController(klog.FromContext(ctx), core.ServiceAccounts(), core.Namespaces(), client,
		serviceaccount.DefaultServiceAccountsControllerOptions())
	if err != nil {
		return err
	}
	c.loops = append(c.loops, func(ctx context.Context) { controller.Run(ctx, 1) })
	return nil
}

// addRootCAPublisher gives each namespace the ConfigMap kube-root-ca.crt.
func (c *controllers) addRootCAPublisher(authority []byte) error {
	client, err := c.clients.Client("root-ca-cert-publisher")
	if err != nil {
		return err
	}
	core := c.typed.Core().V1()
	controller, err := rootcacertpublisher.NewPublisher(core.ConfigMaps(), core.Namespaces(), client, authority)
	if err != nil {
		return err
	}
	c.loops = append(c.loops, func(ctx context.Context) { controller.Run(ctx, 1) })
	return nil
}

// addClusterRoleAggregation fills ClusterRoles that have an aggregationRule.
func (c *controllers) addClusterRoleAggregation() error {
	client, err := c.clients.Client("clusterrole-aggregation-controller")
	if err != nil {
		return err
	}
	controller := clusterroleaggregation.NewClusterRoleAggregation(c.typed.Rbac().V1().ClusterRoles(), client.RbacV1())
	c.loops = append(c.loops, func(ctx context.Context) { controller.Run(ctx, aggregationWorkers) })
	return nil
}

// addGarbageCollector deletes objects whose owners are gone. started is closed
// once the informers run.
func (c *controllers) addGarbageCollector(ctx context.Context, watched metadata.Interface, started <-chan struct{}) error {
	const name = "generic-garbage-collector"
	client, err := c.clients.Client(name)
	if err != nil {
		return err
	}
	config, err := c.clients.Config(name)
	if err != nil {
		return err
	}
	config.QPS = qps * 2 // a deletion takes two calls
	metadataClient, err := metadata.NewForConfig(config)
	if err != nil {
		return err
	}
	found, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return err
	}
	graph := garbagecollector.NewDependencyGraphBuilder(ctx, watched, c.mapper, garbagecollector.DefaultIgnoredResources(),
		informerfactory.NewInformerFactory(c.typed, c.metadata), started)
	collector, err := garbagecollector.NewComposedGarbageCollector(ctx, client, metadataClient, c.mapper, graph)
	if err != nil {
		return err
	}
	c.loops = append(c.loops,
		func(ctx context.Context) { collector.Run(ctx, collectorWorkers, discoveryPeriod) },
		func(ctx context.Context) { collector.Sync(ctx, found, discoveryPeriod) })
	return nil
}
