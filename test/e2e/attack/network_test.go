package attack

import (
	"crypto/rand"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/lanyard-dev/lanyard/api/toolkit/v1alpha1"
	"github.com/lanyard-dev/lanyard/cloudtest/journal"
)

// private returns hosts to which no tenant may send the controller.
func private() []string {
	return []string{
		"169.254.169.254", "metadata.google.internal", "10.96.0.1", "127.0.0.1", "localhost", "[::1]", "[fd00:ec2::254]", "[::ffff:169.254.169.254]",
		"[64:ff9b::a9fe:a9fe]", "[2002:a9fe:a9fe::1]", "168.63.129.16", "192.168.0.1", "100.100.100.200", "0.0.0.0", "localhost.localdomain", "localhost6.localdomain6", "2852039166", "0xa9fea9fe", "169.254.43518",
	}
}

// canary starts a service on this machine. The test fails if anybody connects to it.
func canary(t *testing.T) (address string) {
	t.Helper()
	var reached atomic.Int64
	server := httptest.NewUnstartedServer(http.NotFoundHandler())
	server.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			reached.Add(1)
		}
	}
	server.Start()
	t.Cleanup(func() {
		server.Close()
		if n := reached.Load(); n > 0 {
			t.Errorf("a service on this machine's loopback was reached %d times", n)
		}
	})
	return server.Listener.Addr().String()
}

// redirect acts as a tenant whose registries send the controller to private hosts: by a redirect of
// the manifest, or by the realm of a login.
func redirect(tn *tenant) {
	t := tn.t
	after := world.Cloud().Journal().Last()
	var all []client.Object
	targets := append(private(), canary(t))
	for i, host := range targets {
		for how, answer := range map[string]func(w http.ResponseWriter, target string){
			"location": func(w http.ResponseWriter, target string) {
				w.Header().Set("Location", target)
				w.WriteHeader(http.StatusTemporaryRedirect)
			},
			"realm": func(w http.ResponseWriter, target string) {
				w.Header().Set("WWW-Authenticate", `Bearer realm="`+target+`",service="x"`)
				w.WriteHeader(http.StatusUnauthorized)
			},
		} {
			name := fmt.Sprint(how, "-", i)
			tn.serve(t, tn.host(name), func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path == "/v2/" && how == "location" {
					return
				}
				answer(w, "http://"+host+"/latest/meta-data/")
			})
			all = append(all, tn.repository(name, tn.host(name)+"/app"))
		}
	}
	tn.refused(t, all, nil)
	for _, call := range world.Cloud().Journal().Calls(journal.Filter{After: after}) {
		for _, target := range targets {
			if call.Host == strings.Trim(target, "[]") {
				t.Errorf("a redirect to %s was followed: %+v", target, call)
			}
		}
	}
}

// namePrivateAddresses acts as a tenant whose objects refer to private addresses of the cluster's
// network and to the machines' metadata services. The controller uses the administrator's proxy,
// which could reach these addresses.
func namePrivateAddresses(tn *tenant) {
	t := tn.t
	var all []client.Object
	var hosts []string
	for i, host := range append(private(), canary(t)) {
		repository, tags, bucket := tn.repository(fmt.Sprint("a-", i), host+"/latest"), tn.image(fmt.Sprint("b-", i), host+"/latest"), tn.bucket(fmt.Sprint("c-", i), host)
		repository.Spec.Insecure, tags.Spec.Insecure, bucket.Spec.Insecure = true, true, true
		all, hosts = append(all, repository, tags, bucket), append(hosts, strings.Trim(host, "[]"))
	}
	tn.refused(t, all, hosts, "EndpointRefused", "InvalidSpec")
}

