package access

import (
	"errors"

	"github.com/lanyard-dev/lanyard/api/meta"
	"github.com/lanyard-dev/lanyard/auth/endpoint"
	"github.com/lanyard-dev/lanyard/internal/artifact/origin"
	"github.com/lanyard-dev/lanyard/internal/controller/object"
)

// Caller returns how the server at the other end of conn is asked with the login, for the texts of
// errors.
func Caller(conn *Connection, login Login) origin.Caller {
	caller := origin.Caller{Anonymous: login.Identity == nil, Proxy: conn.Proxy()}
	if caller.Anonymous {
		caller.Provider = endpoint.ProviderOf(conn.Host())
	}
	return caller
}

// ExplainOrigin explains the failures of the servers that artifacts come from. unreachable and
// refused are the reasons of the kind's server.
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
	default: // 401, 403, 404, and what is no registry; never stalled, since the controller does not learn when a server is mended
		f.Reason = refused
	}
	return f, true
}
