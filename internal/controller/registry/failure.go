package registry

import (
	"errors"

	"github.com/lanyard-dev/lanyard/api/meta"
	"github.com/lanyard-dev/lanyard/internal/controller/object"
	"github.com/lanyard-dev/lanyard/internal/controller/source"
)

// Explain knows the failures of registries (source.Kind.Explain).
func Explain(err error) (object.Failure, bool) {
	if _, ok := errors.AsType[*PullSecretsError](err); ok {
		return object.Failure{Reason: meta.ReasonSecretRefused}, true
	}
	return source.ExplainOrigin(err, meta.ReasonRegistryUnreachable, meta.ReasonRegistryRefused)
}
