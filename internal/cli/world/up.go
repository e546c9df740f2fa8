package world

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/lanyard-dev/lanyard/cloudtest"
	"github.com/lanyard-dev/lanyard/examples"
	"github.com/lanyard-dev/lanyard/internal/chart"
	"github.com/lanyard-dev/lanyard/internal/cli/frame"
	"github.com/lanyard-dev/lanyard/internal/local"
	"github.com/lanyard-dev/lanyard/internal/report"
)

// stopTimeout bounds the time to stop the cloud and the cluster.
const stopTimeout = 40 * time.Second

const (
	// artifactTag is the tag that the examples name.
	artifactTag = "1.0.0"
	// sampleArtifact is the tenant whose example files are published if --cloud is set. They go to
	// the repositories and Google buckets that the manifests name.
	sampleArtifact = "tenant-a"
)

type upOptions struct {
	once                                           bool
	dir, controlPlane, controller, examples, cloud string
	set                                            []string
	timeout                                        time.Duration
}

// File names of programs: the control plane, and the chart's controller and token server.
const (
	controlPlaneProgram = "controlplane"
	controllerProgram   = "lanyard-controller"
	tokenServerProgram  = "lanyard-token-server"
)

// findPrograms sets the paths of the programs whose flags are not set.
func (o *upOptions) findPrograms(folder string) {
	o.controlPlane = cmp.Or(o.controlPlane, findProgram(folder, controlPlaneProgram))
	o.controller = cmp.Or(o.controller, findProgram(folder, controllerProgram))
}

// findProgram returns the path of a program in a folder. If the folder does not have the program,
// findProgram looks in PATH. If the program in the folder lies below the working folder, the path
// is relative.
func findProgram(folder, name string) string {
	path := filepath.Join(folder, name)
	if _, err := os.Stat(path); err != nil {
		if found, err := exec.LookPath(name); err == nil {
			return found
		}
	}
	here, err := os.Getwd()
	if err != nil {
		return path
	}
	if below, err := filepath.Rel(here, path); err == nil && filepath.IsLocal(below) {
		return below
	}
	return path
}

// program returns the path of a program that a workload of the chart runs. The controller's path is
// in the field controller. The other programs lie in the same folder as the controller.
func (o *upOptions) program(name string) string {
	if name == controllerProgram {
		return o.controller
	}
	return filepath.Join(filepath.Dir(o.controller), name)
}

// checkPrograms returns an error for each program that is missing.
func (o *upOptions) checkPrograms(workloads []local.Workload) error {
	errs := []error{local.CheckBinary(o.controlPlane, "--controlplane")}
	checked := map[string]bool{} // several shards have one program: check it once
	for _, w := range workloads {
		if path := o.program(w.Program); !checked[path] {
			checked[path] = true
			flag := ""
			if path == o.controller {
				flag = "--controller"
			}
			errs = append(errs, local.CheckBinary(path, flag))
		}
	}
	return errors.Join(errs...)
}

// input has the checked values, cloud and manifests of lanyard up.
type input struct {
	values    map[string]any // of the chart
	cloud     cloudtest.Config
	manifests *local.Manifests
	// noIssuer says that the built-in manifests that need Lanyard's own issuer are left out.
	noIssuer bool
}

// files returns the manifests of --examples or, without this flag, the built-in ones. Some built-in
// manifests need Lanyard's own issuer. If the token server is not among the workloads, these
// manifests are left out, and noIssuer is true.
func (o *upOptions) files(workloads []local.Workload) (files fs.FS, noIssuer bool) {
	switch {
	case o.examples != "":
		return os.DirFS(o.examples), false
	case slices.ContainsFunc(workloads, func(w local.Workload) bool { return w.Program == tokenServerProgram }):
		return examples.Files(), false
	}
	return examples.WithoutIssuer(), true
}

// read reads and checks the files that the options name, and looks for the programs of workloads.
// It starts nothing, and removes no files of a former run. It reports all errors at once.
func (o *upOptions) read(ctx context.Context, workloads []local.Workload) (input, error) {
	files, noIssuer := o.files(workloads)
	cloud, cloudErr := readCloudConfig(o.cloud)
	manifests, manifestsErr := local.ReadManifests(ctx, o.examples, files)
	return input{cloud: cloud, manifests: manifests, noIssuer: noIssuer}, errors.Join(o.checkPrograms(workloads), cloudErr, manifestsErr)
}

