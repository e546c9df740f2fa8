package cli

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/lanyard-dev/lanyard/examples"
	"github.com/lanyard-dev/lanyard/internal/local"
	"github.com/lanyard-dev/lanyard/internal/report"
)

// stopTimeout bounds the end of all parts of a world.
const stopTimeout = 40 * time.Second

// artifactTag is the tag that the examples name.
const artifactTag = "1.0.0"

type upOptions struct {
	once                                    bool
	dir, controlPlane, controller, examples string
	timeout                                 time.Duration
}

func newUp(std IO) *cobra.Command {
	var o upOptions
	c := &cobra.Command{
		Use:   "up",
		Short: "Start a cluster, a local cloud and Lanyard, and show what each tenant gets",
		Long: `Start a real Kubernetes API, local clouds that verify as AWS, Azure and Google Cloud do, and Lanyard's controller, all on
loopback; publish an artifact for each of two tenants in each cloud; apply the examples; and print for each object as whom
it was fetched, with what result, and why.

The controller runs as the chart installs it: under the chart's RBAC, with the chart's arguments, as its own
ServiceAccount. Nothing leaves the machine. The exit status is 0 only if every object is as it should be.`,
		Example: `  # Show it and leave it running to try things out
  lanyard up

  # Show it and end, as a check
  lanyard up --once

  # Objects of your own, with the annotation demo.lanyard.dev/expect: pulled or refused:<reason>
  lanyard up --examples ./my-manifests --dir .mine`,
	}
	output := outputFlag(c, formatTable, formatWide, formatJSON, formatYAML)
	flags := c.Flags()
	flags.BoolVar(&o.once, "once", false, "end after the table")
	dirFlag(c, &o.dir, "folder of all files; empty, absent, or left by lanyard, which removes what it left")
	flags.StringVar(&o.controlPlane, "controlplane", "bin/controlplane", "the embedded control plane's program")
	flags.StringVar(&o.controller, "controller", "bin/lanyard-controller", "the controller's program")
	flags.StringVar(&o.examples, "examples", "", "folder of manifests to apply (default: those of examples/, which are built in)")
	flags.DurationVar(&o.timeout, "timeout", 5*time.Minute, "time that all steps up to the table may take")
	c.RunE = func(c *cobra.Command, _ []string) error { return runUp(c.Context(), std, o, output) }
	return c
}

// The failures of a demonstration that ran to its end.
var (
	errNotAsExpected = errors.New("not every object is as it should be; EXPECTED says which, and the controller's log why")
	errNothing       = errors.New("no object fetches anything; name a folder with such objects in --examples")
)

// demonstrated is nil if there is something to see, all as it should be.
func demonstrated(rows []report.Row) error {
	switch {
	case len(rows) == 0:
		return errNothing
	case countOK(rows) < len(rows):
		return errNotAsExpected
	default:
		return nil
	}
}

func runUp(ctx context.Context, std IO, o upOptions, output *format) error {
	p := &progress{w: std.Err, terminal: std.Terminal, begin: time.Now()}
	manifests := examples.Files()
	if o.examples != "" {
		manifests = os.DirFS(o.examples)
	}
	// Before anything is started and a former run's files are removed.
	if err := errors.Join(local.CheckBinary(o.controlPlane, "--controlplane"), local.CheckBinary(o.controller, "--controller")); err != nil {
		return err
	}
	steps, cancel := context.WithTimeoutCause(ctx, o.timeout, fmt.Errorf("not done after %s; give it more with --timeout", o.timeout))
	defer cancel()
	config, err := readCloudConfig("")
	if err != nil {
		return err
	}
	world, err := local.Start(steps, local.Options{
		Dir: o.dir, ControlPlane: o.controlPlane, Cloud: config,
		Progress: func(step string) { p.step("%s", step) },
	})
	if err != nil {
		return err
	}
	defer func() {
		p.step("stopping")
		stopping, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTimeout)
		defer cancel()
		if stopErr := world.Stop(stopping); stopErr != nil {
			// The objects' verdict stands; nothing outlives this process either way.
			p.step("it did not stop in order: %v", stopErr)
		}
	}()
	controller, err := startLanyard(steps, world, o, p)
	if err != nil {
		return err
	}
	rows, err := demonstrate(steps, world, manifests, p)
	if len(rows) > 0 {
		p.endCount()
		if writeErr := writeRows(std.Out, output, rows); writeErr != nil {
			return errors.Join(err, writeErr)
		}
	}
	if err != nil {
		return err
	}
	verdict := demonstrated(rows)
	if verdict == nil {
		p.step("%s", allGood(len(rows)))
	} else {
		p.step("%d of %d objects are as they should be", countOK(rows), len(rows))
	}
	if o.once {
		return verdict
	}
	advise(std, o, world.Kubeconfig(), controller.MetricsURL)
	select {
	case <-ctx.Done():
		return verdict
	case <-world.Ended():
		return errors.Join(world.Err(), verdict)
	}
}

