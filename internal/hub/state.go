package hub

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/lanyard-dev/lanyard/api/meta"
)

// State says whether the hub answers. [Hub.State] returns it. The zero value means that no probe
// has ended yet.
type State struct {
	// Answered is when a probe last succeeded, UTC; zero if no probe has succeeded.
	Answered time.Time
	// Err is why the last probe failed; nil if the last probe succeeded.
	Err *Error
}

// Error says that the hub does not answer, or that it refuses the spoke.
type Error struct {
	// Reason is meta.ReasonHubUnreachable or meta.ReasonHubRefused.
	Reason string
	// Since depends on where the Error comes from:
	//   - a failed probe, after an earlier success: the time of the last success, in UTC
	//   - a failed probe, without an earlier success: the time when the program began to probe
	//   - [Hub.Get], if the hub forbids the spoke to read a single namespace: zero
	Since time.Time
	// Fix is the next step for people, in one sentence.
	Fix string
	// Err is the cause.
	Err error
}

func (e *Error) Error() string {
	said := "does not answer"
	if e.Reason == meta.ReasonHubRefused {
		said = "refuses this spoke"
	}
	if !e.Since.IsZero() {
		said += " since " + e.Since.UTC().Format(time.RFC3339)
	}
	return fmt.Sprintf("the hub %s: %v; %s", said, e.Err, e.Fix)
}

func (e *Error) Unwrap() error { return e.Err }

// failure turns the error of a probe into an Error without the field Since. The text of the Error
// has no part of the hub's answer except the HTTP status.
func (h *Hub) failure(ctx context.Context, err error) *Error {
	refused := &Error{Reason: meta.ReasonHubRefused}
	unreachable := &Error{Reason: meta.ReasonHubUnreachable, Fix: "check the hub, and the way to it"}
	var status apierrors.APIStatus
	var transport *url.Error
	switch {
	case apierrors.IsUnauthorized(err):
		refused.Err = fmt.Errorf("HTTP %d", http.StatusUnauthorized)
		refused.Fix = "write a new token into the Secret of the spoke's kubeconfig (hub.kubeconfigSecret of the Helm chart)"
		return refused
	case apierrors.IsForbidden(err), apierrors.IsNotFound(err):
		refused.Err = fmt.Errorf("KeyRing %s does not exist there, or the spoke may not read it", h.ring)
		refused.Fix = "run lanyard hub grant at the hub; --hub-keyring-namespace names the namespace of its release"
		return refused
	case errors.As(err, &status):
		unreachable.Err = fmt.Errorf("HTTP %d", status.Status().Code)
	case ctx.Err() != nil:
		unreachable.Err = fmt.Errorf("no answer within %s", probeTimeout)
	case errors.As(err, &transport):
		unreachable.Err = transport.Err
	default:
		unreachable.Err = fmt.Errorf("the answer cannot be read (%T)", err)
	}
	return unreachable
}
