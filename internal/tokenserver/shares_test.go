package tokenserver

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/util/sets"
	genericrequest "k8s.io/apiserver/pkg/endpoints/request"

	identityv1 "github.com/lanyard-dev/lanyard/api/identity/v1alpha1"
	tokenv1 "github.com/lanyard-dev/lanyard/api/token/v1alpha1"
	"github.com/lanyard-dev/lanyard/internal/issuer"
	"github.com/lanyard-dev/lanyard/internal/must"
)

// crowd sends requests of many namespaces to a handler that [shares.wrap] returns. The tests that
// use a crowd run in a synctest bubble.
type crowd struct {
	*shares

	handler http.Handler
	mu      sync.Mutex
	served  []string              // namespaces of the requests that started to run, in order
	leave   chan struct{}         // each value ends one running request
	answers map[string][]response // answers to the requests of each namespace
	all     sync.WaitGroup
}

type response struct {
	code       int
	retryAfter string
	body       string
}

func newCrowd(t *testing.T) *crowd {
	t.Helper()
	scheme := runtime.NewScheme()
	must.Succeed(t, tokenv1.AddToScheme(scheme))
	c := &crowd{
		shares: newShares(serializer.NewCodecFactory(scheme), NewMetrics(nil)),
		leave:  make(chan struct{}), answers: map[string][]response{},
	}
	c.handler = c.wrap(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		info, _ := genericrequest.RequestInfoFrom(r.Context())
		c.mu.Lock()
		c.served = append(c.served, info.Namespace)
		c.mu.Unlock()
		select {
		case <-c.leave:
		case <-r.Context().Done():
		}
		w.WriteHeader(http.StatusCreated)
	}), http.NotFoundHandler())
	t.Cleanup(c.all.Wait) // t.Context() has ended by then, so no caller waits any more
	return c
}

// deadlines is a ResponseWriter that stores the deadline for reading the request's body.
type deadlines struct {
	*httptest.ResponseRecorder

	read time.Time
}

func (d *deadlines) SetReadDeadline(at time.Time) error {
	d.read = at
	return nil
}

// slowBody is a body that never arrives. Reading the body fails at the deadline that the
// ResponseWriter has stored.
type slowBody struct{ *deadlines }

func (s slowBody) Read([]byte) (int, error) {
	time.Sleep(time.Until(s.read))
	return 0, os.ErrDeadlineExceeded
}

// send starts a request with the given body, in the background. If slow is true, the request's body
// never arrives.
func (c *crowd) send(ctx context.Context, namespace, body string, slow bool) {
	w := &deadlines{ResponseRecorder: httptest.NewRecorder()}
	ctx = genericrequest.WithRequestInfo(ctx, &genericrequest.RequestInfo{IsResourceRequest: true, Verb: "create", Namespace: namespace})
	r := httptest.NewRequestWithContext(ctx, http.MethodPost, "/", strings.NewReader(body))
	if slow {
		r.ContentLength, r.Body = 2, io.NopCloser(slowBody{w})
	}
	c.all.Go(func() {
		c.handler.ServeHTTP(w, r)
		c.mu.Lock()
		defer c.mu.Unlock()
		c.answers[namespace] = append(c.answers[namespace], response{w.Code, w.Header().Get("Retry-After"), w.Body.String()})
	})
}

// flood sends the given number of requests of each namespace. It returns when each request runs,
// waits for a place, or has been refused.
func (c *crowd) flood(ctx context.Context, requests int, namespaces ...string) {
	for _, namespace := range namespaces {
		for range requests {
			c.send(ctx, namespace, "{}", false)
		}
		synctest.Wait()
	}
}

// next ends one running request, so that waiting requests can start to run. It returns the
// namespaces of requests started since the last call of c.next or c.since.
func (c *crowd) next() []string {
	c.leave <- struct{}{}
	synctest.Wait()
	return c.since()
}

func (c *crowd) since() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	served := c.served
	c.served = nil
	return served
}

