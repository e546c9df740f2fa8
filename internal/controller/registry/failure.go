package registry

import (
	"errors"

	"github.com/lanyard-dev/lanyard/api/meta"
	"github.com/lanyard-dev/lanyard/internal/controller/access"
	"github.com/lanyard-dev/lanyard/internal/controller/object"
)

// Explain returns the failure for an error of a registry or of image pull secrets. Kinds use it to
// implement Explain of source.Kind.
func Explain(err error) (object.Failure, bool) {
	if _, ok := errors.AsType[*PullSecretsError](err); ok {
		return object.Failure{Reason: meta.ReasonSecretRefused}, true
	}
	return access.ExplainOrigin(err, meta.ReasonRegistryUnreachable, meta.ReasonRegistryRefused)
}
