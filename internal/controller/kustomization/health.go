package kustomization

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/fluxcd/pkg/ssa"
	"golang.org/x/sync/errgroup"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/lanyard-dev/lanyard/api/meta"
	"github.com/lanyard-dev/lanyard/api/toolkit/v1alpha1"
	"github.com/lanyard-dev/lanyard/internal/apply"
	"github.com/lanyard-dev/lanyard/internal/controller/object"
	"github.com/lanyard-dev/lanyard/internal/health"
)

// target is an object that must be healthy.
type target struct {
	apply.Entry

	// vanishes says that the object is a Job that is deleted some time after its end. Then its absence
	// is healthy.
	vanishes bool
}

// watch is what is known of the health of a Kustomization's objects.
type watch struct {
	// targets are the objects that must be healthy: those of spec.healthChecks, or all applied objects.
	targets []target
	// healthy has the versions in which targets were healthy. So they need not be read again.
	healthy *apply.Versions
	// pending are the targets that were not known to be healthy at the last time.
	pending []target
	// since is when the wait for healthy objects began; zero if all are healthy.
	since time.Time
	// compared is when the objects were last compared with the manifests.
	compared time.Time
}

// waits reports whether the program waits for healthy objects, and need not compare the objects with
// the manifests now.
func (w watch) waits(o *v1alpha1.Kustomization) bool {
	return !w.since.IsZero() && len(w.pending) > 0 && time.Since(w.compared) < o.Spec.Interval.Duration && !object.RetryNow(o)
}

// readers is how many objects of one Kustomization are read at once.
const readers = 4

// watchesHealth reports whether a Kustomization asks for healthy objects.
func watchesHealth(s v1alpha1.KustomizationSpec) bool { return s.Wait || len(s.HealthChecks) > 0 }

// checksOf returns the expressions of spec.healthCheckExprs.
func checksOf(s v1alpha1.KustomizationSpec) ([]health.Check, error) {
	var checks []health.Check
	for i, e := range s.HealthCheckExprs {
		field := fmt.Sprintf("spec.healthCheckExprs[%d]", i)
		group, err := schema.ParseGroupVersion(e.APIVersion)
		if err != nil || group.Group == "" && group.Version == "" {
			return nil, object.Invalid(field+".apiVersion", "write a group and a version, such as bitnami.com/v1alpha1", "%.317q has another form", e.APIVersion)
		}
		if e.Current == "" {
			return nil, object.Invalid(field+".current", "write an expression that is true for healthy objects", "it is empty")
		}
		if max(len(e.Current), len(e.InProgress), len(e.Failed)) > maxExpression {
			return nil, object.Invalid(field, "write shorter expressions", "an expression has more than %d bytes", maxExpression)
		}
		if slices.ContainsFunc(checks, func(c health.Check) bool { return c.Group == group.Group && c.Kind == e.Kind }) {
			return nil, object.Invalid(field, "keep one of the two entries", "an earlier entry has the same API group and kind")
		}
		checks = append(checks, health.Check{Group: group.Group, Kind: e.Kind, InProgress: e.InProgress, Failed: e.Failed, Current: e.Current})
	}
	return checks, nil
}

// maxExpression bounds a CEL expression, in bytes.
const maxExpression = 4096

// listed returns the objects of spec.healthChecks.
func listed(o *v1alpha1.Kustomization) ([]target, error) {
	var targets []target
	for i, c := range o.Spec.HealthChecks {
		version, err := schema.ParseGroupVersion(c.APIVersion)
		if err != nil {
			return nil, object.Invalid(fmt.Sprintf("spec.healthChecks[%d].apiVersion", i), "write a group and a version, such as apps/v1", "%w", err)
		}
		e, err := apply.NewEntry(version.WithKind(c.Kind), cmp.Or(c.Namespace, o.Namespace), c.Name)
		if err != nil {
			return nil, object.Invalid(fmt.Sprintf("spec.healthChecks[%d]", i), "correct apiVersion, kind, namespace and name", "%w", err)
		}
		targets = append(targets, target{Entry: e})
	}
	return targets, nil
}

