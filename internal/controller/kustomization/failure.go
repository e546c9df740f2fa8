package kustomization

import (
	"context"
	"errors"

	"github.com/lanyard-dev/lanyard/api/meta"
	"github.com/lanyard-dev/lanyard/api/toolkit/v1alpha1"
	"github.com/lanyard-dev/lanyard/auth/share"
	"github.com/lanyard-dev/lanyard/internal/apply"
	"github.com/lanyard-dev/lanyard/internal/artifact/content"
	"github.com/lanyard-dev/lanyard/internal/controller/object"
	"github.com/lanyard-dev/lanyard/internal/desired"
	"github.com/lanyard-dev/lanyard/internal/health"
	"github.com/lanyard-dev/lanyard/internal/keyservice"
	"github.com/lanyard-dev/lanyard/internal/kustomize"
	"github.com/lanyard-dev/lanyard/internal/sandbox"
)

// buildError is an error of a build.
type buildError struct {
	err      *kustomize.Error
	variable bool // the input has variables of ConfigMaps or Secrets, which nobody watches
}

func (e *buildError) Error() string { return e.err.Error() }

func (e *buildError) Unwrap() error { return e.err }

// Explain implements object.Definition. A failure is Stalled if only a change of the object or of
// its source helps. Such a change wakes the object.
func (*kind) Explain(err error) (object.Failure, bool) {
	if f, ok := object.TimedOut(err, meta.ReasonApplyFailed); ok {
		return f, true
	}
	if _, ok := errors.AsType[*desired.InventoryError](err); ok {
		return object.Failure{Reason: meta.ReasonApplyRefused}, true
	}
	if _, ok := errors.AsType[*dependencyError](err); ok {
		return object.Failure{Reason: meta.ReasonDependencyNotReady}, true
	}
	if _, ok := errors.AsType[*sourceError](err); ok {
		return object.Failure{Reason: meta.ReasonSourceNotReady}, true
	}
	if failed, ok := errors.AsType[*content.Error](err); ok {
		switch failed.Reason {
		case content.ReasonRefused, content.ReasonTooLarge:
			return object.Failure{Reason: meta.ReasonArtifactRefused, Stalled: true}, true
		default:
			return object.Failure{Reason: meta.ReasonArtifactUnavailable}, true
		}
	}
	if failed, ok := errors.AsType[*buildError](err); ok {
		// A build that was too large may have been too slow only because the machine was busy.
		again, reason := failed.variable || failed.err.Reason == kustomize.ReasonTooLarge, meta.ReasonBuildFailed
		if failed.err.Reason == kustomize.ReasonDecryption {
			reason = meta.ReasonDecryptionFailed
		}
		return object.Failure{Reason: reason, Stalled: !again, AtInterval: again}, true
	}
	if failed, ok := errors.AsType[*keyservice.Error](err); ok { // nobody watches the clouds, so never Stalled
		return object.Failure{Reason: meta.ReasonDecryptionFailed, AtInterval: !failed.Temporary()}, true
	}
	_, unavailable := errors.AsType[*sandbox.Error](err)
	_, crowded := errors.AsType[*share.NoPlaceError](err)
	if unavailable || crowded {
		return object.Failure{Reason: meta.ReasonBuildUnavailable}, true
	}
	if _, ok := errors.AsType[*kubeConfigError](err); ok { // nobody watches Secrets, so never Stalled
		return object.Failure{Reason: meta.ReasonKubeConfigRefused}, true
	}
	if _, ok := errors.AsType[*desired.VariablesError](err); ok {
		return object.Failure{Reason: meta.ReasonSubstitutionFailed}, true
	}
	if waits, ok := errors.AsType[*waitingError](err); ok {
		return object.Failure{Reason: meta.ReasonProgressing, Waiting: true, RetryAfter: waits.pause}, true
	}
	if _, ok := errors.AsType[*unhealthyError](err); ok {
		return object.Failure{Reason: meta.ReasonHealthCheckFailed}, true
	}
	if invalid, ok := errors.AsType[*health.InvalidError](err); ok {
		return object.Failure{Reason: meta.ReasonInvalidSpec, Stalled: true, Message: "spec." + invalid.Error() + "; correct the expression"}, true
	}
	if _, ok := errors.AsType[*terminatingError](err); ok {
		return object.Failure{Reason: meta.ReasonTerminating}, true
	}
	if failed, ok := errors.AsType[*apply.Error](err); ok {
		if failed.Temporary() {
			return object.Failure{Reason: meta.ReasonApplyFailed}, true
		}
		return object.Failure{Reason: meta.ReasonApplyRefused}, true
	}
	return object.Failure{}, false
}

// Report implements object.Kind.
func (k *kind) Report(_ context.Context, o *v1alpha1.Kustomization, outcome object.Outcome) (found string, err error) {
	k.reportHealth(o, outcome)
	k.reportHistory(o, outcome)
	if o.Status.LastAppliedRevision == "" || !outcome.Fulfilled() {
		return "", nil
	}
	return "applied revision " + o.Status.LastAppliedRevision, nil
}
