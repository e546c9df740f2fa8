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
		f := failure(failed.Code)
		f.RetryAfter = failed.RetryAfter
		return f, true
	}
	return source.Failure{}, false
}

func failure(code oci.Code) source.Failure {
	switch code {
	case oci.CodeInvalidURL:
		return source.Failure{Reason: meta.ReasonInvalidURL, Stalled: true}
	case oci.CodeInvalidReference:
		return source.Failure{Reason: meta.ReasonInvalidSpec, Stalled: true}
	case oci.CodeUnreachable, oci.CodeThrottled, oci.CodeServer:
		return source.Failure{Reason: meta.ReasonRegistryUnreachable}
	case oci.CodeTagNotFound, oci.CodeNoMatch:
		return source.Failure{Reason: meta.ReasonReferenceNotFound, AtInterval: true}
	case oci.CodeDigestMismatch, oci.CodeTruncated:
		return source.Failure{Reason: meta.ReasonDigestMismatch}
	case oci.CodeUnsupportedMediaType:
		return source.Failure{Reason: meta.ReasonLayerNotFound, AtInterval: true}
	case oci.CodeTooLarge:
		return source.Failure{Reason: meta.ReasonArchiveRefused, AtInterval: true}
	default: // 401, 403, 404, and what is no registry
		return source.Failure{Reason: meta.ReasonRegistryRefused}
	}
}
