// Package stage runs a measurement in a cluster of its own, with a local cloud.
package stage

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"k8s.io/client-go/kubernetes"

	"github.com/lanyard-dev/lanyard/examples"
	"github.com/lanyard-dev/lanyard/internal/local"
)

// awaitTimeout bounds each wait, unless the caller's context ends earlier.
const awaitTimeout = 30 * time.Minute

// World is the cluster of a measurement.
type World struct {
	*local.Cluster

	// Typed is the administrator's client, for requests that Client() cannot make.
	Typed *kubernetes.Clientset
	// Direct is an HTTP client without a proxy, for programs on this machine.
	Direct *http.Client

	programs string
}

// Run starts the local cloud of package examples and a cluster, calls measure, and then stops the
// cluster and the cloud. The argument programs is a folder. It must contain the control plane and
// Lanyard's programs. Before the cloud starts, Run calls change, which may adjust the cloud's
// options.
//
// Run makes a temporary folder, which contains all logs. If Run fails and ctx has not ended, Run
// keeps this folder, and the error contains the folder's path.
func Run(
	ctx context.Context, programs string, change func(*local.CloudOptions), measure func(*World) error,
) (err error) {
	config, err := local.ParseCloud("cloud.yaml", examples.Cloud())
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "lanyard-bench-")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil && ctx.Err() == nil {
			err = fmt.Errorf("%w (the logs are in %s)", err, dir)
			return
		}
		err = errors.Join(err, os.RemoveAll(dir))
	}()
	options := local.CloudOptions{Config: config, Dir: filepath.Join(dir, "world")}
	change(&options)
	cloud, err := local.StartCloud(ctx, options)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, cloud.Stop()) }()
	cluster, err := local.StartCluster(ctx, local.ClusterOptions{
		Cloud: cloud, ControlPlane: filepath.Join(programs, "controlplane"),
	})
	if err != nil {
		return err
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
		defer cancel()
		err = errors.Join(err, cluster.Stop(ctx))
	}()
	typed, err := kubernetes.NewForConfig(cluster.Config())
	if err != nil {
		return err
	}
	direct := &http.Client{Transport: &http.Transport{}, Timeout: time.Minute}
	defer direct.CloseIdleConnections()
	return measure(&World{Cluster: cluster, Typed: typed, Direct: direct, programs: programs})
}

// Binary returns the path of a program.
func (w *World) Binary(name string) string { return filepath.Join(w.programs, name) }

// Await calls a function until it succeeds, with a pause after each call. Await fails early if a
// program of the cluster has ended.
func (w *World) Await(ctx context.Context, pause time.Duration, look func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, awaitTimeout)
	defer cancel()
	for {
		if err := w.Err(); err != nil {
			return err
		}
		err := look(ctx)
		if err == nil {
			return nil
		}
		if ended := Sleep(ctx, pause); ended != nil {
			return errors.Join(err, ended)
		}
	}
}

// Sleep waits for a duration. If ctx ends first, Sleep returns the cause.
func Sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
