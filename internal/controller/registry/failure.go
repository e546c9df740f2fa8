package registry

import (
	"context"
	"errors"

	"github.com/lanyard-dev/lanyard/api/meta"
	"github.com/lanyard-dev/lanyard/internal/artifact/oci"
	"github.com/lanyard-dev/lanyard/internal/controller/source"
)

// Explain knows the failures of registries (source.Kind).
func Explain(err error) (source.Failure, bool) {
	if errors.Is(err, context.DeadlineExceeded) {
		return source.TimedOut(meta.ReasonRegistryUnreachable, err), true
	}
	if _, ok := errors.AsType[*PullSecretsError](err); ok {
		return source.Failure{Reason: meta.ReasonSecretRefused}, true
	}
	if failed, ok := errors.AsType[*oci.Error](err); ok {
		reason, stalled := reasonOf(failed.Code)
		return source.Failure{Reason: reason, Stalled: stalled, RetryAfter: failed.RetryAfter}, true
	}
	return source.Failure{}, false
}

func reasonOf(code oci.Code) (reason string, stalled bool) {
	switch code {
	case oci.CodeInvalidURL:
		return meta.ReasonInvalidURL, true
	case oci.CodeInvalidReference:
		return meta.ReasonInvalidSpec, true
	case oci.CodeUnreachable, oci.CodeThrottled, oci.CodeServer:
		return meta.ReasonRegistryUnreachable, false
	case oci.CodeTagNotFound, oci.CodeNoMatch:
		return meta.ReasonReferenceNotFound, false
	case oci.CodeDigestMismatch, oci.CodeTruncated:
		return meta.ReasonDigestMismatch, false
	case oci.CodeUnsupportedMediaType:
		return meta.ReasonLayerNotFound, false
	case oci.CodeTooLarge:
		return meta.ReasonArchiveRefused, false
	default: // 401, 403, 404, and what is no registry
		return meta.ReasonRegistryRefused, false
	}
}
