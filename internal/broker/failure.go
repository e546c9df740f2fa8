package broker

import (
	"context"
	"errors"
	"fmt"

	"github.com/spiffe/go-spiffe/v2/spiffeid"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/status"

	"github.com/lanyard-dev/lanyard/auth"
)

// failure returns the error of a failed call to the broker. The error repeats only the status code
// of the broker's answer. Sources: SPIFFE Broker API §4.8, SPIFFE Broker Endpoint §6.
func (b *Broker) failure(ctx context.Context, err error, id spiffeid.ID) error {
	code := status.Code(err)
	failed := &auth.Error{
		Stage: auth.StageTokenRequest, Code: auth.CodeRefused,
		Fix: "have the administrator check that --spiffe-broker-endpoint is a SPIFFE broker, such as SPIRE 1.15.2 or later",
		Err: fmt.Errorf("the SPIFFE broker gives no SVID of %s: %s", id, code),
	}
	other := b.self.refused.Load()
	switch {
	case code == codes.Unavailable && other != nil:
		failed.Code = auth.CodeUnreachable
		failed.Fix = "have the administrator correct --spiffe-broker-id or --spiffe-broker-endpoint"
		failed.Err = fmt.Errorf("who answers at --spiffe-broker-endpoint is %s, which is not --spiffe-broker-id", *other)
	case code == codes.DeadlineExceeded || errors.Is(ctx.Err(), context.DeadlineExceeded):
		failed.Code = auth.CodeUnreachable
		failed.Fix = "have the administrator check that the SPIFFE broker is healthy"
		failed.Err = fmt.Errorf("the SPIFFE broker does not answer for %s within %s", id, callTimeout)
	case ctx.Err() != nil:
		failed.Code = auth.CodeUnreachable
		failed.Err = fmt.Errorf("the call to the SPIFFE broker was given up: %w", context.Cause(ctx))
	case code == codes.Unavailable && b.connection.GetState() != connectivity.Ready:
		failed.Code = auth.CodeUnreachable
		failed.Fix = "have the administrator check that the SPIFFE broker runs at --spiffe-broker-endpoint, and that both trust each other's SVIDs"
		failed.Err = fmt.Errorf("no connection to the SPIFFE broker for %s", id)
	case code == codes.PermissionDenied:
		failed.Code = auth.CodeProofDenied
		failed.Fix = fixEntry(id) + ", and allow lanyard-controller's own SPIFFE ID to ask for it (in SPIRE: brokers of the agent, and the verb impersonate-via-spire in RBAC)"
	case code == codes.NotFound:
		// This program has already seen the object in the cluster, so the object exists. Either the
		// broker is not allowed to read the object, or the broker has not seen the object yet.
		// CodeSubjectNotFound would be wrong: the caller would wait until the object is created.
		failed.Code = auth.CodeProofDenied
		failed.Fix = "have the administrator let the SPIFFE broker read objects of this kind; nothing, if the object is new"
		failed.Err = fmt.Errorf("the SPIFFE broker does not find the object of %s", id)
	case code == codes.ResourceExhausted:
		failed.Code = auth.CodeThrottled
		failed.Fix = "wait, or have the administrator raise the limits of the SPIFFE broker"
	case code == codes.Unauthenticated:
		failed.Code = auth.CodeUnavailable
		failed.Fix = "have the administrator check that the SPIFFE broker trusts the SVID that lanyard-controller has from the SPIFFE Workload API"
	case code == codes.Unavailable:
		failed.Code = auth.CodeUnavailable
		failed.Fix = "wait, or have the administrator check that the SPIFFE broker is healthy: it starts, or sheds load"
	case code == codes.Internal, code == codes.Unknown, code == codes.Aborted, code == codes.DataLoss:
		failed.Code = auth.CodeUnavailable
		failed.Fix = "have the administrator look for the cause in the log of the SPIFFE broker"
	}
	return failed
}
