package attack

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	tokenv1 "github.com/lanyard-dev/lanyard/api/token/v1alpha1"
	"github.com/lanyard-dev/lanyard/internal/local"
)

const (
	// maxOpen is the maximum number of open connections of a port, as docs/security.md says.
	maxOpen = 500
	// headerTimeout is how long a port waits for the header of a connection's first request.
	headerTimeout = 5 * time.Second
	// checkEvery is the pause between two changes of the token API's APIService. Each change makes
	// the API server check the token API. A failed check takes up to six seconds. If the APIService
	// changes during the check, the API server does not report the failure. So the pause is longer.
	checkEvery = 7 * time.Second
	// honestAddress is the IP address from which askPort sends requests during a flood. The flood
	// comes from another address, as from another Pod. A full port closes connections of the
	// address with most connections.
	honestAddress = "127.0.0.2"
)

// strangerWait returns the limit for a port's answer times during a flood of connections. The given
// percentage of the answers must come within this time. The caller adds time for a busy machine.
// With -short, other tests use the processors too. So the limit is then high, and only shows that
// the port answers.
func strangerWait() (percent int, limit time.Duration) {
	if testing.Short() {
		return 50, time.Second
	}
	return 90, 100 * time.Millisecond
}

// opening describes connections of clients without credentials: how many there are, and what each
// connection sends.
type opening struct {
	number int
	begin  []byte // sent at once
	drips  bool   // after begin, the connection sends one more byte every second
	tls    bool   // with a TLS handshake, if the port has TLS
}

// openings returns groups of connections, and what the connections of each group send. The
// strangers open all these connections to one port. The connections are more than maxOpen, so new
// connections replace others.
func openings() []opening {
	idle, sending := maxOpen+100, 60
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

// openPorts acts as a Pod without any credential. The Pod floods each open port of each program
// with connections. Meanwhile, the port must answer other clients, and the token API must stay
// available. Kubernetes must still be able to delete namespaces.
func openPorts(tn *tenant) {
	t := tn.t
	ctx, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { watchTokenAPI(ctx, t) })
	running.Go(func() { checkTokenAPI(ctx, t) })
	running.Go(func() { deleteNamespaces(ctx, t, tn.namespace) })
	table := newTable("Waits are the median, the 90th percentile and the maximum in ms.")
	fmt.Fprintln(table, "PORT\tOPENED\tSTILL OPEN\tANSWERS\tWAITS\tANOTHER PROGRAM")
	for i, p := range programs {
		quiet := portAddress(programs[(i+1)%len(programs)], "health")
		for _, name := range p.Ports() {
			verifies := p == tokenServer && name == "api"
			tn.floodPort(table, p.Workload+" "+name, portAddress(p, name), quiet, verifies)
		}
	}
	stop()
	running.Wait()
	must(t, "print the table", table.Flush())
}

// portAddress returns the host and the number of a program's port, separated by a colon.
func portAddress(p *local.Program, name string) string {
	return strings.TrimPrefix(p.URL(name), "http://")
}