// codes returns how many answers to a namespace's requests have each status code.
func (c *crowd) codes(namespace string) map[int]int {
	c.mu.Lock()
	defer c.mu.Unlock()
	codes := map[int]int{}
	for _, answer := range c.answers[namespace] {
		codes[answer.code]++
	}
	return codes
}

func count(list []string, namespace string) int {
	return len(slices.DeleteFunc(slices.Clone(list), func(s string) bool { return s != namespace }))
}

// TestFloodFromOneNamespace checks that a namespace with many requests gets half of the places in
// shares.running. A request of another namespace must then run at once.
func TestFloodFromOneNamespace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := t.Context()
		c := newCrowd(t)
		c.flood(ctx, 3000, "hostile")
		if served := c.since(); len(served) != maxRunning/2 {
			t.Errorf("%d requests of one namespace run, want %d", len(served), maxRunning/2)
		}
		if codes := c.codes("hostile"); codes[http.StatusTooManyRequests] != 3000-maxRunning/2-maxWaitingPerNamespace {
			t.Errorf("the answers are %v", codes)
		}
		c.flood(ctx, 1, "honest")
		if served := c.since(); len(served) != 1 || served[0] != "honest" {
			t.Errorf("%v were served, want the honest namespace", served)
		}
	})
}

// TestFloodFromManyNamespaces checks how long a request waits while many other namespaces have many
// waiting requests. While the request waits, each other namespace may start at most one request.
func TestFloodFromManyNamespaces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := t.Context()
		c := newCrowd(t)
		const namespaces = 40
		for n := range namespaces {
			c.flood(ctx, 300, fmt.Sprint("hostile-", n))
		}
		if served := c.since(); len(served) != maxRunning {
			t.Errorf("%d requests run, want %d", len(served), maxRunning)
		}
		c.flood(ctx, 2, "honest")
		var served []string
		for count(served, "honest") == 0 {
			served = append(served, c.next()...)
		}
		if len(served) > namespaces+1 {
			t.Errorf("the honest namespace is number %d, want at most %d", len(served), namespaces+1)
		}
		if codes := c.codes("honest"); codes[http.StatusTooManyRequests] > 0 {
			t.Errorf("an honest request was refused: %v", codes)
		}
	})
}

// TestTooManyRequests checks the answer to a request whose namespace has a full queue.
func TestTooManyRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := t.Context()
		c := newCrowd(t)
		c.flood(ctx, maxRunning/2+maxWaitingPerNamespace+1, "hostile")
		got := c.answers["hostile"]
		if len(got) != 1 || got[0].code != http.StatusTooManyRequests || got[0].retryAfter != "1" {
			t.Fatalf("the answers are %+v, want one with 429 and Retry-After", got)
		}
		for _, says := range []string{`namespace \"hostile\"`, "8 are under way and 3 wait", "send fewer at once", `"reason":"TooManyRequests"`} {
			if !strings.Contains(got[0].body, says) {
				t.Errorf("the answer %s lacks %s", got[0].body, says)
			}
		}
		if n := testutil.ToFloat64(c.metrics.refusals.WithLabelValues("TooManyRequests")); n != 1 {
			t.Errorf("%v refusals are counted", n)
		}
	})
}

// TestCancelledRequest checks that a request leaves its queue when the request's context ends.
func TestCancelledRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := t.Context()
		c := newCrowd(t)
		c.flood(ctx, maxRunning/2, "tenant")
		gone, leave := context.WithCancel(t.Context())
		c.flood(gone, maxWaitingPerNamespace, "tenant")
		leave()
		synctest.Wait()
		if codes := c.codes("tenant"); codes[http.StatusTooManyRequests] != maxWaitingPerNamespace {
			t.Errorf("the answers are %v", codes)
		}
		c.since()
		c.flood(ctx, 1, "tenant")
		if served := c.next(); len(served) != 1 {
			t.Errorf("%v were served, want the only request that waits", served)
		}
	})
}

