package attack

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	tokenv1 "github.com/lanyard-dev/lanyard/api/token/v1alpha1"
)

// strangerWait returns the limit for the median answer of a port during a flood of connections. The
// caller adds twice the time of an answer without a flood. With -short, other tests use the
// processors too, so the limit only shows that the port answers.
func strangerWait() time.Duration { return lasting(time.Second, 100*time.Millisecond) }

// opening is what a stranger sends over a connection, and how many connections do so.
type opening struct {
	number int
	begin  []byte // sent at once
	drips  bool   // a byte follows every second
	tls    bool   // with a TLS handshake, if the port has TLS
}

// openings returns what the strangers send to a port.
func openings() []opening {
	idle, sending := 300, 60
	if !testing.Short() {
		idle, sending = 10_000, 600
	}
	header := []byte("GET / HTTP/1.1\r\nHost: lanyard\r\nX-Long: " + strings.Repeat("x", 900<<10))
	body := []byte("POST / HTTP/1.1\r\nHost: lanyard\r\nContent-Length: 1000000000\r\n\r\n")
	return []opening{
		{number: idle},
		{number: sending / 4, tls: true},
		{number: sending, begin: header, drips: true, tls: true},
		{number: sending / 4, begin: body, drips: true, tls: true},
	}
}

// openPorts acts as a Pod without any credential. It floods each open port of each program with
// connections. Meanwhile the port must answer others, the token API must stay available, and
// namespaces must be deleted.
func openPorts(tn *tenant) {
	t := tn.t
	ctx, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { watchTokenAPI(ctx, t) })
	running.Go(func() { deleteNamespaces(ctx, t, tn.namespace) })
	for _, p := range programs {
		for _, name := range p.Ports() {
			verifies := p == tokenServer && name == "api"
			tn.floodPort(p.Workload+" "+name, strings.TrimPrefix(p.URL(name), "http://"), verifies)
		}
	}
	stop()
	running.Wait()
}

// floodPort opens many connections to a port, and measures the port's answers to others meanwhile.
// If the port verifies certificates, the port must not answer: strangers have no certificate.
func (tn *tenant) floodPort(name, address string, verifies bool) {
	t := tn.t
	withTLS := speaksTLS(t.Context(), address)
	before, err := askPort(t.Context(), address, withTLS)
	if (err != nil) != verifies {
		t.Errorf("%s: the answer to a stranger before the flood: %v", name, err)
	}
	var open []net.Conn
	var mu sync.Mutex // guards open
	ctx, stop := context.WithTimeout(t.Context(), lasting(time.Second, 10*time.Second))
	defer stop()
	var running sync.WaitGroup
	for _, o := range openings() {
		tn.tried += o.number
		next := make(chan struct{}, o.number)
		for range o.number {
			next <- struct{}{}
		}
		close(next)
		for range 4 {
			running.Go(func() {
				for range next {
					if conn := o.open(ctx, address, withTLS); conn != nil {
						mu.Lock()
						open = append(open, conn)
						mu.Unlock()
					}
				}
			})
		}
	}
	var waits []time.Duration
	var failures error
	for err == nil && ctx.Err() == nil {
		wait, failure := askPort(t.Context(), address, withTLS)
		waits, failures = append(waits, wait), errors.Join(failures, failure)
		pause(t, 2*pollEvery)
	}
	<-ctx.Done()
	running.Wait()
	for _, conn := range open {
		_ = conn.Close()
	}
	if len(waits) == 0 {
		t.Logf("%s: %d connections; it does not answer strangers: %v", name, len(open), err)
		return
	}
	slices.Sort(waits)
	median := waits[len(waits)/2]
	t.Logf("%s: %d connections; %d answers, median %s, longest %s; without a flood %s",
		name, len(open), len(waits), median, waits[len(waits)-1], before)
	if limit := strangerWait() + 2*before; median > limit || failures != nil {
		t.Errorf("%s: half of the answers took %s in a flood of connections; want at most %s: %v", name, median, limit, failures)
	}
}