// floodPort opens more connections to a port than the port keeps open. During the flood, floodPort
// sends requests from honestAddress, and measures how long each answer takes. The function then
// prints one row with the results to the table.
//
// The parameter quiet is the address of another program's port, which is not flooded. Its answers
// take longer only if the machine is busy. floodPort asks this port too, and allows the flooded
// port twice that time in addition.
//
// If verifies is true, the port is that of the token API, and requires client certificates. The
// port must then refuse a request without a certificate. In this case, floodPort sends its requests
// to the API server, as the honest tenant. The API server forwards them to the port, and has a
// certificate.
func (tn *tenant) floodPort(table io.Writer, name, address, quiet string, verifies bool) {
	t := tn.t
	withTLS := speaksTLS(t.Context(), address)
	ask := func() error { return askPort(t.Context(), address, withTLS) }
	if verifies {
		if ask() == nil {
			t.Errorf("%s: a stranger gets an answer", name)
		}
		ask = askTokenAPI(t)
	}
	if err := ask(); err != nil {
		t.Errorf("%s: the answer before the flood: %v", name, err)
	}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	open := make(chan []net.Conn, 1)
	go func() {
		connections := tn.openAll(ctx, address, withTLS)
		// After headerTimeout, the port closes connections without a request.
		pause(t, lasting(time.Second, headerTimeout))
		open <- connections
		stop()
	}()
	var waits, quietWaits []span
	var failures error
	measure := func(ask func() error) span {
		began := time.Now()
		failures = errors.Join(failures, ask())
		return span{began, time.Now()}
	}
	for ctx.Err() == nil {
		waits = append(waits, measure(ask))
		quietWaits = append(quietWaits, measure(func() error { return askPort(t.Context(), quiet, false) }))
		pause(t, 2*pollEvery)
	}
	all := <-open
	left := closeAll(all)
	shown := func(s []span) string {
		return fmt.Sprintf("%d/%d/%d", quantile(s, 50).Milliseconds(), quantile(s, 90).Milliseconds(), quantile(s, 100).Milliseconds())
	}
	fmt.Fprintf(table, "%s\t%d\t%d\t%d\t%s\t%s\n", name, len(all), left, len(waits), shown(waits), shown(quietWaits))
	if len(all) <= maxOpen || left > maxOpen {
		t.Errorf("%s: of %d connections, %d are still open; want more than %d, and at most %[4]d that are still open",
			name, len(all), left, maxOpen)
	}
	if len(waits) == 0 {
		t.Errorf("%s: no request during the flood: this tests nothing", name)
	}
	percent, limit := strangerWait()
	limit += 2 * quantile(quietWaits, percent)
	if took := quantile(waits, percent); took > limit || failures != nil {
		t.Errorf("%s: %d %% of the answers took up to %s in a flood of connections; want at most %s: %v", name, percent, took, limit, failures)
	}
}

// openAll opens all connections of [openings], and returns those that the port accepted. Their data
// is sent in the background until ctx ends.
func (tn *tenant) openAll(ctx context.Context, address string, withTLS bool) []net.Conn {
	var open []net.Conn
	var mu sync.Mutex // guards open
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
					if conn, err := dial(ctx, address, withTLS && o.tls); err == nil {
						go o.send(ctx, conn)
						mu.Lock()
						open = append(open, conn)
						mu.Unlock()
					}
				}
			})
		}
	}
	running.Wait()
	return open
}

// closeAll closes connections. It returns the number of connections that the port had not closed.
func closeAll(all []net.Conn) int {
	var left atomic.Int64
	var running sync.WaitGroup
	deadline := time.Now().Add(lasting(500*time.Millisecond, 2*time.Second))
	for _, conn := range all {
		running.Go(func() {
			defer conn.Close()
			_ = conn.SetReadDeadline(deadline)
			if _, err := io.Copy(io.Discard, conn); errors.Is(err, os.ErrDeadlineExceeded) {
				left.Add(1)
			}
		})
	}
	running.Wait()
	return int(left.Load())
}

// send sends o.begin over a connection. If o.drips is true, send then sends one byte every second,
// until ctx ends or the connection breaks.
func (o opening) send(ctx context.Context, conn net.Conn) {
	for data := o.begin; ctx.Err() == nil; data = []byte("x") {
		_ = conn.SetWriteDeadline(time.Now().Add(time.Second))
		if _, err := conn.Write(data); err != nil || !o.drips {
			return
		}
		select {
		case <-time.After(time.Second):
		case <-ctx.Done():
		}
	}
}

// dial opens a connection to a port, as a client without credentials. If withTLS is true, dial
// makes a TLS handshake, and accepts any server certificate.
func dial(ctx context.Context, address string, withTLS bool) (net.Conn, error) {
	return dialFrom(ctx, nil, address, withTLS)
}

// dialFrom does what dial does. The client has the given IP address; nil for any.
func dialFrom(ctx context.Context, client net.IP, address string, withTLS bool) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	dialer := &net.Dialer{}
	if client != nil {
		dialer.LocalAddr = &net.TCPAddr{IP: client}
	}
	if withTLS {
		config := &tls.Config{InsecureSkipVerify: true} // an attacker needs no verification
		return (&tls.Dialer{NetDialer: dialer, Config: config}).DialContext(ctx, "tcp", address)
	}
	return dialer.DialContext(ctx, "tcp", address)
}