// TestSlowBodies sends requests whose body never arrives. Each of these requests must get a place
// in shares.reading, and fail bodyTimeout later, without a place in shares.running. A request of
// another namespace must run at once.
func TestSlowBodies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := t.Context()
		c := newCrowd(t)
		start := time.Now()
		for range maxReading {
			c.send(ctx, "hostile", "", true)
		}
		synctest.Wait()
		c.flood(ctx, 1, "honest")
		if served := c.since(); len(served) != 1 || served[0] != "honest" {
			t.Errorf("%v were served, want the honest namespace", served)
		}
		time.Sleep(2*bodyTimeout + time.Nanosecond) // half of the requests first waited bodyTimeout for a place
		synctest.Wait()
		if codes := c.codes("hostile"); codes[http.StatusGatewayTimeout] != maxReading {
			t.Errorf("the answers after %s are %v", time.Since(start), codes)
		}
	})
}

// TestPlaceOutlivesHandler checks that a request has its place until the token is made, even if the
// request's handler ends earlier. Once the handler and the token's maker have released the place,
// keepPlace must fail.
func TestPlaceOutlivesHandler(t *testing.T) {
	left := 0
	p := &place{users: 1, leave: func() { left++ }}
	ctx := context.WithValue(t.Context(), placeKey{}, p)
	release, err := keepPlace(ctx)
	must.Succeed(t, err)
	p.release() // the handler ends
	if left != 0 {
		t.Error("the place is free while the token is made")
	}
	release()
	if left != 1 {
		t.Errorf("the place was left %d times", left)
	}
	for name, ctx := range map[string]context.Context{"left": ctx, "never entered": t.Context()} {
		if _, err := keepPlace(ctx); !apierrors.IsInternalError(err) {
			t.Errorf("a place that was %s: %v", name, err)
		}
	}
}

// TestCallersThatGoAway checks that a request has its place until the signer is done, even if the
// caller disconnects earlier. Otherwise, a namespace could start any number of signatures.
func TestCallersThatGoAway(t *testing.T) {
	begun, release := make(chan struct{}, maxRunning), make(chan struct{})
	defer close(release)
	r := newHookedRig(t, func() {
		begun <- struct{}{}
		<-release
	})
	c := r.minter(t)
	ctx, leave := context.WithCancel(t.Context())
	var gone sync.WaitGroup
	for range maxRunning / 2 {
		gone.Go(func() {
			request, err := http.NewRequestWithContext(ctx, http.MethodPost, "https://"+r.address+tokenPath("banana"), strings.NewReader(mintBody))
			if err != nil {
				t.Error(err)
				return
			}
			request.Header = c.header.Clone()
			request.Header.Set("Content-Type", "application/json")
			if response, err := c.http.Do(request); err == nil {
				_ = response.Body.Close()
				t.Errorf("the answer is %s", response.Status)
			}
		})
	}
	for range maxRunning / 2 {
		<-begun
	}
	leave()
	gone.Wait()
	if got := c.do(t, http.MethodPost, tokenPath("banana")+"?timeout=500ms", mintBody); got.code != http.StatusTooManyRequests || len(begun) > 0 {
		t.Errorf("a request without a place: %d, %s", got.code, got.body)
	}
}

// TestIsCreation checks which requests create an object, and so need a place.
func TestIsCreation(t *testing.T) {
	resolver := &genericrequest.RequestInfoFactory{APIPrefixes: sets.NewString("api", "apis"), GrouplessAPIPrefixes: sets.NewString("api")}
	const group = "/apis/token.lanyard.dev/v1alpha1"
	for _, c := range []struct {
		method, path string
		want         bool
	}{
		{http.MethodPost, tokenPath("banana"), true},
		{http.MethodPost, tokenPath("banana") + "?dryRun=All", true},
		{http.MethodPost, svidPath("ocirepositories", "my-app"), true},
		{http.MethodPost, group + "/namespaces/tenant-a/workloadidentities", true},
		{http.MethodPost, group + "/workloadidentities", true},
		{http.MethodGet, tokenPath("banana"), false},
		{http.MethodPut, tokenPath("banana"), false},
		{http.MethodDelete, tokenPath("banana"), false},
		{http.MethodGet, group, false},
		{http.MethodPost, group, false},
		{http.MethodGet, "/apis", false},
		{http.MethodGet, "/openapi/v3", false},
		{http.MethodGet, "/healthz", false},
	} {
		info, err := resolver.NewRequestInfo(httptest.NewRequestWithContext(t.Context(), c.method, c.path, nil))
		must.Succeed(t, err)
		if got := isCreation(info); got != c.want {
			t.Errorf("%s %s: %v, want %v", c.method, c.path, got, c.want)
		}
	}
}

