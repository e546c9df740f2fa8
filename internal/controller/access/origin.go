package access

import (
	"errors"

	"github.com/lanyard-dev/lanyard/api/meta"
	"github.com/lanyard-dev/lanyard/auth/endpoint"
	"github.com/lanyard-dev/lanyard/internal/artifact/origin"
	"github.com/lanyard-dev/lanyard/internal/controller/object"
)

// Caller describes the login and the proxy of a request, for error texts.
func Caller(conn *Connection, login Login) origin.Caller {
	caller := origin.Caller{Anonymous: login.Identity == nil, Proxy: conn.Proxy()}
	if caller.Anonymous {
		caller.Provider = endpoint.ProviderOf(conn.Host())
	}
	return caller
}

// ExplainOrigin returns the failure to report for a timeout or an [*origin.Error], and false for
// any other error. The caller passes two of the failure's possible reasons, because their names
// differ between the kinds of objects:
//   - unreachable: the server cannot be reached, throttles or fails
//   - refused: the server refuses the request or breaks the protocol
func ExplainOrigin(err error, unreachable, refused string) (object.Failure, bool) {
	if f, ok := object.TimedOut(err, unreachable); ok {
		return f, true
	}
	failed, ok := errors.AsType[*origin.Error](err)
	if !ok {
		return object.Failure{}, false
	}
	f := object.Failure{RetryAfter: failed.RetryAfter}
	switch failed.Code {
	case origin.CodeInvalidURL:
		f.Reason, f.Stalled = meta.ReasonInvalidURL, true
	case origin.CodeInvalidReference:
		f.Reason, f.Stalled = meta.ReasonInvalidSpec, true
	case origin.CodeUnreachable, origin.CodeThrottled, origin.CodeServer:
		f.Reason = unreachable
	case origin.CodeTagNotFound, origin.CodeNoMatch:
		f.Reason, f.AtInterval = meta.ReasonReferenceNotFound, true
	case origin.CodeDigestMismatch, origin.CodeTruncated:
		f.Reason = meta.ReasonDigestMismatch
	case origin.CodeUnsupportedMediaType:
		f.Reason, f.AtInterval = meta.ReasonLayerNotFound, true
	case origin.CodeTooLarge:
		f.Reason, f.AtInterval = meta.ReasonArchiveRefused, true
	case origin.CodeChanged:
		f.Reason = meta.ReasonBucketChanged
	// The default case is for HTTP 401, 403 and 404, and for answers that break the protocol. The
	// object is not stalled but retried, because the controller gets no event when somebody repairs
	// a server.
	default:
		f.Reason = refused
	}
	return f, true
}
