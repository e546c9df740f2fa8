package tokenserver

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
	genericrequest "k8s.io/apiserver/pkg/endpoints/request"

	tokenv1 "github.com/lanyard-dev/lanyard/api/token/v1alpha1"
	"github.com/lanyard-dev/lanyard/auth/share"
)

const (
	// maxBody is the maximum size of a request's body in bytes. The largest valid request has 16
	// audiences of 255 bytes and a context object: less than 8 KiB.
	maxBody = 32 << 10
	// bodyTimeout is the maximum time in which a request's body must arrive.
	bodyTimeout = 5 * time.Second
	// retryAfterFull is the number of seconds after which a refused caller should try again.
	retryAfterFull = 1
)

// These constants limit the number of concurrent requests for tokens and SVIDs. A waiting request
// takes up to 100 KiB of memory, for body and headers. With these limits, all requests together
// take less than 250 MiB.
//
// An API server sends up to 100 concurrent requests over one connection. For more requests, the API
// server opens another connection. So many requests can wait without blocking new requests.
const (
	maxReading = 128 // requests whose body is being read
	// maxRunning is the maximum number of running requests: requests that are being authorized and
	// answered. This number is small, because running requests compete for processors. A request
	// takes about 2 ms of processor time, or up to 10 ms with a costly context object. A signature
	// with a key in a KMS takes about 50 ms. So one namespace, which may use half of the places,
	// gets 160 such signatures per second.
	maxRunning = 16
	maxWaiting = 1024 // waiting requests of all namespaces together
	// maxWaitingPerNamespace is the maximum number of requests of one namespace that wait for a
	// place in running. A waiting request takes a seat at the API server. The chart's
	// PriorityLevelConfigurations have 42 seats for token requests, and 11 for those of Lanyard's
	// controllers. So if a few namespaces have many requests, seats stay free for other namespaces.
	// And if other namespaces have no requests, the controllers get no refusal: one namespace may
	// have 8 running requests besides.
	maxWaitingPerNamespace = 3
)

// shares limits the concurrent requests for tokens and SVIDs, and divides them fairly among
// namespaces. The API server has already checked that the caller may create tokens in the request's
// namespace. So only callers with this permission use the namespace's share.
type shares struct {
	// reading has the places for requests whose body is being read. An attacker can send a body
	// slowly. So a request gets a place in running only after its whole body has arrived.
	reading *share.Places
	// running has the places for requests that are being authorized and answered.
	running    *share.Places
	serializer runtime.NegotiatedSerializer
	metrics    *Metrics
}

func newShares(serializer runtime.NegotiatedSerializer, metrics *Metrics) *shares {
	return &shares{
		// A request with a slow body keeps its seat at the API server even if the token server refuses
		// the request. So many of these requests may wait.
		reading:    share.New(share.Limits{Places: maxReading, Waiting: maxWaiting, WaitingPerTenant: maxWaiting / 4}),
		running:    share.New(share.Limits{Places: maxRunning, Waiting: maxWaiting, WaitingPerTenant: maxWaitingPerNamespace}),
		serializer: serializer, metrics: metrics,
	}
}

// wrap returns a handler that passes each request to the handler creations or the handler others.
// A request that creates a token or an SVID waits until its namespace may run another request, and
// then goes to creations. Every other request goes to others at once. In this API group, clients
// can create only tokens and SVIDs.
func (s *shares) wrap(creations, others http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		info, ok := genericrequest.RequestInfoFrom(r.Context())
		if !ok {
			responsewriters.InternalError(w, r, errors.New("the request has no RequestInfo: the chain of handlers is wrong"))
			return
		}
		if !isCreation(info) {
			others.ServeHTTP(w, r)
			return
		}
		if err := s.serve(w, r, info.Namespace, creations); err != nil {
			s.metrics.refused(err)
			responsewriters.ErrorNegotiated(err, s.serializer, tokenv1.GroupVersion(), w, r)
		}
	})
}

// isCreation reports whether a request creates an object. Only such a request can take much time.
// Every other request gets a refusal, or an answer that is fixed when the program starts.
func isCreation(info *genericrequest.RequestInfo) bool {
	return info.IsResourceRequest && info.Verb == "create"
}

