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
	"os/signal"
	"path/filepath"
	"time"

	"github.com/go-logr/logr"
	"github.com/lanyard-dev/lanyard/examples"
	"github.com/lanyard-dev/lanyard/internal/local"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/lanyard-dev/lanyard/bench/internal/fleet"
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
	log.SetLogger(logr.Discard())
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, s, os.Stdout, os.Stderr); err != nil {
		fmt.Fprintln(os.Stderr, "controller:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, s settings, out, progress io.Writer) (err error) {
	if s.window <= 0 || s.window%s.interval != 0 {
		// Objects that began together stay together: part of an interval may hold all of them, or none.
		return errors.New("--window must be a multiple of --interval")
	}
	dir, err := os.MkdirTemp("", "lanyard-bench-controller-")
	if err != nil {
		return err
	}
	lab, err := newLab(ctx, s, dir, progress)
	if err != nil {
		return err
	}
	defer func() {
		stopping, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
		defer cancel()
		err = errors.Join(err, lab.stop(stopping))
		if err == nil {
			err = os.RemoveAll(dir) // else the logs stay
		}
	}()
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
	cloud      *local.Cloud
	cluster    *local.Cluster
	watching   client.WithWatch // the cluster's administrator
	registry   *registry
	kubeconfig string
	env        []string
	progress   io.Writer
}

func newLab(ctx context.Context, s settings, dir string, progress io.Writer) (_ *lab, err error) {
	l := &lab{settings: s, dir: dir, kubeconfig: filepath.Join(dir, "kubeconfig"), progress: progress}
	defer func() {
		if err != nil {
			err = errors.Join(err, l.stop(context.WithoutCancel(ctx)))
		}
	}()
	config, err := local.ParseCloud("cloud.yaml", examples.Cloud())
	if err != nil {
		return nil, err
	}
	accounts := max(minAccounts, s.objects/objectsPerAccount)
	for i := range accounts {
		config.AWS.Accounts[0].Roles = append(config.AWS.Accounts[0].Roles, fleet.Role(i))
	}
	if l.cloud, err = local.StartCloud(ctx, local.CloudOptions{Dir: filepath.Join(dir, "world"), Config: config}); err != nil {
		return nil, err
	}
	if l.cluster, err = local.StartCluster(ctx, local.ClusterOptions{Cloud: l.cloud, ControlPlane: s.controlPlane}); err != nil {
		return nil, err
	}
	if l.watching, err = client.NewWithWatch(l.cluster.Config(), client.Options{}); err != nil {
		return nil, err
	}
	if err = writeKubeconfig(ctx, l.cluster, l.kubeconfig); err != nil {
		return nil, err
	}
	l.registry = startRegistry(ctx)
	artifacts, err := examples.Artifacts()
	if err != nil {
		return nil, err
	}
	if _, err = l.cloud.PushAll(ctx, artifacts, fleet.Tag); err != nil {
		return nil, err
	}
	if err = l.registry.publish(ctx, filepath.Join(dir, "artifacts")); err != nil {
		return nil, err
	}
	trusted := filepath.Join(dir, "ca.pem")
	if err = l.registry.trust(l.cloud.CAFile(), trusted); err != nil {
		return nil, err
	}
	l.env = l.cloud.Cloud.Env(trusted)
	return l, fleet.Accounts(ctx, l.cluster.Client(), accounts)
}

func (l *lab) stop(ctx context.Context) error {
	if l.registry != nil {
		l.registry.close()
	}
	var err error
	if l.cluster != nil {
		err = l.cluster.Stop(ctx)
	}
	if l.cloud != nil {
		err = errors.Join(err, l.cloud.Stop())
	}
	return err
}

func (l *lab) say(format string, args ...any) { _, _ = fmt.Fprintf(l.progress, format+"\n", args...) }
