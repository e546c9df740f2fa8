package local

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/lanyard-dev/lanyard/api/meta"
	"github.com/lanyard-dev/lanyard/api/toolkit/v1alpha1"
	"github.com/lanyard-dev/lanyard/internal/kinds"
	"github.com/lanyard-dev/lanyard/internal/report"
)

// patience is how long Settle waits for the next change of an object before it gives up. It is
// longer than the pauses between the controller's first retries.
const patience = 30 * time.Second

// listInterval is the pause between two lists of all objects. A shorter pause would take processor
// time from the programs that make the objects ready.
const listInterval = 200 * time.Millisecond

// Settle waits until every object in the report has its expected result. It gives up when no object
// has changed for 30 seconds. In both cases, it returns the rows of the report at that time. If
// progress is not nil, Settle calls it when the number of rows with the expected result changes.
// progress gets this number and the number of all rows. If the control plane or a program ends,
// Settle returns an error.
func (c *Cluster) Settle(ctx context.Context, progress func(settled, total int)) ([]report.Row, error) {
	var rows []report.Row
	var changed time.Time
	reported := -1
	err := c.watch(ctx, func(objects []report.Object, now time.Time) bool {
		latest := report.All(objects)
		if changed.IsZero() || !reflect.DeepEqual(latest, rows) {
			rows, changed = latest, now
		}
		settled := report.CountOK(rows)
		if settled != reported && progress != nil {
			reported = settled
			progress(settled, len(rows))
		}
		return settled == len(rows) || now.Sub(changed) > patience
	})
	if err != nil {
		return rows, fmt.Errorf("wait for the objects: %w", err)
	}
	return rows, nil
}

// Confirm requests one more reconciliation of every object, and returns the objects' rows
// afterwards. These rows show whether refused objects stay refused.
func (c *Cluster) Confirm(ctx context.Context) ([]report.Row, error) {
	objects, err := report.List(ctx, c.client, kinds.All(), "")
	if err != nil {
		return nil, err
	}
	request := time.Now().UTC().Format(time.RFC3339Nano)
	for _, o := range objects {
		patch := fmt.Appendf(nil, `{"metadata":{"annotations":{%q:%q}}}`, meta.ReconcileRequestedAnnotation, request)
		if err := c.client.Patch(ctx, o.Resource, client.RawPatch(types.MergePatchType, patch),
			client.FieldOwner(FieldManager)); err != nil {
			return nil, fmt.Errorf("ask for a reconciliation of %s %s/%s: %w", o.Kind.Kind, o.GetNamespace(), o.GetName(), err)
		}
	}
	var rows []report.Row
	err = c.watch(ctx, func(objects []report.Object, _ time.Time) bool {
		rows = report.All(objects)
		return !slices.ContainsFunc(objects, func(o report.Object) bool {
			return !o.Suspended() && o.GetStatus().LastHandledReconcileAt != o.GetAnnotations()[meta.ReconcileRequestedAnnotation]
		})
	})
	if err != nil {
		return rows, fmt.Errorf("wait for one more reconciliation: %w", err)
	}
	return rows, nil
}

// watch lists the objects again and again, and calls a function with them. It stops when the
// function returns true, when a part of the cluster ends, or when ctx ends.
func (c *Cluster) watch(ctx context.Context, look func([]report.Object, time.Time) bool) error {
	return poll(ctx, listInterval, func(ctx context.Context) (bool, error) {
		if err := c.Err(); err != nil {
			return false, err
		}
		objects, err := report.List(ctx, c.client, kinds.All(), "")
		if err != nil {
			return false, err
		}
		return look(objects, time.Now()), nil
	})
}

// Err returns nil while the control plane and all programs run. Otherwise the error says how the
// control plane or a program ended.
func (c *Cluster) Err() error {
	if err := c.plane.Err(); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, p := range c.programs {
		if err := p.Err(); err != nil {
			return err
		}
	}
	return nil
}

// CheckArtifacts fetches every artifact from the URL in its object's status. It compares the
// artifact with the digest and size in the status. For an artifact of a registry, it also compares
// the revision with the pushed digest. It returns the number of artifacts, and joins all errors.
func (c *Cluster) CheckArtifacts(ctx context.Context) (checked int, err error) {
	objects, err := report.List(ctx, c.client, kinds.All(), "")
	if err != nil {
		return 0, err
	}
	client := directClient()
	defer client.CloseIdleConnections()
	var errs []error
	for _, o := range objects {
		if o.Artifact() == nil {
			continue
		}
		checked++
		err := checkArtifact(ctx, client, o.Artifact())
		if o.Kind.Server == kinds.Registry && err == nil {
			err = c.checkRevision(o)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("artifact of %s %s/%s: %w", o.Kind.Kind, o.GetNamespace(), o.GetName(), err))
		}
	}
	return checked, errors.Join(errs...)
}

func checkArtifact(ctx context.Context, client *http.Client, a *v1alpha1.Artifact) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, a.URL, nil)
	if err != nil {
		// Omit the error's text, which has the URL: whoever knows the URL can read the artifact.
		return errors.New("status.artifact.url is not a URL")
	}
	res, err := client.Do(req)
	if err != nil {
		return fmt.Errorf("it cannot be fetched: %w", errors.Unwrap(err))
	}
	defer func() { _ = res.Body.Close() }()
	if res.StatusCode != http.StatusOK {
		return fmt.Errorf("it cannot be fetched: HTTP %d", res.StatusCode)
	}
	hash := sha256.New()
	size, err := io.Copy(hash, res.Body)
	if err != nil {
		return fmt.Errorf("it cannot be fetched: %w", err)
	}
	if digest := "sha256:" + hex.EncodeToString(hash.Sum(nil)); digest != a.Digest || size != a.Size {
		return fmt.Errorf("it is %s of %d bytes, the status says %s of %d bytes", digest, size, a.Digest, a.Size)
	}
	return nil
}

// checkRevision compares an artifact's revision with the digest that was pushed under the tag in
// spec.ref. If nothing was pushed under this tag, it returns nil.
func (c *Cluster) checkRevision(o report.Object) error {
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(o.Resource)
	tag, _, wrong := unstructured.NestedString(content, "spec", "ref", "tag")
	if err := errors.Join(err, wrong); err != nil {
		return fmt.Errorf("read spec.ref: %w", err)
	}
	digest, ok := c.cloud.digest(o.Kind.Source(o.Resource), tag)
	if revision := o.Artifact().Revision; ok && !strings.HasSuffix(revision, "@"+digest) {
		return fmt.Errorf("its revision is %s, but %s was pushed", revision, digest)
	}
	return nil
}