// startLanyard installs the chart and starts its controller.
func startLanyard(ctx context.Context, world *local.World, o upOptions, p *progress) (*local.Controller, error) {
	if err := world.InstallChart(ctx, nil); err != nil {
		return nil, err
	}
	p.step("chart is installed in namespace %s", local.Namespace)
	controller, err := world.StartController(ctx, local.ControllerOptions{Binary: o.controller})
	if err != nil {
		return nil, err
	}
	p.step("lanyard-controller is ready, as the chart's ServiceAccount; its log is %s", filepath.Join(o.dir, filepath.Base(controller.Log)))
	return controller, nil
}

// demonstrate runs the steps that follow the controller's start. It returns the rows as far as there are any.
func demonstrate(ctx context.Context, world *local.World, manifests fs.FS, p *progress) ([]report.Row, error) {
	artifacts, err := examples.Artifacts()
	if err != nil {
		return nil, err
	}
	pushed, err := world.PushAll(ctx, artifacts, artifactTag)
	if err != nil {
		return nil, err
	}
	for _, push := range pushed {
		p.step("%s:%s is pushed to ECR, as IAM user %s", push.Repository, push.Tag, local.Publisher)
	}
	p.step("the same lies in Azure's registry and in Google's buckets")
	applied, err := world.Apply(ctx, manifests)
	if err != nil {
		return nil, err
	}
	p.step("%d example objects are applied", applied)
	rows, err := world.Settle(ctx, p.count)
	if err != nil {
		return rows, err
	}
	rows, err = world.Confirm(ctx)
	if err != nil {
		return rows, err
	}
	checked, err := world.CheckArtifacts(ctx)
	if err != nil {
		return rows, err
	}
	if checked > 0 {
		p.step("%s", fetched(checked))
	}
	return rows, nil
}

// fetched says that so many artifacts, one at least, are what their objects' status says.
func fetched(artifacts int) string {
	if artifacts == 1 {
		return "1 artifact is fetched from its URL and has the digest that was promised"
	}
	return fmt.Sprintf("%d artifacts are fetched from their URLs and have the digests that were promised", artifacts)
}

// allGood says that so many objects, one at least, are as they should be.
func allGood(objects int) string {
	if objects == 1 {
		return "the 1 object is as it should be, and stayed so when it was reconciled again"
	}
	return fmt.Sprintf("all %d objects are as they should be, and stayed so when they were reconciled again", objects)
}

// advise says what can be tried now. The kubeconfig is the administrator's, metrics where the controller serves its own.
func advise(std IO, o upOptions, kubeconfig, metrics string) {
	kubeconfig = shellWord(filepath.Join(o.dir, "cluster", filepath.Base(kubeconfig)))
	_, _ = fmt.Fprintf(std.Err, `
It goes on running; its files are in %[1]s, its kubeconfig is %[2]s.

  metrics  %[7]s/metrics

In another terminal:

  %[3]s kubectl --kubeconfig %[2]s get lanyard -A
  %[4]s status -A --kubeconfig %[2]s
  %[4]s cloud journal --watch%[5]s
  eval "$(%[4]s cloud env%[5]s)"
  tail -f %[6]s

Stop it with Ctrl-C.
`, o.dir, kubeconfig, shellWord(o.controlPlane), std.Program, dirArgument(o.dir), shellWord(filepath.Join(o.dir, "controller.log")), metrics)
}
