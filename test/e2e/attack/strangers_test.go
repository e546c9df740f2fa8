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
	"strings"
	"sync"
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
	// checkEvery is the pause between two changes of the token API's APIService. Each change makes
	// the API server check the token API. A failed check takes up to six seconds. If the APIService
	// changes during the check, the API server does not report the failure. So the pause is longer.
	checkEvery = 7 * time.Second
	// askEvery is the pause between two requests of a port's honest client during a flood.
	askEvery = 5 * time.Millisecond
	// honestAddress is the IP address from which askPort sends requests during a flood. The flood
	// comes from another address, as from another Pod. A full port closes connections of the
	// address with most connections.
	honestAddress = "127.0.0.2"
)

// strangerWait returns the limit for a port's answer times while a flood opens connections. The
// given percentage of the answers must come within this time. The caller adds time for a busy
// machine. With -short, other tests use the processors too. So the limit is then high, and only
// shows that the port answers.
func strangerWait() (percent int, limit time.Duration) {
	if testing.Short() {
		return 50, time.Second
	}
	return 90, 100 * time.Millisecond
}

// openPorts acts as a Pod without any credential. The Pod floods each open port of each program
// with connections. Meanwhile, the port must answer other clients, and the token API must stay
// available. Kubernetes must still be able to delete namespaces.
func openPorts(tn *tenant) {
	t := tn.t
	ctx, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	defer running.Wait()
	defer stop()
	running.Go(func() { watchTokenAPI(ctx, t) })
	running.Go(func() { checkTokenAPI(ctx, t) })
	running.Go(func() { deleteNamespaces(ctx, t, tn.namespace) })
	table := newTable("Waits are the median, the 90th percentile and the maximum in ms.")
	fmt.Fprintln(table, "PORT\tOPENED\tWITHIN\tSTILL OPEN\tANSWERS\tWAITS\tWAITS OF ANOTHER PORT")
	for i, p := range programs {
		quiet := portAddress(programs[(i+1)%len(programs)], "health")
		for _, name := range p.Ports() {
			verifies := p == tokenServer && name == "api"
			tn.floodPort(table, p.Workload+" "+name, portAddress(p, name), quiet, verifies)
		}
	}
	must(t, "print the table", table.Flush())
}

// portAddress returns the host and the number of a program's port, separated by a colon.
func portAddress(p *local.Program, name string) string {
	return strings.TrimPrefix(p.URL(name), "http://")
}

// floodPort has another process open more connections to a port than the port keeps open, see
// [runFlood]. Meanwhile, floodPort sends requests from honestAddress, and measures how long each
// answer takes. The function then prints one row with the results to the table.
//
// The parameter quiet is the address of another program's port, which is not flooded. Its answers
// take longer only if the machine is busy. floodPort asks this port too, and allows the flooded
// port twice that time in addition.
//
// If verifies is true, the port is that of the token API, and requires client certificates. The
// port must then refuse a request without a certificate. In this case, floodPort sends its requests
// to the API server, as the honest tenant. The API server forwards them to the port, and has a
// certificate. In place of the port quiet, floodPort asks for a path that the API server answers
// itself.
func (tn *tenant) floodPort(table io.Writer, name, address, quiet string, verifies bool) {
	t := tn.t
	withTLS := speaksTLS(t.Context(), address)
	ask := func() error { return askPort(t.Context(), address, withTLS) }
	askQuiet := func() error { return askPort(t.Context(), quiet, false) }
	if verifies {
		if ask() == nil {
			t.Errorf("%s: a stranger gets an answer", name)
		}
		ask = askAPIServer(t, "/apis/"+tokenv1.Group+"/v1alpha1")
		askQuiet = askAPIServer(t, "/api")
	}
	if err := ask(); err != nil {
		t.Errorf("%s: the answer before the flood: %v", name, err)
	}
	for _, o := range openings() {
		tn.tried += o.number
	}
	flooding := make(chan error, 1)
	var flooded floodResult
	go func() {
		var err error
		flooded, err = runFlood(t.Context(), address, withTLS)
		flooding <- err
	}()
	var waits, quietWaits []span
	var failures error
	measure := func(ask func() error) span {
		began := time.Now()
		failures = errors.Join(failures, ask())
		return span{began, time.Now()}
	}
	for running := true; running; pause(t, askEvery) {
		waits = append(waits, measure(ask))
		quietWaits = append(quietWaits, measure(askQuiet))
		select {
		case err := <-flooding:
			must(t, "flood "+name, err)
			running = false
		default:
		}
	}
	flood := span{flooded.From, flooded.To}
	waits, quietWaits = during(flood, waits), during(flood, quietWaits)
	shown := func(s []span) string {
		return fmt.Sprintf("%d/%d/%d", quantile(s, 50).Milliseconds(), quantile(s, 90).Milliseconds(), quantile(s, 100).Milliseconds())
	}
	fmt.Fprintf(table, "%s\t%d\t%.1f s\t%d\t%d\t%s\t%s\n", name, flooded.Opened, flood.took().Seconds(), flooded.StillOpen,
		len(waits), shown(waits), shown(quietWaits))
	for i, o := range openings() {
		if flooded.Opened[i] < o.number/2 {
			t.Errorf("%s: %d connections of group %d were opened; want most of %d", name, flooded.Opened[i], i, o.number)
		}
	}
	if flooded.StillOpen > maxOpen {
		t.Errorf("%s: %d connections are still open; want at most %d", name, flooded.StillOpen, maxOpen)
	}
	minAnswers := 20
	if testing.Short() {
		minAnswers = 1 // this flood is short
	}
	if len(waits) < minAnswers {
		t.Errorf("%s: %d answers during the flood; want at least %d", name, len(waits), minAnswers)
	}
	percent, limit := strangerWait()
	limit += 2 * quantile(quietWaits, percent)
	if took := quantile(waits, percent); took > limit || failures != nil {
		t.Errorf("%s: %d %% of the answers took up to %s in a flood of connections; want at most %s: %v", name, percent, took, limit, failures)
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

// askAPIServer returns a function that sends a request of the honest tenant to a path of the API
// server. The function waits for the whole answer. Any answer but HTTP status 200 is an error.
func askAPIServer(t *testing.T, path string) func() error {
	t.Helper()
	honest := callAs(t, honestNamespace, honestName, nil)
	ask := func() error {
		status, answer := honest.do(http.MethodGet, path, "application/json", "")
		return wantf(status == http.StatusOK, "HTTP %d %s", status, answer)
	}
	must(t, "ask for "+path, ask()) // opens the connection, so that the next request is faster
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