// serve reads the request's body, waits until the namespace may run another request, and calls the
// handler. If serve returns an error, it has not called the handler.
func (s *shares) serve(w http.ResponseWriter, r *http.Request, namespace string, handler http.Handler) error {
	if err := s.reading.Enter(r.Context(), namespace); err != nil {
		return tooMany(namespace, err)
	}
	body, err := readBody(w, r)
	s.reading.Leave(namespace)
	if err != nil {
		return err
	}
	if err := s.running.Enter(r.Context(), namespace); err != nil {
		return tooMany(namespace, err)
	}
	place := &place{users: 1, leave: func() { s.running.Leave(namespace) }}
	defer place.release()
	r = r.WithContext(context.WithValue(r.Context(), placeKey{}, place))
	r.Body = io.NopCloser(bytes.NewReader(body))
	handler.ServeHTTP(w, r)
	return nil
}

// tooMany returns the answer to a request that got no place in reading or running. The answer says
// nothing about other namespaces.
func tooMany(namespace string, err error) error {
	using, waiting := 0, 0
	if full, ok := errors.AsType[*share.NoPlaceError](err); ok {
		using, waiting = full.Using, full.Waiting
	}
	return apierrors.NewTooManyRequests(fmt.Sprintf(
		"namespace %q has too many requests for tokens and SVIDs: %d are under way and %d wait; "+
			"send fewer at once, keep each token for half of its life, and try again later",
		namespace, using, waiting), retryAfterFull)
}

// readBody returns the body of a request. It fails if the body is longer than maxBody, or does not
// arrive within bodyTimeout.
func readBody(w http.ResponseWriter, r *http.Request) ([]byte, error) {
	if r.ContentLength > maxBody {
		return nil, tooLarge()
	}
	connection := http.NewResponseController(w)
	if err := connection.SetReadDeadline(time.Now().Add(bodyTimeout)); err != nil {
		return nil, apierrors.NewInternalError(fmt.Errorf("limit the time of the body: %w", err))
	}
	// Limit the size during reading too: requests of kubectl create --raw have no Content-Length.
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	_, long := errors.AsType[*http.MaxBytesError](err)
	switch {
	case long:
		return nil, tooLarge()
	case errors.Is(err, os.ErrDeadlineExceeded):
		slow := fmt.Sprintf("the body did not arrive within %s; send the request again", bodyTimeout)
		return nil, apierrors.NewTimeoutError(slow, retryAfterFull)
	case err != nil:
		return nil, apierrors.NewBadRequest("the body did not arrive: " + err.Error())
	}
	// Remove the deadline: on an HTTP/1.1 connection, the deadline would end a waiting request.
	if err := connection.SetReadDeadline(time.Time{}); err != nil {
		return nil, apierrors.NewInternalError(fmt.Errorf("end the time limit of the body: %w", err))
	}
	return body, nil
}

func tooLarge() error {
	return apierrors.NewRequestEntityTooLargeError(fmt.Sprintf("a request for a token or an SVID has at most %d bytes", maxBody))
}

// place is a request's place in shares.running. The place has up to two users: the request's
// handler, and the goroutine that makes the token. This goroutine can run longer than the handler,
// for example if the caller disconnects. The place becomes free when its last user releases it.
type place struct {
	mu    sync.Mutex // guards the field users
	users int
	leave func()
}

// placeKey is the key under which the context of a request has the request's [place].
type placeKey struct{}

// keepPlace adds a user to the [place] of the request with the context ctx. So the place stays in
// use until release is called. keepPlace fails if the request has no place, or if this place is
// free again.
func keepPlace(ctx context.Context) (release func(), err error) {
	p, ok := ctx.Value(placeKey{}).(*place)
	if !ok || !p.keep() {
		return nil, apierrors.NewInternalError(errors.New("the request has no place among the running requests"))
	}
	return p.release, nil
}

func (p *place) keep() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.users == 0 {
		return false
	}
	p.users++
	return true
}

func (p *place) release() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.users--; p.users == 0 {
		p.leave()
	}
}
