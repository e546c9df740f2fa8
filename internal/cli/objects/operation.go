package objects

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/lanyard-dev/lanyard/api/meta"
	"github.com/lanyard-dev/lanyard/internal/cli/cluster"
	"github.com/lanyard-dev/lanyard/internal/cli/frame"
	"github.com/lanyard-dev/lanyard/internal/plain"
	"github.com/lanyard-dev/lanyard/internal/report"
)

// operation changes objects, and waits until the controller has handled the change.
type operation struct {
	// done is the message that the command prints after an object is patched.
	done string
	// fits reports whether the operation applies to an object: --all selects only such objects, and
	// completion offers only such objects.
	fits func(report.Object) bool
	// check returns an error if the object must not be changed.
	check func(report.Object) error
	// patch is the change of an object, as a JSON merge patch.
	patch []byte
	// look reports how far the controller is with the change.
	look func(report.Object) outlook
}

// outlook is how far the controller is with an object.
type outlook struct {
	// message describes the object's present state; empty if the controller has not handled the
	// change yet.
	message string
	// settled says that the change succeeded. failed says that it failed. If both are false, the
	// controller is still at work.
	settled, failed bool
}

// newOperation adds the flags and the arguments of an operation to c. For each run of c, it makes a
// new operation by calling prepare.
func newOperation(c *cobra.Command, std frame.IO, prepare func() operation) *cobra.Command {
	flags := cluster.Flags{Std: std}
	var all bool
	var timeout time.Duration
	output := frame.OutputFlag(c, frame.Table, frame.Wide, frame.JSON, frame.YAML)
	flags.AddTo(c)
	c.Flags().BoolVar(&all, "all", false, "all objects of the namespace")
	c.Flags().DurationVar(&timeout, "timeout", cluster.DefaultWait, "longest time to wait for the controller; 0 does not wait")
	frame.CompleteNothing(c, "timeout")
	c.Args = func(_ *cobra.Command, args []string) error {
		_, err := cluster.ParseTargets(std.Kinds, args)
		switch {
		case err != nil:
			return err
		case all && len(args) > 0:
			return errors.New("--all and KIND/NAME exclude each other")
		case !all && len(args) == 0:
			return errors.New("name an object, KIND/NAME, or write --all")
		case timeout < 0:
			return errors.New("--timeout: write a duration of at least 0, such as 30s")
		}
		return nil
	}
	c.ValidArgsFunction = flags.CompleteTargets(func(o report.Object) bool { return prepare().fits(o) })
	c.RunE = flags.WithCluster(func(ctx context.Context, cluster *cluster.Client, args []string) error {
		r := run{cluster: cluster, operation: prepare(), progress: std.Err}
		targets, err := r.targets(ctx, args)
		if err != nil {
			return err
		}
		if len(targets) == 0 {
			_, _ = fmt.Fprintln(std.Err, "There is nothing to do in namespace "+cluster.Namespace+".")
		}
		objects, err := r.perform(ctx, targets, timeout)
		if err != nil && len(objects) == 0 {
			return err
		}
		return errors.Join(err, frame.WriteRows(std.Out, output, report.All(objects)))
	})
	return c
}

// run is one run of an operation.
type run struct {
	operation

	cluster  *cluster.Client
	progress io.Writer
}

// targets returns the objects that the arguments name. Without arguments, it returns the objects in
// the namespace that fit the operation.
func (r *run) targets(ctx context.Context, args []string) ([]cluster.Target, error) {
	if len(args) > 0 {
		return cluster.ParseTargets(r.cluster.Kinds, args)
	}
	objects, err := r.cluster.Objects(ctx)
	if err != nil {
		return nil, err
	}
	if len(objects) == 0 {
		return nil, fmt.Errorf("there is no object in namespace %s; -n names another namespace", r.cluster.Namespace)
	}
	var targets []cluster.Target
	for _, o := range objects {
		if r.fits(o) {
			targets = append(targets, cluster.TargetOf(o))
		}
	}
	return targets, nil
}

