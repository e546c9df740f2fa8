package bucket

import (
	"context"
	"crypto/sha256"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/lanyard-dev/lanyard/api/meta"
	"github.com/lanyard-dev/lanyard/api/toolkit/v1alpha1"
	"github.com/lanyard-dev/lanyard/auth"
	"github.com/lanyard-dev/lanyard/internal/artifact/objectstore"
	"github.com/lanyard-dev/lanyard/internal/artifact/objectstore/s3"
	"github.com/lanyard-dev/lanyard/internal/artifact/store"
	"github.com/lanyard-dev/lanyard/internal/clouds/buckets"
	"github.com/lanyard-dev/lanyard/internal/controller/controllertest"
)

// Hosts of the tests' network.
const (
	cloudHost = "s3.example.com"       // a host of the cloud
	minioHost = "minio.example.com"    // a host of a tenant
	plainHost = "plain.example.com:80" // a host of a tenant, without TLS
	stsURL    = "https://minio.example.com"
)

// world has tenants with buckets, which the real S3 client reads.
type world struct {
	*controllertest.World[*v1alpha1.Bucket]

	service *service
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{World: controllertest.New[*v1alpha1.Bucket](t, "", store.Options{})}
	w.service = newService(t, w.Cloud)
	w.Access.Transports = w.service.network.Pool(t, nil)
	w.Start(func() reconcile.Reconciler {
		return New(w.Shared, w.Access, map[string]buckets.Service{"aws": signing{w.Cloud}, "generic": signing{w.Cloud}}, 1<<20)
	})
	return w
}

// tenant makes a namespace with an account, its role and a bucket that only the role may read.
func (w *world) tenant(namespace string) {
	w.T.Helper()
	role := "role/" + namespace
	w.Cloud.Trust(role, "system:serviceaccount:"+namespace+":reader")
	w.account(namespace, role)
	w.service.put(namespace, "hello.txt", "hello "+namespace)
	w.service.put(namespace, "deploy/app.yaml", "kind: App")
	w.service.put(namespace, "deploy/logo.png", "a picture")
}

func (w *world) account(namespace, role string) {
	w.T.Helper()
	w.Accounts.Put(w.T, namespace, "reader", "uid-"+namespace, map[string]string{"role": role})
}

// create stores a Bucket for the tenant's bucket. Its spec leaves out deploy/logo.png. The function
// edit may change the spec first.
func (w *world) create(namespace string, edit func(*v1alpha1.BucketSpec)) *v1alpha1.Bucket {
	w.T.Helper()
	return w.Create(&v1alpha1.Bucket{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "app"},
		Spec: v1alpha1.BucketSpec{
			BucketName: namespace,
			Access:     v1alpha1.Access{Provider: "aws", ServiceAccountName: "reader"},
			Schedule:   v1alpha1.Schedule{Interval: metav1.Duration{Duration: 10 * time.Minute}},
			Ignore:     new("*.png"),
		},
	}, func(o *v1alpha1.Bucket) {
		if edit != nil {
			edit(&o.Spec)
		}
	})
}

// editSpec changes the spec of an object as a user does.
func (w *world) editSpec(o *v1alpha1.Bucket, change func(*v1alpha1.BucketSpec)) {
	w.T.Helper()
	w.Edit(o, func(o *v1alpha1.Bucket) { change(&o.Spec) })
}

// wants reconciles the object and checks the condition Ready.
func (w *world) wants(o *v1alpha1.Bucket, reason, message string) (*v1alpha1.Bucket, reconcile.Result) {
	w.T.Helper()
	got, result := w.Reconcile(o)
	ready := apimeta.FindStatusCondition(got.Status.Conditions, meta.ConditionReady)
	if ready == nil || ready.Reason != reason || !strings.Contains(ready.Message, message) || (ready.Status == metav1.ConditionTrue) != (reason == meta.ReasonSucceeded) {
		w.T.Errorf("Ready is %+v, want %s with %q", ready, reason, message)
	}
	return got, result
}

func (w *world) stalled(o *v1alpha1.Bucket) bool {
	return apimeta.IsStatusConditionTrue(w.Get(o).Status.Conditions, meta.ConditionStalled)
}

// signing is a fake [buckets.Service] that opens the buckets of every provider with the S3 client.
type signing struct{ cloud *controllertest.Cloud }

func (signing) Locate(spec v1alpha1.BucketSpec) (buckets.Place, error) {
	switch {
	case spec.Endpoint == "":
		return buckets.Place{Endpoint: cloudHost, Host: cloudHost, Region: "eu-west-1", Token: []auth.Option{auth.WithSTSRegion("eu-west-1")}}, nil
	case spec.Provider == "aws":
		return buckets.Place{}, &auth.Error{Stage: auth.StageExchange, Code: auth.CodeEndpointRefused, Fix: "name a host of the cloud", Err: errors.New("spec.endpoint: it is none")}
	default:
		return buckets.Place{Endpoint: spec.Endpoint, Host: spec.Endpoint, Region: "us-east-1"}, nil
	}
}