// TestBodies checks bodies that are too long, and bodies of unknown length.
func TestBodies(t *testing.T) {
	r := newRig(t, banana())
	c := r.minter(t)
	spaces := strings.Repeat(" ", maxBody-len(mintBody))
	if got := c.do(t, http.MethodPost, tokenPath("banana"), mintBody+spaces); got.code != http.StatusCreated {
		t.Errorf("%d bytes: %d, %s", maxBody, got.code, got.body)
	}
	if got := c.do(t, http.MethodPost, tokenPath("banana"), mintBody+spaces+" "); got.code != http.StatusRequestEntityTooLarge || !strings.Contains(got.body, "32768") {
		t.Errorf("%d bytes: %d, %s", maxBody+1, got.code, got.body)
	}
	for body, want := range map[string]int{
		mintBody:                http.StatusCreated, // kubectl create --raw sends a body of unknown length
		mintBody + spaces:       http.StatusCreated,
		mintBody + spaces + " ": http.StatusRequestEntityTooLarge,
	} {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "https://"+r.address+tokenPath("banana"), struct{ io.Reader }{strings.NewReader(body)})
		must.Succeed(t, err)
		request.Header = c.header
		response, err := c.http.Do(request)
		must.Succeed(t, err)
		must.Succeed(t, response.Body.Close())
		if response.StatusCode != want {
			t.Errorf("a body of unknown length, %d bytes: %d, want %d", len(body), response.StatusCode, want)
		}
	}
}

// tenantSigner is a signer that blocks tokens for the namespace hostile until release is closed.
// Tokens for other namespaces are signed at once.
type tenantSigner struct {
	begun   chan struct{}
	release chan struct{}
}

func (s tenantSigner) MaxLife(identityv1.Algorithm) (time.Duration, error) { return time.Hour, nil }

func (s tenantSigner) JWT(_ identityv1.Algorithm, claims any, _ time.Time) (string, error) {
	if claims.(issuer.Claims).Lanyard.WorkloadIdentity.Namespace == "hostile" {
		s.begun <- struct{}{}
		<-s.release
	}
	return stubToken, nil
}

// TestFloodOverHTTP2 floods a server with requests of one namespace, over the HTTP/2 connections of
// one API server. During the flood, the server must answer a request of another namespace, and a
// request for discovery. The API server must open a new connection when all streams of a connection
// are in use.
func TestFloodOverHTTP2(t *testing.T) {
	hostile := banana()
	hostile.Namespace = "hostile"
	signer := tenantSigner{begun: make(chan struct{}, maxRunning), release: make(chan struct{})}
	r := newRigWith(t, func(c *Config) { c.Signer = signer }, banana(), hostile)
	c := r.minter(t)
	transport, ok := c.http.Transport.(*http.Transport)
	if !ok {
		t.Fatal("the caller has another transport")
	}
	transport.ForceAttemptHTTP2 = true

	const refused = 28
	answers := make(chan answer, maxRunning+maxWaitingPerNamespace+refused)
	var all sync.WaitGroup
	for range maxRunning/2 + maxWaitingPerNamespace + refused {
		all.Go(func() {
			answers <- c.do(t, http.MethodPost, strings.Replace(tokenPath("banana"), "tenant-a", "hostile", 1), mintBody)
		})
	}
	for range refused {
		if got := <-answers; got.code != http.StatusTooManyRequests || got.header.Get("Retry-After") != "1" {
			t.Errorf("a request beyond the queue's bound: %d, %s", got.code, got.body)
		}
	}
	for range maxRunning / 2 {
		<-signer.begun
	}
	c.mint(t, `{}`).request(t)
	if got := c.do(t, http.MethodGet, "/apis/token.lanyard.dev/v1alpha1", ""); got.code != http.StatusOK || got.proto != "HTTP/2.0" {
		t.Errorf("discovery: %d over %s, %s", got.code, got.proto, got.body)
	}
	go func() {
		for range signer.begun {
			continue // let the other requests of the flood begin
		}
	}()
	close(signer.release)
	all.Wait()
	close(signer.begun)
	close(answers)
	for got := range answers {
		if got.code != http.StatusCreated {
			t.Errorf("a request of the flood that could wait: %d, %s", got.code, got.body)
		}
	}
}

