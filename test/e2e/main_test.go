package e2e

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/lanyard-dev/lanyard/cloudtest"
	"github.com/lanyard-dev/lanyard/cloudtest/aws"
	"github.com/lanyard-dev/lanyard/cloudtest/gcp"
	"github.com/lanyard-dev/lanyard/examples"
	"github.com/lanyard-dev/lanyard/internal/local"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// What all tests share. TestMain sets it before the first and stops it after the last.
var (
	world      *local.World
	controller *local.Controller    // of all objects that name no shard
	apiserver  kubernetes.Interface // the administrator
	objects    client.Client        // the administrator; knows Lanyard's kinds
)

// secondShard is the shard for which tests start controllers of their own. Its StatefulSet is secondStatefulSet.
const (
	secondShard       = "second"
	secondStatefulSet = "lanyard-controller-second"
)

// userAgent tells the tests' own requests in the audit log.
const userAgent = "lanyard-e2e"

// startTimeout bounds the start of the world.
const startTimeout = 3 * time.Minute

func TestMain(m *testing.M) {
	code, err := run(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, "e2e:", err)
		code = 1
	}
	os.Exit(code)
}

func run(m *testing.M) (code int, err error) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	for _, name := range []string{"controlplane", "lanyard", "lanyard-controller", "race/lanyard-controller", "minio"} {
		if err := local.CheckBinary(binary(name), "--"+name); err != nil {
			return 1, fmt.Errorf("program bin/%s: %w; run `make build bin/race/lanyard-controller bin/minio` at the repository's root", name, errors.Unwrap(err))
		}
	}
	dir, err := os.MkdirTemp("", "lanyard-e2e-")
	if err != nil {
		return 1, err
	}
	defer func() {
		if code == 0 && err == nil {
			err = os.RemoveAll(dir)
			return
		}
		fmt.Fprintln(os.Stderr, "e2e: the logs of the run are in", dir)
	}()
	if err := start(ctx, filepath.Join(dir, "world")); err != nil {
		return 1, err
	}
	code = m.Run()
	if err := errors.Join(world.Err(), world.Stop(ctx)); err != nil {
		return 1, err
	}
	// The race detector also reports with an exit status, but the log is what helps.
	log, err := os.ReadFile(controller.Log)
	if bytes.Contains(log, []byte("WARNING: DATA RACE")) {
		err = errors.New("the race detector found a data race in the controller; its log is " + controller.Log)
	}
	if err != nil {
		return 1, err
	}
	return code, nil
}

// start makes the world: a cloud, a cluster with the chart in it, and the controller.
func start(ctx context.Context, dir string) (err error) {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	cfg, err := cloudConfig()
	if err != nil {
		return err
	}
	world, err = local.Start(ctx, local.Options{Dir: dir, ControlPlane: binary("controlplane"), Cloud: cfg})
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, world.Stop(context.WithoutCancel(ctx)))
		}
	}()
	config := world.Config()
	config.UserAgent = userAgent
	if apiserver, err = kubernetes.NewForConfig(config); err != nil {
		return err
	}
	if objects, err = client.New(config, client.Options{Scheme: world.Client().Scheme()}); err != nil {
		return err
	}
	if err := world.InstallChart(ctx, values(nil)); err != nil {
		return err
	}
	controller, err = world.StartController(ctx, local.ControllerOptions{Binary: binary("race/lanyard-controller")})
	return err
}

// values are the chart's for this run, with further ones of a test.
func values(further map[string]any) map[string]any {
	all := map[string]any{"shards": []any{secondShard}, "flux": map[string]any{"externalArtifacts": true}}
	maps.Copy(all, further)
	return all
}

// The key with which the tests publish what `lanyard` itself would refuse to.
const (
	publisherKey    = "AKIAE2EPUBLISHERE2EP"
	publisherSecret = secretMark + "of-the-publisher"
)

// e2eBucket is the tests' bucket at Google, which is nobody's until it is lent.
const e2eBucket = "e2e-manifests"

// cloudConfig is the demonstration's cloud and what the tests need besides.
func cloudConfig() (cloudtest.Config, error) {
	cfg, err := local.ParseCloud(examples.Cloud())
	if err != nil {
		return cfg, err
	}
	cfg.JournalSize = 1 << 18 // a whole run
	account := &cfg.AWS.Accounts[0]
	if account.ID != local.Account {
		return cfg, fmt.Errorf("the demonstration's account is %s, not %s", account.ID, local.Account)
	}
	account.Users = append(account.Users, aws.User{
		Name: "e2e-publisher", AccessKeys: []aws.AccessKey{{ID: publisherKey, Secret: publisherSecret}},
		Policies: policies(`{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Action":"ecr:*","Resource":"*"}]}`),
	})
	project := &cfg.GCP.Projects[0]
	if project.ID != googleProject {
		return cfg, fmt.Errorf("the demonstration's project is %s, not %s", project.ID, googleProject)
	}
	project.Buckets = append(project.Buckets, gcp.Bucket{Name: e2eBucket})
	return cfg, nil
}

// binary is the path of a program that `make` builds.
func binary(name string) string { return filepath.Join("..", "..", "bin", name) }