func (s signing) Open(_ context.Context, r buckets.Request) (objectstore.Storage, error) {
	options := s3.Options{Bucket: r.Bucket, Endpoint: r.Endpoint, Region: r.Region, PathStyle: true, Insecure: r.Insecure, Transport: r.Transport, Caller: r.Caller}
	switch {
	case r.Mint != nil:
		options.Credentials = awssdk.CredentialsProviderFunc(func(ctx context.Context) (awssdk.Credentials, error) {
			token, err := auth.GetToken(ctx, s.cloud, r.Mint...)
			if err != nil {
				return awssdk.Credentials{}, err
			}
			return awssdk.Credentials{AccessKeyID: token.(*controllertest.Session).ID, SecretAccessKey: "s3cret"}, nil
		})
	case r.Keys != nil:
		options.Credentials = awssdk.CredentialsProviderFunc(func(context.Context) (awssdk.Credentials, error) {
			return awssdk.Credentials{AccessKeyID: r.Keys.ID, SecretAccessKey: r.Keys.Secret.Reveal()}, nil
		})
	}
	return s3.New(options)
}

// service serves the buckets. The key that signs a request identifies a user. Each user may read
// the bucket of the same name. Everybody may read the bucket "public".
type service struct {
	cloud   *controllertest.Cloud
	network *controllertest.Network

	mu       sync.Mutex
	objects  map[string]string // bucket/key -> content
	fetched  []string          // keys of the fetched objects
	tampered http.HandlerFunc  // called first; answers the request if it sets the header Tampered
}

func newService(t *testing.T, c *controllertest.Cloud) *service {
	t.Helper()
	s := &service{cloud: c, objects: map[string]string{}}
	s.network = controllertest.NewNetwork(t, map[string]http.Handler{cloudHost: s, minioHost: s})
	plain := httptest.NewServer(s)
	t.Cleanup(plain.Close)
	s.network.Addresses[plainHost] = plain.Listener.Addr().String()
	return s
}

func (s *service) put(bucketName, key, content string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.objects[bucketName+"/"+key] = content
}

func (s *service) remove(bucketName, key string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.objects, bucketName+"/"+key)
}

func (s *service) tamper(with http.HandlerFunc) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tampered = with
}

// fetches returns the keys of the objects that were read since the last call.
func (s *service) fetches() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	got := s.fetched
	s.fetched = nil
	slices.Sort(got)
	return got
}

func refuse(w http.ResponseWriter, status int, code string) {
	w.WriteHeader(status)
	_, _ = fmt.Fprintf(w, `<Error><Code>%s</Code><Message>s3cret</Message></Error>`, code)
}

// user returns who signed the request. If a role signed it, this is the role's name without the
// prefix "role/". Otherwise, it is the key ID without the prefix "USER". For an unsigned request,
// user returns "".
func (s *service) user(r *http.Request) string {
	_, rest, _ := strings.Cut(r.Header.Get("Authorization"), "Credential=")
	key, _, _ := strings.Cut(rest, "/")
	if role, ok := s.cloud.Holder(key); ok {
		return strings.TrimPrefix(role, "role/")
	}
	return strings.TrimPrefix(key, "USER")
}

func etag(content string) string { return fmt.Sprintf(`"%x"`, sha256.Sum256([]byte(content))) }

func (s *service) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	bucketName, key, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	if s.tampered != nil {
		if s.tampered(w, r); w.Header().Get("Tampered") != "" {
			return
		}
	}
	has := slices.ContainsFunc(slices.Collect(maps.Keys(s.objects)), func(name string) bool { return strings.HasPrefix(name, bucketName+"/") })
	switch user := s.user(r); {
	case !has:
		refuse(w, http.StatusNotFound, "NoSuchBucket")
	case bucketName != "public" && user != bucketName:
		refuse(w, http.StatusForbidden, "AccessDenied")
	case key == "":
		s.list(w, bucketName, r.URL.Query().Get("prefix"))
	default:
		content, ok := s.objects[bucketName+"/"+key]
		if !ok || r.Header.Get("If-Match") != etag(content) {
			refuse(w, http.StatusPreconditionFailed, "PreconditionFailed")
			return
		}
		s.fetched = append(s.fetched, key)
		_, _ = io.WriteString(w, content)
	}
}

func (s *service) list(w http.ResponseWriter, bucketName, prefix string) {
	type contents struct {
		Key, ETag string
		Size      int
	}
	var out struct {
		XMLName  xml.Name `xml:"ListBucketResult"`
		Contents []contents
	}
	for name, content := range s.objects {
		if key, ok := strings.CutPrefix(name, bucketName+"/"); ok && strings.HasPrefix(key, prefix) {
			out.Contents = append(out.Contents, contents{key, etag(content), len(content)})
		}
	}
	_ = xml.NewEncoder(w).Encode(out)
}