// targets returns the objects that must be healthy: those of spec.healthChecks or, with spec.wait, all
// that were applied. The Kustomization itself is not among them.
func (r *run) targets(manifests []*unstructured.Unstructured, result *apply.Result) []target {
	targets := slices.Clone(r.plan.listed)
	if r.plan.wait {
		targets = applied(manifests, result)
	}
	return slices.DeleteFunc(targets, r.isSelf)
}

// applied returns the objects that were applied and not skipped.
func applied(manifests []*unstructured.Unstructured, result *apply.Result) []target {
	vanishing := map[apply.Entry]bool{}
	for _, o := range manifests {
		if health.IsJob(o) {
			_, vanishing[apply.EntryOf(o)], _ = unstructured.NestedFieldNoCopy(o.Object, "spec", "ttlSecondsAfterFinished")
		}
	}
	var targets []target
	for _, c := range result.Changes {
		if c.Action != ssa.SkippedAction {
			targets = append(targets, target{Entry: c.Entry, vanishes: vanishing[c.Entry]})
		}
	}
	return targets
}

// isSelf reports whether a target is the Kustomization itself, which cannot wait for itself.
func (r *run) isSelf(t target) bool {
	self := schema.GroupKind{Group: v1alpha1.GroupVersion().Group, Kind: v1alpha1.KustomizationKind}
	return t.Key.GroupKind == self && t.Key.Namespace == r.owner.Namespace && t.Key.Name == r.owner.Name
}

// seen remembers the version of an object that is healthy. Several goroutines call seen.
func (r *run) seen(o *unstructured.Unstructured) {
	if !r.plan.wait {
		return
	}
	if state, known := r.judge.Quick(o); known && state.State == health.Current {
		r.remember(o)
	}
}

func (r *run) remember(o *unstructured.Unstructured) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.watch.healthy.Add(o)
}

// awaitHealth returns nil if the targets are healthy. Otherwise the error is a [*waitingError], an
// [*unhealthyError], or an error of a request.
func (r *run) awaitHealth(ctx context.Context, targets []target) error {
	w := &r.watch
	w.pending = targets // if they cannot be read, look at all of them the next time
	pending, err := r.unhealthy(ctx, targets)
	if err != nil {
		return err
	}
	w.pending = nil
	for _, p := range pending {
		w.pending = append(w.pending, p.target)
	}
	if len(pending) == 0 {
		return nil
	}
	if w.since.IsZero() || object.RetryNow(r.o) {
		w.since = time.Now()
	}
	waited := time.Since(w.since)
	hopeless := slices.ContainsFunc(pending, func(p unhealthy) bool { return p.status.State == health.Failed })
	if hopeless || waited >= timeoutOf(r.o) {
		return &unhealthyError{pending}
	}
	return &waitingError{objects: pending, pause: min(pauseOf(waited), max(timeoutOf(r.o)-waited, shortestPause))}
}

// Bounds of the pause between two looks at objects that are not healthy yet.
const (
	shortestPause = time.Second
	longestPause  = 5 * time.Second
)

// pauseOf returns the pause until the next look: a fifth of the time that has been waited.
func pauseOf(waited time.Duration) time.Duration {
	return min(max(waited/5, shortestPause), longestPause)
}

// unhealthy is an object that is not healthy.
type unhealthy struct {
	target

	status health.Status
}

// unhealthy reads objects, and returns those that are not healthy, in the order of the targets.
func (r *run) unhealthy(ctx context.Context, targets []target) ([]unhealthy, error) {
	states := make([]health.Status, len(targets))
	reads, ctx := errgroup.WithContext(ctx)
	reads.SetLimit(readers)
	for i, t := range targets {
		reads.Go(func() (err error) {
			states[i], err = r.look(ctx, t)
			return err
		})
	}
	if err := reads.Wait(); err != nil {
		return nil, err
	}
	var found []unhealthy
	for i, t := range targets {
		if states[i].State != health.Current {
			found = append(found, unhealthy{t, states[i]})
		}
	}
	return found, nil
}

