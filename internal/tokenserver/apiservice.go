package tokenserver

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"log/slog"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	tokenv1 "github.com/lanyard-dev/lanyard/api/token/v1alpha1"
)

// APIServiceName is the name of the APIService.
const APIServiceName = tokenv1.Version + "." + tokenv1.Group

// APIService manages the APIService object. Because of this object, the API server forwards
// requests for the group token.lanyard.dev to the token server. The Helm chart creates the object;
// the token server writes its spec.caBundle.
type APIService struct {
	// Client reads and writes the APIService object. It must not read from a cache.
	Client client.Client
}

// aggregation is an APIService object that was read; nil if the object does not exist.
type aggregation struct{ *unstructured.Unstructured }

func newAggregation() *aggregation {
	object := &unstructured.Unstructured{}
	object.SetGroupVersionKind(schema.GroupVersionKind{Group: "apiregistration.k8s.io", Version: "v1", Kind: "APIService"})
	object.SetName(APIServiceName)
	return &aggregation{object}
}

// bundle returns spec.caBundle as PEM: the certificates of the authorities that API servers trust.
// It is empty without an APIService or without caBundle. It is also empty if caBundle cannot be
// decoded: then the token server replaces caBundle.
func (a *aggregation) bundle() []byte {
	if a == nil {
		return nil
	}
	encoded, _, _ := unstructured.NestedString(a.Object, "spec", "caBundle")
	bundle, err := base64.StdEncoding.DecodeString(encoded)
	if err != nil {
		return nil
	}
	return bundle
}

// get returns the APIService object; nil if it does not exist.
func (s *APIService) get(ctx context.Context) (*aggregation, error) {
	read := newAggregation()
	err := s.Client.Get(ctx, client.ObjectKeyFromObject(read.Unstructured), read.Unstructured)
	if apierrors.IsNotFound(err) {
		return nil, nil // no error: without the object, the result is nil
	}
	if err != nil {
		return nil, fmt.Errorf("read APIService %s: %w", APIServiceName, err)
	}
	return read, nil
}

// trust writes the PEM certificates of authorities into spec.caBundle. API servers then accept only
// serving certificates that one of these authorities signed. If the object has changed since it was
// read, trust fails with a Conflict error of the API server.
func (s *APIService) trust(ctx context.Context, read *aggregation, bundle []byte) error {
	changed := read.DeepCopy()
	if err := unstructured.SetNestedField(changed.Object, base64.StdEncoding.EncodeToString(bundle), "spec", "caBundle"); err != nil {
		return err
	}
	patch := client.MergeFromWithOptions(read.Unstructured, client.MergeFromWithOptimisticLock{})
	if err := s.Client.Patch(ctx, changed, patch, client.FieldOwner("lanyard-token-server")); err != nil {
		return fmt.Errorf("write spec.caBundle of APIService %s: %w", APIServiceName, err)
	}
	return nil
}

func (s *APIService) delete(ctx context.Context) error {
	if err := s.Client.Delete(ctx, newAggregation().Unstructured); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("delete APIService %s: %w", APIServiceName, err)
	}
	return nil
}

// The deletion of the APIService is tried every deleteInterval, for at most deleteTimeout. Later
// attempts would be refused. Kubernetes removes this program's rights some seconds after the
// deletion of its namespace begins.
const (
	deleteInterval = time.Second
	deleteTimeout  = 20 * time.Second
)

// DeleteWithNamespace waits until the token server's namespace is being deleted, and then deletes
// the APIService. It returns earlier if ctx ends.
//
// Whenever a namespace is deleted, the API server asks the token server which objects of the group
// token.lanyard.dev are in this namespace. Without a token server, the APIService would block the
// deletion of every namespace, even of the token server's own (kubernetes/kubernetes#108427).
func (s *APIService) DeleteWithNamespace(ctx context.Context, informers cache.Informers, namespace string, log *slog.Logger) error {
	informer, err := informers.GetInformer(ctx, &corev1.Namespace{})
	if err != nil {
		return fmt.Errorf("watch namespace %s: %w", namespace, err)
	}
	terminating := make(chan struct{}, 1)
	seen := func(object any) {
		if current, ok := object.(*corev1.Namespace); ok && current.Name == namespace && current.DeletionTimestamp != nil {
			select {
			case terminating <- struct{}{}:
			default: // an earlier event has already sent the signal
			}
		}
	}
	if _, err := informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		AddFunc: seen, UpdateFunc: func(_, object any) { seen(object) },
	}); err != nil {
		return err
	}
	select {
	case <-ctx.Done():
		return nil
	case <-terminating:
	}
	log.Info("the namespace is being deleted, and the APIService with it", "namespace", namespace)
	// The deletion of the namespace also stops this program, which ends ctx. The APIService must
	// still be deleted.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), deleteTimeout)
	defer cancel()
	return s.deleteSurely(ctx, log)
}

// deleteSurely tries to delete the APIService until it is gone or ctx ends.
func (s *APIService) deleteSurely(ctx context.Context, log *slog.Logger) error {
	for {
		err := s.delete(ctx)
		if err == nil {
			return nil
		}
		log.Error("delete the APIService by hand if no namespace can be deleted", "error", err)
		select {
		case <-ctx.Done():
			return errors.Join(err, ctx.Err())
		case <-time.After(deleteInterval):
		}
	}
}
