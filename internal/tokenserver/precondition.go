package tokenserver

import (
	"context"
	"errors"
	"net/http"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// Precondition is a condition that must hold while tokens are made, with the result of its last
// check. While the condition does not hold, the token server refuses every request for a token. The
// server stays ready, because an API without a ready server blocks the deletion of every namespace.
type Precondition struct {
	name, refusal string
	check         func(context.Context) error

	mu   sync.Mutex // guards what follows; never held during a check
	done bool       // true once a check has ended
	last error
}

// NewPrecondition returns a Precondition that does not hold before its first check. The name is for
// metrics. While the Precondition does not hold, callers get the text of the refusal. They do not
// get the error of the check.
func NewPrecondition(name, refusal string, check func(context.Context) error) *Precondition {
	return &Precondition{name: name, refusal: refusal, check: check, last: errors.New("the first check is not done yet")}
}

// Step makes the check, keeps its result and returns it.
func (p *Precondition) Step(ctx context.Context) error {
	err := p.check(ctx)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.done, p.last = true, err
	return err
}

// Checked is a readiness check. It succeeds once Step has run, whatever the result of Step. Until
// then, a new replica must get no requests.
func (p *Precondition) Checked(*http.Request) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.done {
		return p.last
	}
	return nil
}

// Metric returns a gauge that is 1 while the Precondition holds, otherwise 0.
func (p *Precondition) Metric() prometheus.Collector {
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "lanyard_token_precondition", Help: "1 if a condition holds without which no token is made, otherwise 0.",
		ConstLabels: prometheus.Labels{"check": p.name},
	}, func() float64 {
		if p.answer() != nil {
			return 0
		}
		return 1
	})
}

// firstRefusal is the answer to a request while one of the preconditions does not hold; nil if all
// preconditions hold.
func firstRefusal(preconditions []*Precondition) error {
	for _, p := range preconditions {
		if err := p.answer(); err != nil {
			return err
		}
	}
	return nil
}

// answer is the answer to a request for a token while the Precondition does not hold; nil while the
// Precondition holds. The answer has no Retry-After: only an administrator can mend the cause.
func (p *Precondition) answer() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.last == nil {
		return nil
	}
	return apierrors.NewServiceUnavailable("no token is made now: " + p.refusal +
		". The log of the token server has the details for an administrator")
}
