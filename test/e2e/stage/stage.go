// Package stage runs the tests of a package. It first starts a local cloud, and one Kubernetes
// cluster that uses this cloud. The cloud has the content of examples/cloud/cloud.yaml, like the
// demonstration's cloud, with the changes that [Suite.Cloud] makes.
package stage

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/lanyard-dev/lanyard/cloudtest"
	"github.com/lanyard-dev/lanyard/examples"
	"github.com/lanyard-dev/lanyard/internal/local"
)

// startTimeout bounds the time to start the cloud, and to start and prepare the cluster.
const startTimeout = 3 * time.Minute

// Suite describes the tests of a package, and the cloud and the cluster for them. The fields Cloud,
// Audience, Issuers, Judge and End are optional.
type Suite struct {
	// Name is the suite's name, for messages.
	Name string
	// Binary returns the path of the program that `make` builds under this name.
	Binary func(name string) string
	// Programs are the names of the programs that the tests need, besides the control plane.
	Programs []string
	// Make is the command that builds the programs. It must run at the repository's root.
	Make string
	// Cloud changes the demonstration's cloud before the cloud is started.
	Cloud func(*cloudtest.Config) error
	// Audience is the audience of the tokens that Issuers issue.
	Audience string
	// Issuers are further issuers whose tokens the cluster's API server accepts; see
	// [AuthenticationConfig]. The API server tries to reach each issuer every ten seconds until it
	// succeeds.
	Issuers map[string]string
	// Begin prepares the cluster for the first test.
	Begin func(ctx context.Context, cluster *local.Cluster) error
	// Judge checks the run after the last test, while the cluster still runs. It is called only if
	// all tests passed. The run fails if Judge reports an error to t.
	Judge func(t testing.TB)
	// End checks the run after the cluster and the cloud have ended.
	End func() error
}

// Run runs the tests and returns the exit status of the process. If the status is not 0, Run keeps
// the folder of the run, which has the logs of all programs.
func (s *Suite) Run(ctx context.Context, m *testing.M) int {
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	defer stop()
	code, err := s.run(ctx, m)
	if err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", s.Name, err)
		return 1
	}
	return code
}

func (s *Suite) run(ctx context.Context, m *testing.M) (code int, err error) {
	for _, name := range append([]string{"controlplane"}, s.Programs...) {
		if err := local.CheckBinary(s.Binary(name), "--"+name); err != nil {
			return 1, fmt.Errorf("program bin/%s: %w; run `%s` at the repository's root", name, errors.Unwrap(err), s.Make)
		}
	}
	dir, err := os.MkdirTemp("", "lanyard-"+s.Name+"-")
	if err != nil {
		return 1, err
	}
	defer func() {
		if code == 0 && err == nil {
			err = os.RemoveAll(dir)
			return
		}
		fmt.Fprintf(os.Stderr, "%s: the logs of the run are in %s\n", s.Name, dir)
	}()
	world, err := s.start(ctx, filepath.Join(dir, "world"))
	if err != nil {
		return 1, err
	}
	code = m.Run()
	if code == 0 && s.Judge != nil {
		err = judge(ctx, s.Judge)
	}
	err = errors.Join(err, world.Err(), world.Stop(ctx), world.Cloud().Stop())
	if err == nil && s.End != nil {
		err = s.End()
	}
	return code, err
}

// AuthenticationConfig returns an AuthenticationConfiguration for an API server, in YAML. The API
// server accepts tokens of the issuers for the audience. The map gives the URL of each issuer by
// its name. A user's name is the issuer's name, a colon, and the token's subject. Source: "Using
// Authentication Configuration" in Kubernetes' page about authentication.
func AuthenticationConfig(cloud *local.Cloud, audience string, issuers map[string]string) []byte {
	var config bytes.Buffer
	config.WriteString("apiVersion: apiserver.config.k8s.io/v1\nkind: AuthenticationConfiguration\njwt:\n")
	for prefix, url := range issuers {
		fmt.Fprintf(&config, "- issuer: {url: %q, audiences: [%q], certificateAuthority: %q}\n  claimMappings: {username: {claim: sub, prefix: %q}}\n",
			url, audience, cloud.CAPEM(), prefix+":")
	}
	return config.Bytes()
}

// start starts the cloud and the cluster, and prepares the cluster.
func (s *Suite) start(ctx context.Context, dir string) (world *local.Cluster, err error) {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	cfg, err := local.ParseCloud("cloud.yaml", examples.Cloud())
	if err != nil {
		return nil, err
	}
	cfg.JournalSize = 1 << 18 // large enough for a whole run
	if s.Cloud != nil {
		if err := s.Cloud(&cfg); err != nil {
			return nil, err
		}
	}
	cloud, err := local.StartCloud(ctx, local.CloudOptions{Dir: dir, Config: cfg})
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, cloud.Stop())
		}
	}()
	o := local.ClusterOptions{Cloud: cloud, ControlPlane: s.Binary("controlplane")}
	if len(s.Issuers) > 0 {
		o.AuthenticationConfig = filepath.Join(filepath.Dir(dir), "authentication.yaml")
		if err := os.WriteFile(o.AuthenticationConfig, AuthenticationConfig(cloud, s.Audience, s.Issuers), 0o600); err != nil {
			return nil, err
		}
	}
	world, err = local.StartCluster(ctx, o)
	if err != nil {
		return nil, err
	}
	if err := s.Begin(ctx, world); err != nil {
		return nil, errors.Join(err, world.Stop(context.WithoutCancel(ctx)))
	}
	return world, nil
}