func newUp(std IO) *cobra.Command {
	var o upOptions
	c := &cobra.Command{
		Use:   "up",
		Short: frame.UpShort,
		Long: `Start a demonstration on loopback: a real Kubernetes API, local clouds that verify as AWS, Azure and Google Cloud do, and
Lanyard's programs. Then publish an artifact for each of three tenants in each cloud, apply the examples, and show each
object's identity, result and reason. With --cloud, each registry and each bucket of Google Cloud Storage that the
manifests name holds a sample, under the tag that the object names or 1.0.0. The cluster's issuer, which roles trust, is
` + local.Issuer + `. WorkloadIdentities have tokens of Lanyard's
own issuer, ` + local.TokenIssuer + `, whose keys the local cloud reads as a real cloud does.

Manifests and clouds are checked before anything is started. An error names the file and the line.

All programs run as the chart installs them: under the chart's RBAC, with the chart's arguments, each as its own
ServiceAccount. Nothing leaves the machine. The exit status is 0 only if every object has the expected result.`,
		Example: `  # Show it and leave it running to try things out
  lanyard up

  # Show it and exit, as a check
  lanyard up --once

  # With other values of the chart, as for helm install
  lanyard up --set log.level=debug --set reconcile.concurrent=2

  # Without Lanyard's own issuer
  lanyard up --set issuer.url= --examples ./my-manifests --dir .mine

  # Your own objects, with the annotation demo.lanyard.dev/expect: pulled or refused:<reason>
  lanyard up --examples ./my-manifests --dir .mine

  # Your own objects and your own roles
  lanyard up --examples ./my-manifests --cloud my-cloud.yaml --dir .mine`,
	}
	output := frame.OutputFlag(c, frame.Table, frame.Wide, frame.JSON, frame.YAML)
	flags := c.Flags()
	flags.BoolVar(&o.once, "once", false, "exit after the table")
	dirFlag(c, &o.dir, "folder for all files; it must be absent, empty or from an earlier run, whose files are removed")
	flags.StringVar(&o.controlPlane, "controlplane", "",
		"the embedded control plane's program (default: controlplane beside lanyard's own program, or in PATH)")
	flags.StringVar(&o.controller, "controller", "",
		"the controller's program (default: lanyard-controller beside lanyard's own program, or in PATH)")
	flags.StringArrayVar(&o.set, "set", nil, "value of the chart, name=value, as for helm install; may be repeated")
	flags.StringVar(&o.examples, "examples", "", "folder of manifests to apply (default: the built-in examples/)")
	flags.StringVar(&o.cloud, "cloud", "", "description of the clouds, YAML or JSON (default: the built-in examples/cloud/cloud.yaml)")
	flags.DurationVar(&o.timeout, "timeout", 5*time.Minute, "longest time for all steps up to the table")
	frame.CompleteFlag(c, "set", completeValueNames)
	frame.CompleteDir(c, "examples")
	frame.CompleteFile(c, "cloud", cloudExtensions()...)
	frame.CompleteNothing(c, "timeout")
	c.RunE = func(c *cobra.Command, _ []string) error {
		values, err := chart.ParseValues(o.set)
		var workloads []local.Workload
		if err == nil {
			workloads, err = local.ChartWorkloads(local.Demonstration(nil, values))
		}
		if err != nil {
			return frame.UsageError(c, fmt.Errorf("--set: %w", err))
		}
		o.findPrograms(std.Programs)
		in, err := o.read(c.Context(), workloads)
		if err != nil {
			return err
		}
		in.values = local.Demonstration(in.manifests.Namespaces(), values)
		return runUp(c.Context(), std, o, in, output)
	}
	return c
}