// TestBodiesThatWaitOverHTTP2 checks that waiting requests of one namespace do not block the HTTP/2
// connection for another namespace. The first requests have slow bodies, and take all places for
// reading that one namespace may use. Further requests of the namespace have long bodies, and wait.
// A request of another namespace must get its answer over the same connection.
func TestBodiesThatWaitOverHTTP2(t *testing.T) {
	r := newRig(t, banana())
	c := r.minter(t)
	c.http.Transport.(*http.Transport).ForceAttemptHTTP2 = true
	c.mint(t, `{}`).request(t) // opens the connection
	ctx, cancel := context.WithCancel(t.Context())
	var all sync.WaitGroup
	defer all.Wait()
	defer cancel()
	var written, reused sync.WaitGroup
	send := func(length int64, body io.Reader) {
		hooks := &httptrace.ClientTrace{
			GotConn: func(got httptrace.GotConnInfo) {
				if !got.Reused {
					t.Error("a request opens another connection")
				}
				reused.Done()
			},
			WroteHeaders: func() { written.Done() },
		}
		path := strings.Replace(tokenPath("banana"), "tenant-a", "hostile", 1)
		request, err := http.NewRequestWithContext(httptrace.WithClientTrace(ctx, hooks), http.MethodPost, "https://"+r.address+path, body)
		must.Succeed(t, err)
		request.Header, request.ContentLength = c.header.Clone(), length
		written.Add(1)
		reused.Add(1)
		all.Go(func() {
			if response, err := c.http.Do(request); err == nil {
				_ = response.Body.Close()
			}
		})
	}
	for range maxReading / 2 {
		never, writer := io.Pipe()
		defer writer.Close()
		send(2, never)
	}
	written.Wait()
	const streams = 100 // the maximum number of concurrent requests on a connection
	for range streams - maxReading/2 - 1 {
		send(maxBody, strings.NewReader(strings.Repeat(" ", maxBody)))
	}
	written.Wait()
	reused.Wait()
	time.Sleep(time.Second) // wait until the bodies have arrived
	start := time.Now()
	c.mint(t, `{}`).request(t)
	if took := time.Since(start); took > bodyTimeout/2 {
		t.Errorf("the request waits %s for bodies of another namespace", took)
	}
}

// TestReadBodyFails checks the errors of readBody for a body that ends too early, and for a
// connection that cannot have a deadline.
func TestReadBodyFails(t *testing.T) {
	broken := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", io.MultiReader(strings.NewReader("{"), errorReader{}))
	if _, err := readBody(&deadlines{ResponseRecorder: httptest.NewRecorder()}, broken); !apierrors.IsBadRequest(err) {
		t.Errorf("a broken body: %v", err)
	}
	if _, err := readBody(httptest.NewRecorder(), broken); !apierrors.IsInternalError(err) {
		t.Errorf("no deadline: %v", err)
	}
}

type errorReader struct{}

func (errorReader) Read([]byte) (int, error) { return 0, errors.New("reset") }
