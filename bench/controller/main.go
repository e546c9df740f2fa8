// Command controller measures lanyard-controller beside Flux's source-controller. In each case they
// take turns on the same control plane, the same registry and the same local cloud:
//
//	controller --objects 1000
//
// It prints the table of docs/scale.md in Markdown, and fails when a target is missed. Both
// programs have ten workers, no leader election, and otherwise their own defaults. They run as one
// ServiceAccount that may do everything. This is no test: a busy machine must not fail a build.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/lanyard-dev/lanyard/bench/internal/fleet"
	"github.com/lanyard-dev/lanyard/bench/internal/series"
	"github.com/lanyard-dev/lanyard/bench/internal/stage"
	"github.com/lanyard-dev/lanyard/examples"
	"github.com/lanyard-dev/lanyard/internal/local"
)

// settings are what the run is made of.
type settings struct {
	controlPlane         string
	lanyard, lanyardCRDs string // program and folder
	flux, fluxCRDs       string
	onlyOurs             bool
	only                 string // part of the names of the cases that are measured
	objects              int
	interval, window     time.Duration
}

func main() {
	var s settings
	flag.StringVar(&s.controlPlane, "controlplane", "../bin/controlplane", "the embedded control plane's program")
	flag.StringVar(&s.lanyard, "controller", "../bin/lanyard-controller", "Lanyard's controller")
	flag.StringVar(&s.lanyardCRDs, "crds", "../config/crd", "folder of Lanyard's CRDs")
	flag.StringVar(&s.flux, "flux-controller", "../bin/flux-source-controller", "Flux's source-controller")
	flag.StringVar(&s.fluxCRDs, "flux-crds", "", "folder of its CRDs, config/crd/bases of its module")
	flag.BoolVar(&s.onlyOurs, "only-ours", false, "leave Flux out, and targets that need it")
	flag.StringVar(&s.only, "only", "", "measure only cases with this in their name, such as AWS")
	flag.IntVar(&s.objects, "objects", 1000, "number of OCIRepositories")
	flag.DurationVar(&s.interval, "interval", time.Minute, "interval of each")
	flag.DurationVar(&s.window, "window", 2*time.Minute, "how long a controller is watched at rest")
	flag.Parse()
	series.Main(context.Background(), "controller", func(ctx context.Context) error { return run(ctx, s, os.Stdout, os.Stderr) })
}

func run(ctx context.Context, s settings, out, progress io.Writer) (err error) {
	if s.window <= 0 || s.window%s.interval != 0 {
		// Objects that began together stay together: part of an interval may hold all of them, or none.
		return errors.New("--window must be a multiple of --interval")
	}
	accounts := max(minAccounts, s.objects/objectsPerAccount)
	cluster, stop, err := stage.Start(ctx, s.controlPlane, func(o *local.CloudOptions) {
		for i := range accounts {
			o.Config.AWS.Accounts[0].Roles = append(o.Config.AWS.Accounts[0].Roles, fleet.Role(i))
		}
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stop()) }()
	dir, err := os.MkdirTemp("", "lanyard-bench-controller-")
	if err != nil {
		return err
	}
	defer func() {
		if err == nil {
			err = os.RemoveAll(dir) // else the logs stay
		}
	}()
	lab := &lab{
		settings: s, dir: dir, cluster: cluster, registry: startRegistry(ctx), kubeconfig: filepath.Join(dir, "kubeconfig"), progress: progress,
	}
	defer lab.registry.close()
	if err := lab.furnish(ctx, accounts); err != nil {
		return err
	}
	programs := []program{lanyard(s)}
	if !s.onlyOurs {
		programs = append(programs, flux(s))
	}
	courses := make([]*course, len(programs))
	for i, p := range programs {
		if courses[i], err = newCourse(ctx, lab, p); err != nil {
			return err
		}
	}
	if err := measure(ctx, lab, courses); err != nil {
		return err
	}
	var theirs *figures
	if !s.onlyOurs {
		theirs = &courses[1].figures
	}
	return s.table(out, courses[0].figures, theirs)
}

// lab is what both programs are measured in.
type lab struct {
	settings

	dir        string
	cluster    *local.Cluster
	watching   client.WithWatch // the cluster's administrator
	registry   *registry
	kubeconfig string
	env        []string
	progress   io.Writer
}

// furnish makes the accounts, the artifacts and the files that the programs need.
func (l *lab) furnish(ctx context.Context, accounts int) (err error) {
	if l.watching, err = client.NewWithWatch(l.cluster.Config(), client.Options{}); err != nil {
		return err
	}
	if err := writeKubeconfig(ctx, l.cluster, l.kubeconfig); err != nil {
		return err
	}
	artifacts, err := examples.Artifacts()
	if err != nil {
		return err
	}
	cloud := l.cluster.Cloud()
	if _, err := cloud.PushAll(ctx, artifacts, fleet.Tag); err != nil {
		return err
	}
	if err := l.registry.publish(ctx, filepath.Join(l.dir, "artifacts")); err != nil {
		return err
	}
	trusted := filepath.Join(l.dir, "ca.pem")
	if err := l.registry.trust(cloud.CAFile(), trusted); err != nil {
		return err
	}
	l.env = cloud.Cloud.Env(trusted)
	return fleet.Accounts(ctx, l.cluster.Client(), accounts)
}

func (l *lab) say(format string, args ...any) { _, _ = fmt.Fprintf(l.progress, format+"\n", args...) }
