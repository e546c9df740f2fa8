package attack

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/lanyard-dev/lanyard/internal/local"
)

// TestStrangers floods each port of each program with connections of clients that have no
// credential. Each connection sends an unfinished header, or an unfinished TLS handshake. Memory
// stays below the chart's limit, and honest requests are answered. The API server reaches the token
// server, and a namespace can be deleted.
func TestStrangers(t *testing.T) {
	number := 10_000
	if testing.Short() {
		number = 2_000
	}
	admin, err := kubernetes.NewForConfig(world.Config())
	must(t, "make a client", err)
	header := "GET / HTTP/1.1\r\nA: " + strings.Repeat("a", 15<<10)
	handshake := "\x16\x03\x01\x40\x00\x01\x00\xff\xf0" + strings.Repeat("a", 16<<10-4) // one record of a ClientHello of 64 KiB
	for _, p := range programs {
		for name, flood := range map[string]string{"api": strings.Repeat(handshake, 3), "documents": header, "artifacts": header, "metrics": header, "health": header} {
			address, ok := strings.CutPrefix(p.URL(name), "http://")
			if !ok {
				continue
			}
			t.Run(p.Workload+"/"+name, func(t *testing.T) {
				honest := func() error { return answers(t.Context(), "http://"+address+"/healthz") }
				if name == "api" {
					honest = func() error {
						return admin.Discovery().RESTClient().Get().AbsPath("/apis/token.lanyard.dev/v1alpha1").Do(t.Context()).Error()
					}
				}
				before := memory(t, p, "VmRSS")
				var took []time.Duration
				for i := range number {
					var dialer net.Dialer
					c, err := dialer.DialContext(t.Context(), "tcp", address)
					must(t, "open a connection", err)
					defer c.Close()
					_, _ = io.WriteString(c, flood)
					if i%(number/50) == 0 {
						start := time.Now()
						must(t, "send an honest request", honest())
						took = append(took, time.Since(start))
					}
				}
				if name == "api" {
					deleteNamespace(t)
				}
				peak, limit := memory(t, p, "VmHWM"), limitOf(t, p)
				slices.Sort(took)
				t.Logf("%d connections: memory %d MiB before, peak %d MiB of %d MiB; honest requests: median %s, longest %s",
					number, before>>20, peak>>20, limit>>20, took[len(took)/2], took[len(took)-1])
				if peak > limit {
					t.Errorf("the peak memory is %d MiB, over the chart's limit of %d MiB", peak>>20, limit>>20)
				}
				if half := took[len(took)/2]; half > 100*time.Millisecond {
					t.Errorf("half of the honest requests took longer than %s", half)
				}
			})
		}
	}
}

// answers sends a request over a new connection. It fails unless the server answers; the status
// does not matter.
func answers(ctx context.Context, url string) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	transport := &http.Transport{DisableKeepAlives: true}
	answer, err := transport.RoundTrip(request)
	if err != nil {
		return err
	}
	return answer.Body.Close()
}

// deleteNamespace creates a namespace and deletes it. Kubernetes asks each API of the cluster for
// objects of the namespace, before the namespace is gone.
func deleteNamespace(t *testing.T) {
	t.Helper()
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "short-lived"}}
	must(t, "create a namespace", objects.Create(t.Context(), namespace))
	must(t, "delete a namespace", objects.Delete(t.Context(), namespace))
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for {
		err := objects.Get(ctx, client.ObjectKeyFromObject(namespace), namespace)
		if apierrors.IsNotFound(err) {
			return
		}
		must(t, "wait until the namespace is gone", err)
		select {
		case <-ctx.Done():
			t.Fatalf("the namespace is not gone after a minute: %+v", namespace.Status)
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// memory returns a field of a program's /proc/PID/status in bytes, such as VmRSS.
func memory(t *testing.T, p *local.Program, field string) int64 {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.PID()))
	must(t, "look at "+p.Workload, err)
	_, rest, ok := strings.Cut(string(text), field+":")
	if !ok {
		t.Fatalf("/proc/%d/status has no %s", p.PID(), field)
	}
	n, err := strconv.ParseInt(strings.Fields(rest)[0], 10, 64)
	must(t, "read "+field, err)
	return n << 10
}

// limitOf returns the memory limit of a program's container, in bytes, from its variable
// GOMEMLIMIT.
func limitOf(t *testing.T, p *local.Program) int64 {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", p.PID()))
	must(t, "look at "+p.Workload, err)
	for variable := range strings.SplitSeq(string(text), "\x00") {
		if limit, ok := strings.CutPrefix(variable, "GOMEMLIMIT="); ok {
			n, err := strconv.ParseInt(limit, 10, 64)
			must(t, "read GOMEMLIMIT", err)
			return n
		}
	}
	t.Fatalf("%s runs without GOMEMLIMIT", p.Workload)
	return 0
}
