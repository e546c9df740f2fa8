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
	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/lanyard-dev/lanyard/api/meta"
	"github.com/lanyard-dev/lanyard/api/toolkit/v1alpha1"
	"github.com/lanyard-dev/lanyard/auth"
	"github.com/lanyard-dev/lanyard/auth/cache"
	"github.com/lanyard-dev/lanyard/auth/spec"
	"github.com/lanyard-dev/lanyard/internal/artifact/bucket"
	"github.com/lanyard-dev/lanyard/internal/artifact/bucket/s3"
	"github.com/lanyard-dev/lanyard/internal/artifact/store"
	"github.com/lanyard-dev/lanyard/internal/controller/source"
	"github.com/lanyard-dev/lanyard/internal/controller/source/sourcetest"
)

// Hosts of the tests' network.
const (
	cloudHost = "s3.example.com"       // the cloud's
	minioHost = "minio.example.com"    // a tenant's
	plainHost = "plain.example.com:80" // a tenant's, without TLS
	stsURL    = "https://minio.example.com"
)

// world is a reconciler in a process of its own: a real store and a real client, a fake API server, and a cloud that remembers.
type world struct {
	t        *testing.T
	r        *Reconciler
	shared   *source.Shared
	access   *source.Access
	kube     client.WithWatch
	cloud    *sourcetest.Cloud
	accounts *sourcetest.Accounts
	service  *service
	dir      string
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{t: t, dir: t.TempDir(), cloud: sourcetest.NewCloud(""), accounts: &sourcetest.Accounts{}, kube: sourcetest.NewKube(t, interceptor.Funcs{})}
	w.service = newService(t, w.cloud)
	w.start()
	return w
}

// start begins anew, as a controller does that finds its volume again.
func (w *world) start() {
	w.t.Helper()
	artifacts, err := store.Open(w.dir, store.Options{})
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { _ = artifacts.Close() })
	tokens := cache.New(cache.Options{MaxSize: 100})
	w.accounts.Subscribe(tokens.Invalidate)
	w.access = &source.Access{
		Live: w.kube, Providers: map[string]auth.Provider{"aws": w.cloud}, Accounts: w.accounts, Cache: tokens, Observer: tokens,
		Transports: w.service.network.Pool(w.t, nil),
	}
	w.shared = &source.Shared{
		Client: w.kube, Recorder: events.NewFakeRecorder(1000), Rules: spec.Rules{Providers: []string{"aws"}}, Accounts: w.accounts, Metrics: tokens,
		Artifacts: &source.Artifacts{Store: artifacts, BaseURL: sourcetest.BaseURL, Elected: make(chan struct{})},
	}
	w.r = New(w.shared, w.access, map[string]Service{"aws": signing{w.cloud}, "generic": signing{w.cloud}}, 1<<20)
}

// tenant makes a namespace with an account, its role and a bucket that only the role may read.
func (w *world) tenant(namespace string) {
	w.t.Helper()
	role := "role/" + namespace
	w.cloud.Trust(role, "system:serviceaccount:"+namespace+":reader")
	w.account(namespace, role)
	w.service.put(namespace, "hello.txt", "hello "+namespace)
	w.service.put(namespace, "deploy/app.yaml", "kind: App")
	w.service.put(namespace, "deploy/logo.png", "a picture")
}

func (w *world) account(namespace, role string) {
	w.t.Helper()
	w.accounts.Put(w.t, namespace, "reader", "uid-"+namespace, map[string]string{"role": role})
}

// create stores an object that fetches the tenant's bucket, as edit changes it.
func (w *world) create(namespace string, edit func(*v1alpha1.BucketSpec)) *v1alpha1.Bucket {
	w.t.Helper()
	o := &v1alpha1.Bucket{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "app", UID: types.UID("uid-" + namespace), Generation: 1},
		Spec: v1alpha1.BucketSpec{
			BucketName: namespace, Provider: "aws", ServiceAccountName: "reader", Interval: metav1.Duration{Duration: 10 * time.Minute},
		},
	}
	if edit != nil {
		edit(&o.Spec)
	}
	sourcetest.Create(w.t, w.kube, o)
	return o
}

// edit changes an object as a user does, who makes a new generation.
func (w *world) edit(o *v1alpha1.Bucket, change func(*v1alpha1.BucketSpec)) {
	w.t.Helper()
	sourcetest.Edit(w.t, w.kube, o, func(o *v1alpha1.Bucket) { change(&o.Spec) })
}

func (w *world) get(o *v1alpha1.Bucket) *v1alpha1.Bucket {
	w.t.Helper()
	return sourcetest.Get(w.t, w.kube, o)
}

func (w *world) secret(namespace, name string, data map[string]string) {
	w.t.Helper()
	sourcetest.CreateSecret(w.t, w.kube, namespace, name, corev1.SecretTypeOpaque, data)
}

