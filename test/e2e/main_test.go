package e2e

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"testing"

	"github.com/go-logr/logr"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/lanyard-dev/lanyard/api/toolkit/v1alpha1"
	"github.com/lanyard-dev/lanyard/cloudtest"
	"github.com/lanyard-dev/lanyard/cloudtest/aws"
	"github.com/lanyard-dev/lanyard/cloudtest/gcp"
	"github.com/lanyard-dev/lanyard/internal/local"
	"github.com/lanyard-dev/lanyard/test/e2e/stage"
)

// These variables are shared by all tests. TestMain starts the cluster and its cloud before the
// first test, and stops them after the last.
var (
	world      *local.Cluster       // the cluster that all tests share, with its cloud
	controller *local.Program       // the controller for all objects without a shard
	apiserver  kubernetes.Interface // client of the administrator
	objects    client.Client        // client of the administrator, with Lanyard's kinds
)

// userAgent marks the tests' own requests in the audit log.
const userAgent = "lanyard-e2e"

// suite describes the end-to-end tests.
var suite = stage.Suite{
	Name:   "e2e",
	Binary: binary,
	Programs: []string{
		"lanyard", "lanyard-controller", "race/lanyard-controller", "race/lanyard-token-server", "race/lanyard-discovery", "race/lanyard-identity-controller",
		"lanyard-apply-controller",
		"minio", "vault-jwt",
	},
	Make:  "make build e2e-programs",
	Cloud: addToCloud,
	// Tests run these issuers in their own clusters. The API server of the shared cluster verifies
	// their tokens.
	Audience: clusterAudience,
	Issuers: map[string]string{
		"lanyard": ownIssuer, "svid": spiffeIssuer,
		v1alpha1.CredentialServiceAccountToken: clusterIssuer, v1alpha1.CredentialWorkloadIdentityToken: matrixIssuer, v1alpha1.CredentialSpiffeJWT: matrixSPIFFEIssuer,
	},
	Begin: begin,
	Judge: judgeRun,
	End:   func() error { return wantNoRaces(world) },
}

// binary returns the path of a program that `make` builds.
func binary(name string) string { return filepath.Join("..", "..", "bin", name) }

// daemon returns the path of one of Lanyard's daemons, built with the race detector. Tests that
// measure memory or time use the binary without the detector.
func daemon(name string) string { return binary(filepath.Join("race", name)) }

func TestMain(m *testing.M) {
	switch os.Getenv(programVar) {
	case "":
	case helmProgram:
		if err := helmPushes(os.Args[1], os.Args[2]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	default:
		os.Exit(serveAggregated(os.Args[1:]))
	}
	flag.Parse()
	if err := flag.Set("test.parallel", maxParallel); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	// Discard the logs of the tests' own caches. The programs have their own logs.
	ctrllog.SetLogger(logr.Discard())
	os.Exit(suite.Run(context.Background(), m))
}

// begin installs the chart and starts the controller.
func begin(ctx context.Context, cluster *local.Cluster) (err error) {
	world = cluster
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
	connectPlanes()
	for _, name := range shards() {
		freeShards <- &shard{name: fmt.Sprint(name)}
	}
	controller, err = world.StartProgram(ctx, local.ProgramOptions{Workload: "lanyard-controller", Binary: daemon("lanyard-controller")})
	return err
}

// wantNoRaces returns an error if the race detector found a race in a daemon of the cluster. It
// searches the logs, because the exit status of a killed daemon does not show a race.
func wantNoRaces(cluster *local.Cluster) error {
	logs, err := filepath.Glob(cluster.Path("*.log"))
	if err != nil {
		return err
	}
	for _, path := range logs {
		log, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		if bytes.Contains(log, []byte("WARNING: DATA RACE")) {
			return errors.New("the race detector found a data race; the log is " + path)
		}
	}
	return nil
}

// values returns the chart's values for this run, with a test's further values.
func values(further map[string]any) map[string]any {
	all := loudest()
	maps.Copy(all, map[string]any{"shards": shards(), "flux": map[string]any{"externalArtifacts": true}})
	maps.Copy(all, further)
	return all
}

// The access key with which the tests publish artifacts that `lanyard` itself refuses to publish.
const (
	publisherKey    = "AKIAE2EPUBLISHERE2EP"
	publisherSecret = secretMark + "of-the-publisher"
)

// e2eBucket is the tests' bucket at Google. Nobody may read the bucket until a test calls lend().
const e2eBucket = "e2e-manifests"

// addToCloud adds to the demonstration's cloud what the tests need.
func addToCloud(cfg *cloudtest.Config) error {
	account := &cfg.AWS.Accounts[0]
	if account.ID != local.Account {
		return fmt.Errorf("the demonstration's account is %s, not %s", account.ID, local.Account)
	}
	account.Users = append(account.Users, aws.User{
		Name: "e2e-publisher", AccessKeys: []aws.AccessKey{{ID: publisherKey, Secret: publisherSecret}},
		Policies: policies(`{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Action":"ecr:*","Resource":"*"}]}`),
	})
	cfg.AWS.Accounts = append(cfg.AWS.Accounts, aws.Account{ID: proposedAccount})
	cfg.AWS.Accounts = append(cfg.AWS.Accounts, identityAccounts()...)
	project := &cfg.GCP.Projects[0]
	if project.ID != googleProject {
		return fmt.Errorf("the demonstration's project is %s, not %s", project.ID, googleProject)
	}
	project.Buckets = append(project.Buckets, gcp.Bucket{Name: e2eBucket})
	return nil
}