// outlive acts as a tenant with a registry that makes fetches last half an hour. A fetch must end
// when its object is deleted or suspended, or when its ServiceAccount is deleted.
func outlive(tn *tenant) {
	t := tn.t
	// soon bounds the time until a fetch ends after its object or ServiceAccount was changed or
	// deleted.
	const soon = 5 * time.Second
	for how, end := range map[string]func(o *v1alpha1.OCIRepository){
		"deleted": func(o *v1alpha1.OCIRepository) { must(t, "delete an object", objects.Delete(t.Context(), o)) },
		"changed": func(o *v1alpha1.OCIRepository) {
			patch(t, o, func(o *v1alpha1.OCIRepository) { o.Spec.Suspend = true })
		},
		"without-account": func(*v1alpha1.OCIRepository) {
			account := &corev1.ServiceAccount{}
			account.Namespace, account.Name = tn.namespace, puller
			must(t, "delete an account", objects.Delete(t.Context(), account))
		},
	} {
		began, ended := make(chan struct{}, 10), make(chan struct{}, 10)
		tn.serve(t, tn.host(how), func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/v2/" || r.Method == http.MethodHead {
				w.Header().Set("Docker-Content-Digest", digest(nil))
				w.Header().Set("Content-Type", manifestType)
				return
			}
			began <- struct{}{}
			trickle(w, r)
			ended <- struct{}{}
		})
		o := tn.repositoryAs(how, v1alpha1.ProviderGeneric, tn.host(how)+"/app")
		o.Spec.Timeout = &metav1.Duration{Duration: 30 * time.Minute}
		if how != "without-account" {
			o.Spec.ServiceAccountName = ""
		}
		create(t, o)
		receive(t, "the fetch of the object to be "+how, began, patience)
		tn.tried++
		end(o)
		receive(t, "the end of the fetch of the object that is "+how, ended, soon)
		if how == "deleted" {
			awaitGone(t, o, soon)
		}
	}
}

func receive(t *testing.T, what string, from <-chan struct{}, limit time.Duration) {
	t.Helper()
	select {
	case <-from:
	case <-time.After(limit):
		t.Errorf("%s: not within %s", what, limit)
	}
}

// awaitGone waits until an object is gone.
func awaitGone(t *testing.T, o client.Object, limit time.Duration) {
	t.Helper()
	for end := time.Now().Add(limit); ; pause(t, pollEvery) {
		err := objects.Get(t.Context(), client.ObjectKeyFromObject(o), o)
		if apierrors.IsNotFound(err) {
			return
		}
		if time.Now().After(end) {
			t.Errorf("%s is there %s after its deletion: %v", o.GetName(), limit, err)
			return
		}
	}
}

// drip acts as a tenant with servers that send one byte now and then. It wants all workers of the
// controller to wait for these servers.
func drip(tn *tenant) {
	t := tn.t
	host := tn.host("drip")
	tn.serve(t, host, func(w http.ResponseWriter, r *http.Request) { trickle(w, r) })
	for i := range 40 {
		tn.tried++
		o := tn.repository(fmt.Sprint("drip-", i), host+"/app")
		o.Spec.Timeout = &metav1.Duration{Duration: time.Minute}
		create(t, o)
		b := tn.bucket(fmt.Sprint("drip-", i), host)
		b.Spec.Timeout = o.Spec.Timeout
		create(t, b)
	}
	pause(t, lasting(3*time.Second, 30*time.Second))
}

// Numbers for the attacks of a tenant that has several namespaces.
const (
	// manyNamespaces is the number of the tenant's namespaces. Each namespace has its own share of
	// the controller's workers.
	manyNamespaces = 6
	// perNamespace is the number of objects that the tenant creates in each namespace.
	perNamespace = 8
	// slowByte is the pause between two bytes of a slow body, or between two parts of several bytes.
	// A body of 1 MiB then takes weeks if it is sent byte by byte.
	slowByte = 2 * time.Second
)

// slowly answers with a body, one byte after the other; see slowlyBy.
func slowly(w http.ResponseWriter, r *http.Request, body []byte) { slowlyBy(1, w, r, body) }

// slowlyBy answers with a body. After each part with the given number of bytes, slowlyBy pauses for
// slowByte. The answer ends early if the client disconnects.
func slowlyBy(bytes int, w http.ResponseWriter, r *http.Request, body []byte) {
	w.Header().Set("Content-Length", fmt.Sprint(len(body)))
	for part := range slices.Chunk(body, bytes) {
		if _, err := w.Write(part); err != nil {
			return
		}
		_ = http.NewResponseController(w).Flush()
		select {
		case <-time.After(slowByte):
		case <-r.Context().Done():
			return
		}
	}
}

// dripBlobs acts as a tenant whose registry sends a manifest at once, but the manifest's blob
// slowly.
func dripBlobs(tn *tenant) {
	layer := archive(tn.t, 1<<20, rand.Reader)
	manifest := manifestOf(tn.t, layer, "slow")
	answers := &registry{manifest: func() []byte { return manifest }}
	tn.dripEverywhere(func(w http.ResponseWriter, r *http.Request) {
		if strings.Contains(r.URL.Path, "/blobs/") {
			slowly(w, r, layer)
			return
		}
		answers.ServeHTTP(w, r)
	}, func(tn *tenant, name, host string) client.Object {
		o := tn.repository(name, host+"/app")
		o.Spec.Timeout = &metav1.Duration{Duration: maxTimeout}
		return o
	})
}

