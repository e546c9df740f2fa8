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

// These are kube-controller-manager's defaults.
const (
	resync              = 12 * time.Hour
	discoveryPeriod     = 30 * time.Second // time between two searches for new resources
	namespaceSyncPeriod = 5 * time.Minute
	namespaceWorkers    = 10
	collectorWorkers    = 20
	aggregationWorkers  = 5
)

// manager has the clients, informers and mapper that the controllers share. Its loops run the
// controllers and reset the mapper.
type manager struct {
	clients  clientbuilder.ControllerClientBuilder
	typed    informers.SharedInformerFactory
	metadata metadatainformer.SharedInformerFactory
	mapper   *restmapper.DeferredDiscoveryRESTMapper
	loops    []func(context.Context)
}

// newControllerManager prepares the controllers of kube-controller-manager that an API without
// nodes needs. It returns a function that runs these controllers until its context ends.
// kube-apiserver must be ready.
//
// newControllerManager does not use the package of kube-controller-manager's
// command. That package also imports all other controllers: three hundred
// packages, which take minutes to compile.
func newControllerManager(files pki.Files) (func(context.Context) error, error) {
	config, err := clientcmd.BuildConfigFromFlags("", files.ControllerKubeconfig)
	if err != nil {
		return nil, err
	}
	rest.AddUserAgent(config, "kube-controller-manager")
	config.ContentType = runtime.ContentTypeProtobuf
	config.DisableCompression = true
	config.QPS = -1 // no limit: the API server is in this process
	authority, err := os.ReadFile(files.CACert)
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context) error { return runControllers(ctx, config, authority) }, nil
}

func runControllers(ctx context.Context, config *rest.Config, authority []byte) error {
	client, metadataClient, err := newClients(config)
	if err != nil {
		return err
	}
	m := &manager{
		// As in a cluster, each controller has its own ServiceAccount, with its own permissions.
		clients:  clientbuilder.NewDynamicClientBuilder(rest.AnonymousClientConfig(config), client.CoreV1(), metav1.NamespaceSystem),
		typed:    informers.NewSharedInformerFactoryWithOptions(client, resync, informers.WithTransform(trim)),
		metadata: metadatainformer.NewSharedInformerFactoryWithOptions(metadataClient, resync, metadatainformer.WithTransform(trim)),
		mapper:   restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(client.Discovery())),
	}
	m.loops = append(m.loops, func(ctx context.Context) {
		wait.UntilWithContext(ctx, func(context.Context) { m.mapper.Reset() }, discoveryPeriod)
	})

	err = errors.Join(
		m.addNamespace(ctx),
		m.addServiceAccount(ctx),
		m.addRootCAPublisher(authority),
		m.addClusterRoleAggregation(),
		m.addGarbageCollector(ctx, metadataClient),
	)
	if err != nil {
		return err
	}

	m.typed.Start(ctx.Done())
	defer m.typed.Shutdown()
	m.metadata.Start(ctx.Done())
	defer m.metadata.Shutdown()
	var running sync.WaitGroup
	for _, loop := range m.loops {
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

func newClients(config *rest.Config) (kubernetes.Interface, metadata.Interface, error) {
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, nil, err
	}
	metadataClient, err := metadata.NewForConfig(config)
	if err != nil {
		return nil, nil, err
	}
	return client, metadataClient, nil
}

// clientsOf returns clients that act as the ServiceAccount of a controller.
func (m *manager) clientsOf(controller string) (kubernetes.Interface, metadata.Interface, error) {
	config, err := m.clients.Config(controller)
	if err != nil {
		return nil, nil, err
	}
	return newClients(config)
}

// addNamespace adds the controller that empties deleted namespaces.
func (m *manager) addNamespace(ctx context.Context) error {
	client, metadataClient, err := m.clientsOf("namespace-controller")
	if err != nil {
		return err
	}
	controller := namespace.NewNamespaceController(ctx, client, metadataClient, client.Discovery().ServerPreferredNamespacedResources,
		m.typed.Core().V1().Namespaces(), namespaceSyncPeriod, corev1.FinalizerKubernetes)
	m.loops = append(m.loops, func(ctx context.Context) { controller.Run(ctx, namespaceWorkers) })
	return nil
}

// addServiceAccount adds the controller that gives each namespace its ServiceAccount "default".
func (m *manager) addServiceAccount(ctx context.Context) error {
	client, err := m.clients.Client("service-account-controller")
	if err != nil {
		return err
	}
	core := m.typed.Core().V1()
	controller, err := serviceaccount.NewServiceAccountsController(klog.FromContext(ctx), core.ServiceAccounts(), core.Namespaces(), client,
		serviceaccount.DefaultServiceAccountsControllerOptions())
	if err != nil {
		return err
	}
	m.loops = append(m.loops, func(ctx context.Context) { controller.Run(ctx, 1) })
	return nil
}

// addRootCAPublisher adds the controller that gives each namespace the ConfigMap kube-root-ca.crt.
func (m *manager) addRootCAPublisher(authority []byte) error {
	client, err := m.clients.Client("root-ca-cert-publisher")
	if err != nil {
		return err
	}
	core := m.typed.Core().V1()
	controller, err := rootcacertpublisher.NewPublisher(core.ConfigMaps(), core.Namespaces(), client, authority)
	if err != nil {
		return err
	}
	m.loops = append(m.loops, func(ctx context.Context) { controller.Run(ctx, 1) })
	return nil
}

// addClusterRoleAggregation adds the controller that fills ClusterRoles with an aggregationRule.
func (m *manager) addClusterRoleAggregation() error {
	client, err := m.clients.Client("clusterrole-aggregation-controller")
	if err != nil {
		return err
	}
	controller := clusterroleaggregation.NewClusterRoleAggregation(m.typed.Rbac().V1().ClusterRoles(), client.RbacV1())
	m.loops = append(m.loops, func(ctx context.Context) { controller.Run(ctx, aggregationWorkers) })
	return nil
}

// addGarbageCollector adds the controller that deletes objects whose owners are gone. The
// controller watches objects through metadata informers, which use the given client.
func (m *manager) addGarbageCollector(ctx context.Context, watched metadata.Interface) error {
	client, metadataClient, err := m.clientsOf("generic-garbage-collector")
	if err != nil {
		return err
	}
	started := make(chan struct{})
	close(started) // no need to wait: the informers start before any controller
	graph := garbagecollector.NewDependencyGraphBuilder(ctx, watched, m.mapper, garbagecollector.DefaultIgnoredResources(),
		informerfactory.NewInformerFactory(m.typed, m.metadata), started)
	collector, err := garbagecollector.NewComposedGarbageCollector(ctx, client, metadataClient, m.mapper, graph)
	if err != nil {
		return err
	}
	m.loops = append(m.loops,
		func(ctx context.Context) { collector.Run(ctx, collectorWorkers, discoveryPeriod) },
		func(ctx context.Context) { collector.Sync(ctx, client.Discovery(), discoveryPeriod) })
	return nil
}
