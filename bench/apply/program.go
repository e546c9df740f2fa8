package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os/exec"
	"path/filepath"
)

// program is a program that applies artifacts.
type program struct {
	name, binary string
	// definitions are the modules whose CRDs the program needs, and folders is where other CRDs are.
	definitions []module
	folders     []string
	// applyVersion and applyKind identify the objects that ask the program to apply an artifact.
	applyVersion, applyKind string
	// sourceVersion and sourceKind identify the objects that have an artifact in their status.
	sourceVersion, sourceKind string
	// request is the annotation that asks for a reconciliation.
	request string
	// args returns the program's flags. The program listens on two addresses: for metrics and health.
	// It gets a kubeconfig file, the address of the server that has the artifacts, and that of another
	// cluster.
	args func(listen []string, kubeconfig, artifacts, cluster string) []string
}

// programs returns the programs that are measured. Each program has four workers, no leader
// election, and otherwise its own defaults.
func programs() []program {
	return []program{{
		name: "Flux", binary: "flux-kustomize-controller",
		// The program watches the kinds of source-controller.
		definitions: []module{
			{"../test/e2e/kustomize", "github.com/fluxcd/kustomize-controller"},
			{"controller/flux", "github.com/fluxcd/source-controller"},
		},
		applyVersion: "kustomize.toolkit.fluxcd.io/v1", applyKind: "Kustomization",
		sourceVersion: "source.toolkit.fluxcd.io/v1", sourceKind: "OCIRepository",
		request: "reconcile.fluxcd.io/requestedAt",
		args: func(listen []string, _, _, _ string) []string { // the file's path is in the variable KUBECONFIG
			return []string{"--metrics-addr=" + listen[0], "--health-addr=" + listen[1], "--concurrent=4"}
		},
	}, {
		name: "Lanyard", binary: "lanyard-apply-controller",
		folders:      []string{"../config/crd"},
		applyVersion: "toolkit.lanyard.dev/v1alpha1", applyKind: "Kustomization",
		sourceVersion: "toolkit.lanyard.dev/v1alpha1", sourceKind: "OCIRepository",
		request: "lanyard.dev/reconcile-requested-at",
		args: func(listen []string, kubeconfig, artifacts, cluster string) []string {
			return []string{
				"--metrics-address=" + listen[0], "--health-address=" + listen[1], "--kubeconfig=" + kubeconfig, "--artifact-hosts=" + artifacts,
				"--namespace=default", "--concurrent=4", "--allowed-endpoint-hosts=" + cluster,
			}
		},
	}}
}

// module is a Go module that has CRDs, in the version of a tool module.
type module struct {
	tool string // folder of the tool module
	path string
}

// crds returns the folder of the module's CRDs. The go command downloads the module if necessary.
func (m module) crds(ctx context.Context) (string, error) {
	cmd := exec.CommandContext(ctx, "go", "mod", "download", "-json", m.path) //nolint:gosec // one of the paths above
	cmd.Dir = m.tool
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("download module %s: %w: %s", m.path, err, out) // the output has the reason
	}
	var found struct {
		Dir string `json:"Dir"`
	}
	if err := json.Unmarshal(out, &found); err != nil {
		return "", fmt.Errorf("find module %s: %w", m.path, err)
	}
	return filepath.Join(found.Dir, "config", "crd", "bases"), nil
}