// perform changes the objects. Then it waits for them, with one timeout for all. It returns the
// objects as it has read them last. If there is only one object, the error is that of the object.
// Otherwise the error says how many objects failed.
func (r *run) perform(ctx context.Context, targets []cluster.Target, timeout time.Duration) (objects []report.Object, err error) {
	for _, t := range targets {
		if err := r.change(ctx, t); err != nil {
			return nil, err
		}
	}
	deadline := time.Now().Add(timeout)
	failed := 0
	for _, t := range targets {
		o, err := r.wait(ctx, t, deadline, timeout)
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		if o.Resource != nil {
			objects = append(objects, o)
		}
		switch {
		case err == nil:
		case len(targets) == 1:
			return objects, err
		default:
			failed++
			_, _ = fmt.Fprintln(r.progress, err)
		}
	}
	if failed > 0 {
		return objects, fmt.Errorf("%d of %d objects failed", failed, len(targets))
	}
	return objects, nil
}

// change patches an object.
func (r *run) change(ctx context.Context, t cluster.Target) error {
	o, err := t.Read(ctx, r.cluster)
	if err != nil {
		return err
	}
	if err := r.check(o); err != nil {
		return err
	}
	if err := r.cluster.Patch(ctx, o.Resource, client.RawPatch(types.MergePatchType, r.patch), client.FieldOwner(frame.Name)); err != nil {
		return r.cluster.Failed(fmt.Errorf("change %s: %w", t, err))
	}
	r.say(t, r.done)
	return nil
}

// wait reads an object again and again until the controller has handled the change. It prints each
// new message. With a timeout of 0, it reads the object once.
func (r *run) wait(ctx context.Context, t cluster.Target, deadline time.Time, timeout time.Duration) (report.Object, error) {
	said := ""
	for {
		o, err := t.Read(ctx, r.cluster)
		if err != nil || timeout == 0 {
			return o, err
		}
		now := r.look(o)
		if now.failed {
			return o, fmt.Errorf("%s failed: %s", t, plain.Text(now.message))
		}
		if now.message != said && now.message != "" {
			said = now.message
			r.say(t, said)
		}
		switch {
		case now.settled:
			return o, nil
		case time.Now().After(deadline) && said == "":
			return o, fmt.Errorf("%s: the controller did nothing for %s; is it running, and does its shard select the object?", t, timeout)
		case time.Now().After(deadline):
			// The reason was printed already, by r.say.
			return o, fmt.Errorf("%s is not ready after %s", t, timeout)
		}
		if err := cluster.Pause(ctx); err != nil {
			return o, err
		}
	}
}

// say writes progress.
func (r *run) say(t cluster.Target, message string) {
	_, _ = fmt.Fprintf(r.progress, "%s: %s\n", t, plain.Text(message)) // the command continues if progress cannot be written
}

// readiness returns the outlook of a change. The change has succeeded when the controller has
// handled the object's present spec, and the object is ready.
func readiness(o report.Object) outlook {
	ready := readyOf(o)
	switch {
	case o.Suspended():
		return outlook{message: "it was suspended meanwhile", failed: true}
	case ready == nil:
		return outlook{}
	}
	return outlook{
		message: ready.Reason + ": " + ready.Message,
		settled: ready.Status == metav1.ConditionTrue,
		failed:  apimeta.IsStatusConditionTrue(o.GetStatus().Conditions, meta.ConditionStalled),
	}
}

// readyOf returns the condition Ready of an object's present spec, or nil if the controller has not
// handled this spec.
func readyOf(o report.Object) *metav1.Condition {
	status := o.GetStatus()
	if status.ObservedGeneration != o.GetGeneration() {
		return nil
	}
	return apimeta.FindStatusCondition(status.Conditions, meta.ConditionReady)
}
