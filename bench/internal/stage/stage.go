// Package stage starts a local cloud and a cluster for a measurement.
package stage

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/lanyard-dev/lanyard/examples"
	"github.com/lanyard-dev/lanyard/internal/local"
)

// Start starts the demonstration's cloud, and a cluster of the program at controlPlane, in a new
// temporary folder. The functions in change change the cloud's options before. The function stop
// ends both and removes the folder. After an error nothing is left.
func Start(ctx context.Context, controlPlane string, change ...func(*local.CloudOptions)) (_ *local.Cluster, stop func() error, err error) {
	config, err := local.ParseCloud("cloud.yaml", examples.Cloud())
	if err != nil {
		return nil, nil, err
	}
	options := local.CloudOptions{Config: config}
	for _, change := range change {
		change(&options)
	}
	var steps []func() error
	stop = func() (err error) {
		for _, step := range slices.Backward(steps) {
			err = errors.Join(err, step())
		}
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, stop())
		}
	}()
	dir, err := os.MkdirTemp("", "lanyard-bench-")
	if err != nil {
		return nil, nil, err
	}
	steps = append(steps, func() error { return os.RemoveAll(dir) })
	options.Dir = filepath.Join(dir, "world")
	cloud, err := local.StartCloud(ctx, options)
	if err != nil {
		return nil, nil, err
	}
	steps = append(steps, cloud.Stop)
	cluster, err := local.StartCluster(ctx, local.ClusterOptions{Cloud: cloud, ControlPlane: controlPlane})
	if err != nil {
		return nil, nil, err
	}
	steps = append(steps, func() error {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
		defer cancel()
		return cluster.Stop(ctx)
	})
	return cluster, stop, nil
}