// look reads an object, and returns its status.
func (r *run) look(ctx context.Context, t target) (health.Status, error) {
	o, err := r.applier.Read(ctx, t.Entry)
	refused, isRefused := errors.AsType[*apply.Error](err)
	switch {
	case isRefused && !refused.Temporary():
		return health.Status{State: health.Failed, Message: refused.Error()}, nil
	case err != nil:
		return health.Status{}, err
	case o == nil && t.vanishes:
		return health.Status{State: health.Current}, nil
	case o == nil:
		return health.Status{State: health.InProgress, Message: "the object does not exist"}, nil
	}
	found, err := r.judge.Status(ctx, o)
	if err == nil && r.plan.wait && found.State == health.Current {
		r.remember(o)
	}
	return found, err
}

// waitingError says which objects are not healthy yet.
type waitingError struct {
	objects []unhealthy
	pause   time.Duration // until the next look
}

func (e *waitingError) Error() string {
	return "waiting until these objects are healthy: " + listOf(e.objects)
}

// unhealthyError says which objects are not healthy, after the wait or because one has failed.
type unhealthyError struct{ objects []unhealthy }

func (e *unhealthyError) Error() string {
	return "these objects are not healthy: " + listOf(e.objects) + "; look at their status and their events, or raise spec.timeout"
}

const (
	// maxUnhealthy is how many objects an error describes.
	maxUnhealthy = 5
	// maxSays is how much of an object's status an error repeats, in bytes.
	maxSays = 300
)

// listOf describes objects for people. Failed objects come first.
func listOf(objects []unhealthy) string {
	var failed, others []unhealthy
	for _, u := range objects {
		if u.status.State == health.Failed {
			failed = append(failed, u)
		} else {
			others = append(others, u)
		}
	}
	var texts []string
	for i, u := range slices.Concat(failed, others) {
		if i == maxUnhealthy {
			texts = append(texts, fmt.Sprintf("%d more", len(objects)-maxUnhealthy))
			break
		}
		text := u.String()
		if says := u.status.Message; says != "" {
			text += " (" + strings.ToValidUTF8(says[:min(len(says), maxSays)], "") + ")"
		}
		texts = append(texts, text)
	}
	return strings.Join(texts, ", ")
}

// reportHealth sets the condition Healthy.
func (k *kind) reportHealth(o *v1alpha1.Kustomization, outcome object.Outcome) {
	_, waits := errors.AsType[*waitingError](outcome.Err)
	_, unhealthy := errors.AsType[*unhealthyError](outcome.Err)
	set := func(value metav1.ConditionStatus, reason, message string) {
		object.SetCondition(o, meta.ConditionHealthy, value, reason, message)
	}
	switch {
	case !watchesHealth(o.Spec):
		object.RemoveCondition(o, meta.ConditionHealthy)
	case outcome.Suspended:
		if last := apimeta.FindStatusCondition(o.Status.Conditions, meta.ConditionHealthy); last != nil {
			set(last.Status, last.Reason, last.Message) // of this generation, too
		}
	case waits:
		set(metav1.ConditionUnknown, meta.ReasonProgressing, outcome.Message)
	case unhealthy:
		set(metav1.ConditionFalse, meta.ReasonHealthCheckFailed, outcome.Message)
	case outcome.Err != nil:
		set(metav1.ConditionUnknown, outcome.Reason, "the objects are not checked; look at the condition Ready")
	default:
		known, _ := k.Records.get(o)
		set(metav1.ConditionTrue, meta.ReasonSucceeded, healthyText(len(known.watch.targets)))
	}
}

// healthyText is the message of Healthy when all objects are healthy.
func healthyText(objects int) string {
	if objects == 1 {
		return "1 object is healthy"
	}
	return fmt.Sprintf("%d objects are healthy", objects)
}