// open opens a connection and begins to send. It returns nil if the program refuses the connection.
func (o opening) open(ctx context.Context, address string, withTLS bool) net.Conn {
	conn, err := dial(ctx, address, withTLS && o.tls)
	if err != nil {
		return nil
	}
	_ = conn.SetWriteDeadline(time.Now().Add(time.Second))
	_, _ = conn.Write(o.begin) // the program may have closed the connection already
	if o.drips {
		time.AfterFunc(time.Second, func() { o.drip(ctx, conn) })
	}
	return conn
}

// drip sends a byte every second, until ctx or the connection ends.
func (o opening) drip(ctx context.Context, conn net.Conn) {
	_ = conn.SetWriteDeadline(time.Now().Add(time.Second))
	if _, err := conn.Write([]byte("x")); err == nil && ctx.Err() == nil {
		time.AfterFunc(time.Second, func() { o.drip(ctx, conn) })
	}
}

// dial opens a connection. With withTLS, it makes a TLS handshake that verifies nothing.
func dial(ctx context.Context, address string, withTLS bool) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if withTLS {
		config := &tls.Config{InsecureSkipVerify: true} // an attacker needs no verification
		return (&tls.Dialer{Config: config}).DialContext(ctx, "tcp", address)
	}
	return (&net.Dialer{}).DialContext(ctx, "tcp", address)
}

func speaksTLS(ctx context.Context, address string) bool {
	conn, err := dial(ctx, address, true)
	if err != nil {
		return false
	}
	_ = conn.Close()
	return true
}

// askPort sends a request over a new connection. It returns the time until the answer's header; any
// status is an answer.
func askPort(ctx context.Context, address string, withTLS bool) (time.Duration, error) {
	began := time.Now()
	conn, err := dial(ctx, address, withTLS)
	if err != nil {
		return time.Since(began), err
	}
	defer conn.Close()
	_ = conn.SetDeadline(began.Add(patience))
	if _, err := fmt.Fprint(conn, "GET /healthz HTTP/1.1\r\nHost: lanyard\r\nConnection: close\r\n\r\n"); err != nil {
		return time.Since(began), err
	}
	res, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		return time.Since(began), err
	}
	return time.Since(began), res.Body.Close()
}

// watchTokenAPI fails the test if the token API is not available at some time before ctx ends.
func watchTokenAPI(ctx context.Context, t *testing.T) {
	api := &unstructured.Unstructured{}
	api.SetGroupVersionKind(schema.GroupVersionKind{Group: "apiregistration.k8s.io", Version: "v1", Kind: "APIService"})
	for ; ctx.Err() == nil; pause(t, 4*pollEvery) {
		if err := objects.Get(ctx, client.ObjectKey{Name: "v1alpha1." + tokenv1.Group}, api); err != nil {
			if ctx.Err() == nil {
				t.Errorf("read the APIService: %v", err)
			}
			return
		}
		conditions, _, _ := unstructured.NestedSlice(api.Object, "status", "conditions")
		for _, c := range conditions {
			if c, ok := c.(map[string]any); ok && c["type"] == "Available" && c["status"] != "True" {
				t.Errorf("the token API is not available: %v: %v", c["reason"], c["message"])
				return
			}
		}
	}
}

// deleteNamespaces creates and deletes namespaces until ctx ends. Each must be gone within
// patience. While an aggregated API is not available, no namespace can be deleted.
func deleteNamespaces(ctx context.Context, t *testing.T, prefix string) {
	for n := 0; ctx.Err() == nil; n++ {
		o := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint(prefix, "-gone-", n)}}
		err := objects.Create(t.Context(), o)
		if err == nil {
			err = objects.Delete(t.Context(), o)
		}
		if err != nil {
			t.Errorf("namespace %s: %v", o.Name, err)
			return
		}
		awaitGone(t, o, patience)
	}
}