// dripContents acts as a tenant whose bucket lists its objects at once, but sends an object slowly.
func dripContents(tn *tenant) {
	content := make([]byte, 1<<20)
	tn.dripEverywhere(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Has("list-type") || r.URL.Query().Has("location") {
			fmt.Fprintf(w, `<ListBucketResult><EncodingType>url</EncodingType><IsTruncated>false</IsTruncated>`+
				`<Contents><Key>app.yaml</Key><ETag>"1"</ETag><Size>%d</Size></Contents></ListBucketResult>`, len(content))
			return
		}
		w.Header().Set("ETag", `"1"`)
		slowly(w, r, content)
	}, func(tn *tenant, name, host string) client.Object {
		o := tn.bucket(name, host)
		o.Spec.Timeout = &metav1.Duration{Duration: maxTimeout}
		return o
	})
}

// holdMemory acts as a tenant whose buckets have many objects with long keys. The server lists the
// objects at once. The server sends the first objects slowly, but just fast enough for the
// controller. So the controller keeps the long lists and the first objects in memory.
func holdMemory(tn *tenant) {
	const (
		page, listed = 1000, 80_000
		slow         = 8 // the controller reads so many objects at once
		size         = 1 << 20
	)
	rest := strings.Repeat("x", 150)
	tn.dripEverywhere(func(w http.ResponseWriter, r *http.Request) {
		query := r.URL.Query()
		if query.Has("list-type") || query.Has("location") {
			from, _ := strconv.Atoi(query.Get("continuation-token"))
			var b strings.Builder
			fmt.Fprintf(&b, `<ListBucketResult><EncodingType>url</EncodingType><IsTruncated>%t</IsTruncated><NextContinuationToken>%d</NextContinuationToken>`,
				from+page < listed, from+page)
			for i := from; i < from+page; i++ {
				objectSize := 1
				if i < slow {
					objectSize = size
				}
				fmt.Fprintf(&b, `<Contents><Key>%06d-%s</Key><ETag>"1"</ETag><Size>%d</Size></Contents>`, i, rest, objectSize)
			}
			_, _ = io.WriteString(w, b.String()+`</ListBucketResult>`)
			return
		}
		w.Header().Set("ETag", `"1"`)
		slowlyBy(4<<10, w, r, make([]byte, size)) // 2 KiB per second
	}, func(tn *tenant, name, host string) client.Object {
		o := tn.bucket(name, host)
		o.Spec.Timeout = &metav1.Duration{Duration: maxTimeout}
		return o
	})
	pause(tn.t, lasting(0, time.Minute)) // the controller needs this time to list the objects
}

// dripTags acts as a tenant whose registry sends the list of tags slowly.
func dripTags(tn *tenant) {
	tn.dripEverywhere(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/tags/list") {
			w.Header().Set("Content-Type", "application/json")
			slowly(w, r, []byte(`{"name":"app","tags":[`+strings.Repeat(" ", 1<<20)+`]}`))
		}
	}, func(tn *tenant, name, host string) client.Object {
		o := tn.image(name, host+"/app")
		o.Spec.Timeout = &metav1.Duration{Duration: maxTimeout}
		return o
	})
}

// maxTimeout is the longest spec.timeout that the CRDs allow.
const maxTimeout = 30 * time.Minute

// dripEverywhere creates objects in several namespaces of the tenant. The function object returns a
// new object with the given name. All objects fetch from the same host, and the handler answers the
// requests to this host. The test fails if no request reaches the host.
func (tn *tenant) dripEverywhere(handler http.HandlerFunc, object func(tn *tenant, name, host string) client.Object) {
	t := tn.t
	host := tn.host("slow")
	var fetches atomic.Int64
	tn.serve(t, host, func(w http.ResponseWriter, r *http.Request) {
		fetches.Add(1)
		handler(w, r)
	})
	for _, in := range tn.in(manyNamespaces) {
		for i := range perNamespace {
			in.tried++
			create(t, object(in, fmt.Sprint("slow-", i), host))
		}
	}
	pause(t, lasting(5*time.Second, 15*time.Second))
	if fetches.Load() == 0 {
		t.Error("no object was fetched: this tests nothing")
	}
}