// reconcile runs once and returns the object as it stands then. It checks what must hold of every status.
func (w *world) reconcile(o *v1alpha1.Bucket) (*v1alpha1.Bucket, reconcile.Result) {
	w.t.Helper()
	result, err := w.r.Reconcile(w.t.Context(), reconcile.Request{NamespacedName: client.ObjectKeyFromObject(o)})
	if err != nil {
		w.t.Fatalf("reconcile: %v", err)
	}
	got := w.get(o)
	stored := false
	if artifact := got.Status.Artifact; artifact != nil {
		owner := store.Object{Kind: "bucket", Namespace: got.Namespace, Name: got.Name, UID: string(got.UID)}
		stored = w.shared.Artifacts.Store.Verify(w.t.Context(), owner, artifact.Digest) == nil
	}
	sourcetest.Holds(w.t, got, sourcetest.View{Status: got.Status.Status, Suspended: got.Spec.Suspend, Stored: stored}, result)
	return got, result
}

// wants reconciles and compares the condition Ready.
func (w *world) wants(o *v1alpha1.Bucket, reason, message string) (*v1alpha1.Bucket, reconcile.Result) {
	w.t.Helper()
	got, result := w.reconcile(o)
	ready := apimeta.FindStatusCondition(got.Status.Conditions, meta.ConditionReady)
	if ready == nil || ready.Reason != reason || !strings.Contains(ready.Message, message) || (ready.Status == metav1.ConditionTrue) != (reason == meta.ReasonSucceeded) {
		w.t.Errorf("Ready is %+v, want %s with %q", ready, reason, message)
	}
	if text := fmt.Sprintf("%+v", got.Status); strings.Contains(text, "s3cret") {
		w.t.Errorf("the status holds a secret: %s", text)
	}
	return got, result
}

func (w *world) stalled(o *v1alpha1.Bucket) bool {
	return apimeta.IsStatusConditionTrue(w.get(o).Status.Conditions, meta.ConditionStalled)
}

// served reads the artifact by its URL.
func (w *world) served(o *v1alpha1.Bucket) map[string]string {
	w.t.Helper()
	return sourcetest.Served(w.t, w.shared.Artifacts.Store, o.Status.Artifact)
}

// signing is a service of the cloud's protocol, wherever it is.
type signing struct{ cloud *sourcetest.Cloud }

func (signing) Locate(spec v1alpha1.BucketSpec) (Place, error) {
	switch {
	case spec.Endpoint == "":
		return Place{Endpoint: cloudHost, Host: cloudHost, Region: "eu-west-1", Token: []auth.Option{auth.WithSTSRegion("eu-west-1")}}, nil
	case spec.Provider == "aws":
		return Place{}, &auth.Error{Stage: auth.StageExchange, Code: auth.CodeEndpointRefused, Fix: "name a host of the cloud", Err: errors.New("spec.endpoint: it is none")}
	default:
		return Place{Endpoint: spec.Endpoint, Host: spec.Endpoint, Region: "us-east-1"}, nil
	}
}

func (s signing) Open(_ context.Context, r Request) (bucket.Storage, error) {
	options := s3.Options{Bucket: r.Bucket, Endpoint: r.Endpoint, Region: r.Region, PathStyle: true, Insecure: r.Insecure, Transport: r.Transport}
	switch {
	case r.Mint != nil:
		options.Credentials = awssdk.CredentialsProviderFunc(func(ctx context.Context) (awssdk.Credentials, error) {
			token, err := auth.GetToken(ctx, s.cloud, r.Mint...)
			if err != nil {
				return awssdk.Credentials{}, err
			}
			return awssdk.Credentials{AccessKeyID: token.(*sourcetest.Session).ID, SecretAccessKey: "s3cret"}, nil
		})
	case r.Keys != nil:
		options.Credentials = awssdk.CredentialsProviderFunc(func(context.Context) (awssdk.Credentials, error) {
			return awssdk.Credentials{AccessKeyID: r.Keys.Access, SecretAccessKey: r.Keys.Secret.Reveal()}, nil
		})
	}
	return s3.New(options)
}

// service has the buckets. Whose key signs a request may read the bucket of its own name; the bucket "public" is everybody's.
type service struct {
	cloud   *sourcetest.Cloud
	network *sourcetest.Network

	mu       sync.Mutex
	objects  map[string]string // bucket/key -> content
	fetched  []string          // keys
	tampered http.HandlerFunc  // in place of an answer; it says so by setting a header
}

func newService(t *testing.T, c *sourcetest.Cloud) *service {
	t.Helper()
	s := &service{cloud: c, objects: map[string]string{}}
	s.network = sourcetest.NewNetwork(t, map[string]http.Handler{cloudHost: s, minioHost: s})
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

// fetches are the keys of the objects that were read since the last call.
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

// user is who signed the request: a role's last part, a user, or nobody.
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
