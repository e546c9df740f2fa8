package kustomization

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/lanyard-dev/lanyard/api/meta"
	"github.com/lanyard-dev/lanyard/api/toolkit/v1alpha1"
	"github.com/lanyard-dev/lanyard/internal/apply"
	"github.com/lanyard-dev/lanyard/internal/controller/object"
)

// maxHistory is how many entries status.history has.
const maxHistory = 5

// attempt is one attempt to apply manifests, which may take several reconciliations.
type attempt struct {
	// digest identifies the manifests; empty if they were not built.
	digest string
	// began is when the attempt began.
	began time.Time
	// originRevision is the revision of the source code; empty if it is not known.
	originRevision string
	// changed is when objects were changed last.
	changed time.Time
}

// digestOf returns the digest of the manifests. If they have values of Secrets, it is the digest of
// what they were built from: otherwise, whoever may read the status could guess short values.
func (r *run) digestOf(manifests []*unstructured.Unstructured) (string, error) {
	sum := sha256.New()
	written := json.NewEncoder(sum) // writes the keys of maps in order
	if r.isSecret() || slices.ContainsFunc(manifests, isSecret) {
		var inline map[string]string
		if post := r.o.Spec.PostBuild; post != nil {
			inline = post.Substitute
		}
		if err := written.Encode([]any{r.plan.reference.Digest, r.plan.spec, r.plan.common, r.variables.Versions, inline}); err != nil {
			return "", err
		}
	} else {
		for _, o := range manifests {
			if err := written.Encode(o.Object); err != nil {
				return "", err
			}
		}
	}
	return "sha256:" + hex.EncodeToString(sum.Sum(nil)), nil
}

func isSecret(o *unstructured.Unstructured) bool { return o.GetKind() == "Secret" }

// resultOf returns the reason that status.history gets. It is empty if the outcome says nothing about
// the manifests, because they were not applied.
func resultOf(outcome object.Outcome) string {
	_, refused := errors.AsType[*apply.Error](outcome.Err)
	_, unhealthy := errors.AsType[*unhealthyError](outcome.Err)
	switch {
	case outcome.Suspended:
		return ""
	case outcome.Err == nil:
		return meta.ReasonSucceeded
	case refused || unhealthy:
		return outcome.Reason
	default:
		return ""
	}
}

// reportHistory changes status.history after an attempt. It changes nothing if nothing is new, so that
// a reconciliation that finds everything in place writes no status.
func (k *kind) reportHistory(o *v1alpha1.Kustomization, outcome object.Outcome) {
	known, ok := k.Records.get(o)
	tried, result := known.attempt, resultOf(outcome)
	if !ok || tried.digest == "" || result == "" {
		return
	}
	metadata := map[string]string{"revision": o.Status.LastAttemptedRevision}
	if tried.originRevision != "" {
		metadata["originRevision"] = tried.originRevision
	}
	history := o.Status.History
	if len(history) > 0 && history[0].Digest == tried.digest && history[0].LastReconciledStatus == result && maps.Equal(history[0].Metadata, metadata) {
		// The times of a status have no fractions of seconds.
		if !history[0].LastReconciled.Time.Before(tried.changed.Truncate(time.Second)) {
			return
		}
	}
	entry := v1alpha1.HistoryEntry{Digest: tried.digest, FirstReconciled: metav1.NewTime(tried.began)}
	if i := slices.IndexFunc(history, func(e v1alpha1.HistoryEntry) bool { return e.Digest == tried.digest }); i >= 0 {
		entry = history[i]
		history = slices.Delete(slices.Clone(history), i, i+1)
	}
	entry.LastReconciled = metav1.Now()
	entry.LastReconciledDuration.Duration = time.Since(tried.began).Round(time.Millisecond)
	entry.LastReconciledStatus = result
	entry.TotalReconciliations++
	entry.Metadata = metadata
	o.Status.History = append([]v1alpha1.HistoryEntry{entry}, history[:min(len(history), maxHistory-1)]...)
}