// completeValueNames completes NAME= in --set NAME=VALUE, where NAME is a value of the chart. It
// does not complete VALUE.
func completeValueNames(_ *cobra.Command, _ []string, begun string) ([]cobra.Completion, cobra.ShellCompDirective) {
	names, err := chart.ValueNames()
	if err != nil {
		cobra.CompDebugln(err.Error(), false)
	}
	var offers []cobra.Completion
	for _, name := range names {
		if offer := name + "="; strings.HasPrefix(offer, begun) {
			offers = append(offers, offer)
		}
	}
	return offers, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace
}

// Failures of a demonstration that completed.
var (
	errNotAsExpected = errors.New("some objects do not have the expected result; " +
		"compare RESULT with EXPECTED, and see the controller's log for the reason")
	errNothing = errors.New("no object fetches anything; name a folder with such objects in --examples")
)

// demonstrated returns nil if there is an object, and all objects have the expected result.
func demonstrated(rows []report.Row) error {
	switch {
	case len(rows) == 0:
		return errNothing
	case report.CountOK(rows) < len(rows):
		return errNotAsExpected
	default:
		return nil
	}
}

func runUp(ctx context.Context, std IO, o upOptions, in input, output *frame.Format) error {
	p := &progress{w: std.Err, terminal: std.Terminal, begin: time.Now()}
	steps, cancel := context.WithTimeoutCause(ctx, o.timeout, fmt.Errorf("not done after %s; give it more with --timeout", o.timeout))
	defer cancel()
	if in.noIssuer {
		p.step("examples/issuer.yaml is left out: issuer.url is empty, and its objects need Lanyard's own issuer; so is examples/lent.yaml")
	}
	cloud, err := local.StartCloud(steps, local.CloudOptions{Dir: o.dir, Config: in.cloud, ProgramUser: local.ProgramUser})
	if err != nil {
		return err
	}
	stop := []func(context.Context) error{func(context.Context) error { return cloud.Stop() }}
	defer func() { stopAll(ctx, stop, p) }()
	p.step("local cloud is up, its proxy at %s", cloud.ProxyURL())
	cluster, err := local.StartCluster(steps, local.ClusterOptions{
		Cloud: cloud, ControlPlane: o.controlPlane, Progress: func(step string) { p.step("%s", step) },
	})
	if err != nil {
		return err
	}
	stop = append(stop, cluster.Stop)
	metrics, err := startLanyard(steps, cluster, o, in, p)
	if err != nil {
		return err
	}
	if err := publish(steps, cloud, o, in.manifests, p); err != nil {
		return err
	}
	rows, err := demonstrate(steps, cluster, in.manifests, p)
	if len(rows) > 0 {
		p.endCount()
		if writeErr := frame.WriteRows(std.Out, output, rows); writeErr != nil {
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
		p.step("%d of %d objects are as they should be", report.CountOK(rows), len(rows))
	}
	if o.once {
		return verdict
	}
	advise(std, o, cluster.Kubeconfig(), metrics)
	select {
	case <-ctx.Done():
		return verdict
	case <-cluster.Ended():
		return errors.Join(cluster.Err(), verdict)
	}
}

// stopAll calls the stop functions in reverse order: the part that started last ends first.
func stopAll(ctx context.Context, stop []func(context.Context) error, p *progress) {
	p.step("stopping")
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTimeout)
	defer cancel()
	var errs []error
	for _, end := range slices.Backward(stop) {
		errs = append(errs, end(ctx))
	}
	if err := errors.Join(errs...); err != nil {
		// Only print the error: the exit status says whether the objects have the expected
		// results. No program outlives this process in any case.
		p.step("the stop failed: %v", err)
	}
}

// startLanyard installs the chart and starts its programs. It returns the URL of the controller's
// metrics.
func startLanyard(ctx context.Context, cluster *local.Cluster, o upOptions, in input, p *progress) (metrics string, err error) {
	if err := cluster.ApplyNamespaces(ctx, in.manifests); err != nil { // the chart has RoleBindings in these namespaces
		return "", err
	}
	if err := cluster.InstallChart(ctx, in.values); err != nil {
		return "", err
	}
	p.step("chart is installed in namespace %s", local.Namespace)
	var programs []local.ProgramOptions
	for _, w := range cluster.Workloads() {
		programs = append(programs, local.ProgramOptions{Workload: w.Name, Binary: o.program(w.Program)})
	}
	err = cluster.StartPrograms(ctx, programs, func(program *local.Program) {
		p.step("%s is ready, as the chart's ServiceAccount; its log is %s", program.Workload, filepath.Join(o.dir, filepath.Base(program.Log)))
		if program.Workload == controllerProgram { // the first shard, and often the only one
			metrics = program.URL("metrics")
		}
	})
	return metrics, err
}