func speaksTLS(ctx context.Context, address string) bool {
	conn, err := dial(ctx, address, true)
	if err != nil {
		return false
	}
	_ = conn.Close()
	return true
}

// askPort sends a request over a new connection from honestAddress, and waits for the header of the
// answer. An answer with any HTTP status is a success.
func askPort(ctx context.Context, address string, withTLS bool) error {
	conn, err := dialFrom(ctx, net.ParseIP(honestAddress), address, withTLS)
	if err != nil {
		return err
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(patience))
	if _, err := fmt.Fprint(conn, "GET /healthz HTTP/1.1\r\nHost: lanyard\r\nConnection: close\r\n\r\n"); err != nil {
		return err
	}
	res, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		return err
	}
	return res.Body.Close()
}

// askTokenAPI returns a function that sends a request of the honest tenant to the API server. The
// API server forwards the request to the token server. The function waits for the whole answer. Any
// answer but HTTP status 200 is an error.
func askTokenAPI(t *testing.T) func() error {
	t.Helper()
	const path = "/apis/" + tokenv1.Group + "/v1alpha1"
	honest := callAs(t, honestNamespace, honestName, nil)
	ask := func() error {
		status, answer := honest.do(http.MethodGet, path, "application/json", "")
		return wantf(status == http.StatusOK, "HTTP %d %s", status, answer)
	}
	must(t, "ask for the token API", ask()) // opens the connection, so that the next request is faster
	return ask
}

// watchTokenAPI fails the test if the API server ever reports that the token API is not available,
// before ctx ends.
func watchTokenAPI(ctx context.Context, t *testing.T) {
	t.Helper()
	all := &unstructured.UnstructuredList{}
	all.SetGroupVersionKind(tokenAPI().GroupVersionKind())
	watching, err := objects.Watch(ctx, all, client.MatchingFields{"metadata.name": tokenAPI().GetName()})
	if err != nil {
		t.Errorf("watch the APIService: %v", err)
		return
	}
	defer watching.Stop()
	seen := 0
	for e := range watching.ResultChan() {
		if ctx.Err() != nil {
			break // the end of ctx may be reported as an error
		}
		api, ok := e.Object.(*unstructured.Unstructured)
		if !ok || e.Type == watch.Error {
			t.Errorf("watch the APIService: %s %v", e.Type, e.Object)
			return
		}
		conditions, _, _ := unstructured.NestedSlice(api.Object, "status", "conditions")
		for _, c := range conditions {
			if c, ok := c.(map[string]any); ok && c["type"] == "Available" {
				seen++
				if c["status"] != "True" {
					t.Errorf("the token API is not available: %v: %v", c["reason"], c["message"])
				}
			}
		}
	}
	if seen < 2 || ctx.Err() == nil {
		t.Errorf("the watch of the APIService ended after %d conditions", seen)
	}
}

// checkTokenAPI changes the token API's APIService every checkEvery, until ctx ends. Each change
// makes the API server check whether the token API is available. Without changes, the API server
// would check only every 30 seconds.
func checkTokenAPI(ctx context.Context, t *testing.T) {
	t.Helper()
	for n := 0; ctx.Err() == nil; n++ {
		patch := fmt.Appendf(nil, `{"metadata":{"annotations":{"attack":"%d"}}}`, n)
		if err := objects.Patch(ctx, tokenAPI(), client.RawPatch(types.MergePatchType, patch)); err != nil && ctx.Err() == nil {
			t.Errorf("change the APIService: %v", err)
			return
		}
		select {
		case <-time.After(checkEvery):
		case <-ctx.Done():
		}
	}
}

// tokenAPI returns the name and the kind of the token API's APIService.
func tokenAPI() *unstructured.Unstructured {
	api := &unstructured.Unstructured{}
	api.SetGroupVersionKind(schema.GroupVersionKind{Group: "apiregistration.k8s.io", Version: "v1", Kind: "APIService"})
	api.SetName("v1alpha1." + tokenv1.Group)
	return api
}

// deleteNamespaces creates and deletes namespaces until ctx ends. Each namespace must be gone
// within patience. Kubernetes cannot delete namespaces while an aggregated API, such as the token
// API, is not available.
func deleteNamespaces(ctx context.Context, t *testing.T, prefix string) {
	t.Helper()
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
