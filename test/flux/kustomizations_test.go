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

// leftOut returns the files, functions and subtests of Flux that do not run against Lanyard, and the
// reasons.
func leftOut() map[string]string {
	const (
		deviation = "differs: docs/deviations.md"
		events    = "has only assertions about Flux's events"
		inside    = "is about the inside of Flux's controller"
		setting   = "changes a setting of Flux's controller"
	)
	return map[string]string{
		"kustomization_acl_test.go":                 deviation,
		"kustomization_commit_status_test.go":       events,
		"kustomization_configuration_error_test.go": "imports a package inside Flux's module",
		"kustomization_decryptor_test.go":           "Lanyard does not decrypt yet",
		"kustomization_direct_source_fetch_test.go": setting,
		"kustomization_fetcher_test.go":             deviation,
		"kustomization_fuzzer_test.go":              inside,
		"kustomization_prune_survivors_test.go":     inside,
		"tmpdir_test.go":                            inside,

		"createVaultTestInstance": "package kustomization starts no server",
		"runInContext":            "package kustomization starts no server",
		"TestKustomizationReconciler_deleteBeforeFinalizer": inside,
		"TestKustomizationReconciler_RESTMapper":            inside,

		"TestKustomizationReconciler_AppliesRoleAndRoleBinding/fails_to_reconcile_Role_and_RoleBinding_without_custom_stage": deviation,
		"TestKustomizationReconciler_DependsOn_CEL/fails_terminally_with_invalid_readyExpr":                                  deviation,
		"TestKustomizationReconciler_DisallowedManagers/bad-key_should_be_removed_from_the_configmap":                        deviation,
		"TestKustomizationReconciler_ExternalArtifact/fails_when_external_artifact_feature_gate_is_disable":                  setting,
		"TestKustomizationReconciler_Force/fails_to_update_immutable_secret/emits_validation_error_event":                    events,
		"TestKustomizationReconciler_Impersonation/fails_to_reconcile_impersonating_the_default_service_account":             deviation,
		"TestKustomizationReconciler_PruneFailedInventoryRetry/rejected_delete_stays_in_inventory_until_retry_succeeds":      inside,
		"TestKustomizationReconciler_WaitConditions/emits_event_for_the_new_revision":                                        events,
		"TestKustomizationReconciler_WaitConditions/emits_recovery_event":                                                    events,
		"TestKustomizationReconciler_WaitConditions/emits_unhealthy_event":                                                   events,
	}
}

// difference is an assertion of Flux's tests that Lanyard does not meet.
type difference struct {
	test string // the name of the test or subtest; empty for all
	text string // a part of the assertion's arguments
}

// differences returns the assertions that are not made.
func differences() []difference {
	const unhealthy, healthy, revised = "reports_unhealthy_status", "recovers_and_reports_healthy_status", "reports_new_revision_healthy_status"
	return []difference{
		// Lanyard's events have other reasons, and no annotations.
		{"", "events["},
		{"", "len(events)"},
		{"TestKustomizationReconciler_OriginRevision", "annotationKey"},
		{"TestKustomizationReconciler_CancelHealthCheckOnNewRevision", "HealthCheckCanceled event"},
		{"TestKustomizationReconciler_CancelHealthCheckOnNewRevision", "cancelEvent"},
		// The history has one entry for each digest, and not one for each digest and result.
		{unhealthy, "HaveLen(2)"},
		{unhealthy, "TotalReconciliations"},
		{healthy, "HaveLen(2)"},
		{healthy, "TotalReconciliations"},
		{revised, "HaveLen(3)"},
		// The observed generation is the generation that was reconciled, also after a failure.
		{unhealthy, "resultK.Generation - 1"},
		// The condition Reconciling has the message of Ready.
		{unhealthy, "conditions.GetMessage(resultK, meta.ReconcilingCondition)"},
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