// publish publishes the tenants' artifacts in the demonstration's cloud. With --cloud, it writes
// one tenant's files to the user's own cloud instead. The files go to the repositories and Google
// buckets that the manifests name.
func publish(ctx context.Context, cloud *local.Cloud, o upOptions, manifests *local.Manifests, p *progress) error {
	artifacts, err := examples.Artifacts()
	if err != nil {
		return err
	}
	if o.cloud == "" {
		pushed, err := cloud.PushAll(ctx, artifacts, artifactTag)
		if err != nil {
			return err
		}
		for _, push := range pushed {
			p.step("%s:%s is pushed to ECR, as IAM user %s", push.Repository, push.Tag, local.Publisher)
		}
		p.step("the same lies in Azure's registry and in Google's buckets")
		return nil
	}
	sample, err := fs.Sub(artifacts, sampleArtifact)
	if err != nil {
		return fmt.Errorf("read the sample artifact: %w", err)
	}
	filled, err := cloud.Fill(ctx, manifests, sample, artifactTag)
	if err != nil {
		return err
	}
	for _, place := range filled {
		p.step("%s holds a sample", place)
	}
	return nil
}

// demonstrate runs the steps after the controller's start. It may return rows together with an
// error.
func demonstrate(ctx context.Context, cluster *local.Cluster, manifests *local.Manifests, p *progress) ([]report.Row, error) {
	applied, err := cluster.Apply(ctx, manifests)
	if err != nil {
		return nil, err
	}
	p.step("%d example objects are applied", applied)
	rows, err := cluster.Settle(ctx, p.count)
	if err != nil {
		return rows, err
	}
	rows, err = cluster.Confirm(ctx)
	if err != nil {
		return rows, err
	}
	checked, err := cluster.CheckArtifacts(ctx)
	if err != nil {
		return rows, err
	}
	if checked > 0 {
		p.step("%s", fetched(checked))
	}
	return rows, nil
}

// fetched returns the message that is printed after all artifacts were fetched and have the right
// digests. There must be at least one artifact.
func fetched(artifacts int) string {
	if artifacts == 1 {
		return "1 artifact is fetched from its URL and has the digest that was promised"
	}
	return fmt.Sprintf("%d artifacts are fetched from their URLs and have the digests that were promised", artifacts)
}

// allGood returns the message that all objects have the expected result. The number of objects must
// be at least 1.
func allGood(objects int) string {
	if objects == 1 {
		return "the 1 object is as it should be, and stayed so when it was reconciled again"
	}
	return fmt.Sprintf("all %d objects are as they should be, and stayed so when they were reconciled again", objects)
}

// advise prints commands that the user can try now. It takes the path of the administrator's
// kubeconfig, and the URL of the controller's metrics.
func advise(std IO, o upOptions, kubeconfig, metrics string) {
	kubeconfig = shellWord(filepath.Join(o.dir, "cluster", filepath.Base(kubeconfig)))
	_, _ = fmt.Fprintf(std.Err, `
The demonstration keeps running. Its files are in %[1]s, its kubeconfig is %[2]s.

  metrics  %[7]s/metrics

In another terminal:

  %[3]s kubectl --kubeconfig %[2]s get lanyard -A
  %[4]s status -A --kubeconfig %[2]s
  %[4]s keys list --kubeconfig %[2]s
  %[4]s cloud journal --watch%[5]s
  eval "$(%[4]s cloud env%[5]s)"
  tail -f %[6]s

Stop it with Ctrl-C.
`, o.dir, kubeconfig, shellWord(o.controlPlane), std.Program, dirArgument(o.dir), shellWord(filepath.Join(o.dir, "controller.log")), metrics)
}
