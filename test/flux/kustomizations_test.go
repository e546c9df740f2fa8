//go:build flux

package flux

import (
	"context"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/lanyard-dev/lanyard/internal/controlplane"
	"github.com/lanyard-dev/lanyard/internal/must"
)

// leftOut returns the files and tests of Flux that do not run against Lanyard, and the reasons. The
// key is the name of a file, a function or a subtest.
func leftOut() map[string]string {
	const (
		inside    = "tests a function of Flux's controller"
		setting   = "changes a setting of Flux's controller while it runs"
		deviation = "differs, see docs/deviations.md"
	)
	return map[string]string{
		"kustomization_acl_test.go":                 deviation,
		"kustomization_commit_status_test.go":       "is about Flux's events",
		"kustomization_fetcher_test.go":             deviation,
		"kustomization_decryptor_test.go":           "Lanyard does not decrypt yet",
		"kustomization_configuration_error_test.go": "needs packages inside Flux's module",
		"kustomization_fuzzer_test.go":              inside,
		"kustomization_prune_survivors_test.go":     inside,
		"tmpdir_test.go":                            inside,

		"TestKustomizationReconciler_deleteBeforeFinalizer": inside,
		"TestKustomizationReconciler_RESTMapper":            inside,

		"TestKustomizationReconciler_AppliesRoleAndRoleBinding/fails_to_reconcile_Role_and_RoleBinding_without_custom_stage": deviation,
		"TestKustomizationReconciler_DependsOn_CEL/fails_terminally_with_invalid_readyExpr":                                  deviation,
		"TestKustomizationReconciler_DisallowedManagers/bad-key_should_be_removed_from_the_configmap":                        deviation,
		"TestKustomizationReconciler_ExternalArtifact/fails_when_external_artifact_feature_gate_is_disable":                  setting,
		"TestKustomizationReconciler_Impersonation/fails_to_reconcile_impersonating_the_default_service_account":             deviation,
		"TestKustomizationReconciler_PruneFailedInventoryRetry/rejected_delete_stays_in_inventory_until_retry_succeeds":      "replaces the client of Flux's controller",
	}
}

// differences returns parts of the assertions that Lanyard does not meet, and the reasons. These
// assertions are not made.
func differences() map[string]string {
	const (
		texts   = "Lanyard's messages have other words"
		events  = "Lanyard's events have other reasons and no annotations"
		history = "Lanyard's history has one entry for each digest, and counts changes"
	)
	return map[string]string{
		".Message":                              texts,
		"Message(":                              texts,
		"Expect(msg":                            texts,
		"Expect(event":                          events,
		"Expect(len(event":                      events,
		"Expect(e.":                             events,
		"cancelEvent":                           events,
		"getEvents(":                            events,
		"TotalReconciliations":                  history,
		"History).To(HaveLen(2))":               history,
		"History).To(HaveLen(3))":               history,
		"BeIdenticalTo(resultK.Generation - 1)": "Lanyard's observedGeneration is the generation that was reconciled, also after a failure",
	}
}

// TestKustomizationsOfFlux runs the tests of Flux's kustomize-controller against
// lanyard-apply-controller, in a real control plane.
func TestKustomizationsOfFlux(t *testing.T) {
	folder := filepath.Join(module(t, kustomizeController), "internal", "controller")
	binary, tests := compile(t, folder)
	artifacts := t.TempDir()
	server := httptest.NewServer(http.FileServer(http.Dir(artifacts)))
	t.Cleanup(server.Close)
	kubeconfig := startController(t, strings.TrimPrefix(server.URL, "http://"))
	skip := strings.Join(slices.Sorted(maps.Keys(leftOut())), "$|^")
	for _, name := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cmd := exec.CommandContext(t.Context(), binary, "-test.v", "-test.run=^"+name+"$", "-test.skip=^"+skip+"$", "-test.timeout=5m")
			cmd.Dir = folder // has files that the tests read
			cmd.Env = append(os.Environ(), "KUBECONFIG="+kubeconfig, "ARTIFACTS="+artifacts, "ARTIFACTS_URL="+server.URL)
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Errorf("%v\n%s", err, out)
			}
		})
	}
}

// startController starts a control plane and lanyard-apply-controller. The argument is the address of
// the artifact server. The result is the path of the administrator's kubeconfig file.
func startController(t *testing.T, artifacts string) (kubeconfig string) {
	t.Helper()
	plane, err := controlplane.Start(t.Context(), controlplane.Options{Binary: "../../bin/controlplane", Dir: t.TempDir(), Issuer: "https://issuer.example.com"})
	must.Succeed(t, err)
	t.Cleanup(func() { must.Succeed(t, plane.Stop(context.WithoutCancel(t.Context()))) })
	for _, args := range [][]string{
		{"apply", "--server-side", "--filename=" + filepath.Join(module(t, kustomizeController), "config", "crd", "bases")},
		{"apply", "--server-side", "--filename=" + filepath.Join(module(t, sourceController), "config", "crd", "bases")},
		{"apply", "--server-side", "--filename=../../config/crd"},
		{"wait", "--for=condition=Established", "crd", "--all"},
	} {
		if out, err := plane.Kubectl(t.Context(), args...).CombinedOutput(); err != nil {
			t.Fatalf("kubectl %s: %v\n%s", args, err, out)
		}
	}
	log, err := os.Create(filepath.Join(t.TempDir(), "apply-controller.log"))
	must.Succeed(t, err)
	cmd := exec.CommandContext(t.Context(), "../../bin/lanyard-apply-controller",
		"--namespace=default", "--kubeconfig="+plane.Kubeconfig(), "--artifact-hosts="+artifacts, "--external-artifacts", "--concurrent=8",
		"--allowed-endpoint-hosts="+strings.TrimPrefix(plane.Server(), "https://"), "--default-service-account=default",
		"--metrics-address=0", "--health-address=0")
	cmd.Stdout, cmd.Stderr = log, log
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	must.Succeed(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Wait() // the context of the test has ended, so the program ends
		if t.Failed() {
			text, _ := os.ReadFile(log.Name())
			t.Logf("the log of lanyard-apply-controller:\n%s", text)
		}
	})
	return plane.Kubeconfig()
}
