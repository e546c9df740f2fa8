package attack

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client"

	cloudaws "github.com/lanyard-dev/lanyard/cloudtest/aws"
	"github.com/lanyard-dev/lanyard/examples"
	"github.com/lanyard-dev/lanyard/internal/local"
	"github.com/lanyard-dev/lanyard/test/e2e/stage"
)

// These variables are shared by all attacks. TestMain sets them before the first attack.
var (
	world       *local.Cluster
	controller  *local.Program
	tokenServer *local.Program
	// programs has all programs of the chart, including the controller and the token server.
	programs []*local.Program
	// objects is the administrator's client. Its scheme has Lanyard's kinds.
	objects client.WithWatch
	// slowProxy is the address of a hostile tenant's proxy. The address is on loopback. So the
	// administrator must allow the address, in the chart value identity.allowedEndpointHosts.
	slowProxy string
	// hostile is the API server of a hostile tenant's own cluster.
	hostile *hostileServer
	// begin is the sequence number of the last call in the cloud's journal before the first attack.
	begin uint64
)

// listedSTS is the host of a token service outside the clouds. The administrator listed it in
// allowedEndpointHosts, and a hostile tenant has taken it over.
const listedSTS = "sts.hostile.example.com"

// attacked describes the test suite of the attacks and its environment.
var attacked = stage.Suite{
	Name:     "attack",
	Binary:   binary,
	Programs: []string{"lanyard", "lanyard-controller", "lanyard-token-server", "lanyard-discovery", "lanyard-identity-controller", "lanyard-apply-controller"},
	Make:     "make build",
	Begin:    work,
	End:      wantNoSecretsInLogs,
}

// wantNoSecretsInLogs returns an error if a program has logged a token or a private key. Some
// attacks make a program fail while it holds a secret.
func wantNoSecretsInLogs() error {
	secrets := stage.NewPatterns(`eyJ[A-Za-z0-9_-]{10}`, "PRIVATE KEY-----", "IQoJb3JpZ2luX2Vj", `ya29\.`, cloudaws.SessionSecretPrefix)
	for _, program := range programs {
		log, err := os.ReadFile(program.Log)
		if err != nil {
			return err
		}
		if at := secrets.Find(string(log)); at >= 0 {
			return fmt.Errorf("%s holds a secret after %q", program.Log, log[max(0, at-80):at+4])
		}
	}
	return nil
}

// binary returns the path of a program that `make` builds.
func binary(name string) string { return filepath.Join("..", "..", "..", "bin", name) }

// TestMain runs the tests. In a process that [runFlood] started, TestMain runs the flood instead.
func TestMain(m *testing.M) {
	if address := os.Getenv(floodAddress); address != "" {
		if err := runAsFlood(context.Background(), address); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(attacked.Run(context.Background(), m))
}

// work prepares the cluster: it installs the chart, starts the chart's programs, publishes the
// demonstration's artifacts and applies the demonstration's objects.
func work(ctx context.Context, cluster *local.Cluster) (err error) {
	world = cluster
	if objects, err = client.NewWithWatch(world.Config(), client.Options{Scheme: world.Client().Scheme()}); err != nil {
		return err
	}
	manifests, err := local.ReadManifests(ctx, "examples", examples.WithoutLent())
	if err != nil {
		return err
	}
	// Create the namespaces first, because the chart has RoleBindings in them.
	if err := world.ApplyNamespaces(ctx, manifests); err != nil {
		return err
	}
	if slowProxy, err = startSlowProxy(ctx); err != nil {
		return err
	}
	hostile = startHostileServer()
	values := map[string]any{
		"apply": map[string]any{"enabled": true},
		"log":   map[string]any{"level": "debug"},
		"identity": map[string]any{
			"awsIdentities": true, "bindings": true, "allowedEndpointHosts": []any{listedSTS, slowProxy, strings.TrimPrefix(hostile.URL, "https://")},
			"controllerNamespaces":      map[string]any{"list": []any{lentNamespace}},
			"controllerCredentialHosts": []any{listedRegistry},
		},
		"identityController": map[string]any{"extraEnv": identityEnv()},
		"issuer": map[string]any{
			"spokeUserPrefix": "system:serviceaccount:" + spokesNamespace + ":", "claimsConfig": costlyClaims(),
		},
		"spiffe": map[string]any{"trustDomain": trustDomain, "issuer": spiffeIssuer},
	}
	if err := world.InstallChart(ctx, local.WithIssuer(manifests.Namespaces(), values)); err != nil {
		return err
	}
	var options []local.ProgramOptions
	for _, w := range world.Workloads() {
		options = append(options, local.ProgramOptions{Workload: w.Name, Binary: binary(w.Program)})
	}
	err = world.StartPrograms(ctx, options, func(p *local.Program) {
		programs = append(programs, p)
		switch p.Workload {
		case controllerAccount:
			controller = p
		case tokenServerAccount:
			tokenServer = p
		}
	})
	if err != nil {
		return err
	}
	artifacts, err := examples.Artifacts()
	if err != nil {
		return err
	}
	begin = world.Cloud().Journal().Last()
	if _, err := world.Cloud().PushAll(ctx, artifacts, "1.0.0"); err != nil {
		return err
	}
	if _, err := world.Apply(ctx, manifests); err != nil {
		return err
	}
	_, err = world.Settle(ctx, nil)
	return err
}
