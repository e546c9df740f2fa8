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
	// maxBody is the maximum size of a request's body in bytes. The largest request that can be
	// answered has 16 audiences of 255 bytes and a context object, which is less than 8 KiB.
	maxBody = 32 << 10
	// bodyTimeout is the maximum time in which a request's body must arrive.
	bodyTimeout = 5 * time.Second
	// retryAfterFull is the number of seconds after which a refused caller should try again.
	retryAfterFull = 1
)

// Numbers of requests for tokens and SVIDs that are under way at once. A request that waits for its
// turn takes up to 100 KiB, with its body and its headers. So all requests together take less than
// 250 MiB. An API server has up to 100 requests on each of its connections, and opens a new
// connection if it has more. So requests that wait do not block others.
const (
	maxReading = 128 // requests whose body is being read
	// maxRunning is the maximum number of requests that are authorized and answered. They compete
	// for processors, so the number is small. Each uses a processor for about 2 ms, and for up to
	// 10 ms if its context object is costly. Keys in a KMS take about 50 ms to sign. So one
	// namespace, with half of the places, gets 160 such signatures in a second.
	maxRunning = 16
	maxWaiting = 1024 // requests of all namespaces that wait
	// maxWaitingPerNamespace is more than the 64 requests that a controller makes at once for a
	// namespace.
	maxWaitingPerNamespace = 256
)

// shares divides the work for tokens and SVIDs among the namespaces of the requests. The API server
// has already checked that the caller may create tokens in that namespace. So nobody can use the
// share of another namespace.
type shares struct {
	// reading has the places of requests whose body is being read. A body can be slow on purpose.
	// So a request gets a place in running only after its whole body has arrived.
	reading *share.Places
	// running has the places of requests that are being authorized and answered.
	running    *share.Places
	serializer runtime.NegotiatedSerializer
	metrics    *Metrics
}

func newShares(serializer runtime.NegotiatedSerializer, metrics *Metrics) *shares {
	places := func(number int) *share.Places {
		return share.New(share.Limits{Places: number, Waiting: maxWaiting, WaitingPerTenant: maxWaitingPerNamespace})
	}
	return &shares{reading: places(maxReading), running: places(maxRunning), serializer: serializer, metrics: metrics}
}

// wrap returns a handler that passes each request to one of two handlers. A request that creates a
// token or an SVID waits for the turn of its namespace, and then goes to the handler creations.
// Every other request goes to the handler others at once. This API group has nothing else to
// create than tokens and SVIDs.
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

// isCreation reports whether a request creates an object. Only such a request can cost more than a
// small constant. The answer to every other request is a refusal, or is known when the program
// starts.
func isCreation(info *genericrequest.RequestInfo) bool {
	return info.IsResourceRequest && info.Verb == "create"
}

// serve waits for the request's turn and then calls the handler. If it returns an error, it has not
// called the handler.
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

// tooMany returns the answer for a caller who got no place. It says nothing about other namespaces.
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

// readBody returns the body of a request. It fails if the body is too long or too slow.
func readBody(w http.ResponseWriter, r *http.Request) ([]byte, error) {
	if r.ContentLength > maxBody {
		return nil, tooLarge()
	}
	connection := http.NewResponseController(w)
	if err := connection.SetReadDeadline(time.Now().Add(bodyTimeout)); err != nil {
		return nil, apierrors.NewInternalError(fmt.Errorf("limit the time of the body: %w", err))
	}
	// kubectl create --raw announces no length.
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
	// A connection of HTTP/1.1 keeps the deadline, which would end a request that waits.
	if err := connection.SetReadDeadline(time.Time{}); err != nil {
		return nil, apierrors.NewInternalError(fmt.Errorf("end the time limit of the body: %w", err))
	}
	return body, nil
}

func tooLarge() error {
	return apierrors.NewRequestEntityTooLargeError(fmt.Sprintf("a request for a token or an SVID has at most %d bytes", maxBody))
}

// place is a request's place among the running requests. The request's handler uses it, and so does
// the goroutine that makes the token: this goroutine can outlive the handler, for example if the
// caller goes away. The place is free when nobody uses it any more.
type place struct {
	mu    sync.Mutex // guards users
	users int
	leave func()
}

// placeKey is the key of a request's [place] in the request's context.
type placeKey struct{}

// keepPlace keeps the place of a request until the caller calls release. It fails if the request
// has no place, or has left its place.
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
