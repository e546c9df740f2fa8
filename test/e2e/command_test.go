package e2e

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ecr"
	"github.com/aws/aws-sdk-go-v2/service/ecr/types"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lanyard-dev/lanyard/api/meta"
	"github.com/lanyard-dev/lanyard/api/toolkit/v1alpha1"
	"github.com/lanyard-dev/lanyard/internal/report"
)

// TestOperations suspends, resumes and reconciles an object with the command lanyard. The user is a
// tenant who may only write its own objects.
func TestOperations(t *testing.T) {
	beside(t)
	tn := newTenant(t, "operations")
	tn.pushFile(t, "1.0.0", "first")
	o := tn.object("app")
	o.Spec.Interval = metav1.Duration{Duration: time.Hour}
	create(t, o)
	await(t, o, "it is pulled", pulled)
	tn.putAccount(t, "editor", "")
	for _, role := range []string{"lanyard-view", "lanyard-edit"} {
		create(t, &rbacv1.RoleBinding{
			ObjectMeta: metav1.ObjectMeta{Namespace: tn.namespace, Name: role},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
			Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: tn.namespace, Name: "editor"}},
		})
	}
	as := kubeconfig(t, tn.namespace, "editor")
	lanyard := func(args ...string) (rows []report.Row, said string, err error) {
		t.Helper()
		args = append(args, "--kubeconfig", as, "-n", tn.namespace, "-o", "json", "--timeout", patience.String())
		cmd := exec.CommandContext(t.Context(), binary("lanyard"), args...)
		var errs bytes.Buffer
		cmd.Stderr = &errs
		out, err := cmd.Output()
		if len(out) > 0 {
			must(t, "read what lanyard prints", json.Unmarshal(out, &rows))
		}
		return rows, errs.String(), err
	}

	rows, said, err := lanyard("suspend", "ocirepository/app")
	if err != nil || len(rows) != 1 || rows[0].Result != report.Suspended {
		t.Fatalf("suspend: %+v, %v: %s", rows, err, said)
	}
	second := tn.pushFile(t, "1.0.0", "second")
	if _, said, err := lanyard("reconcile", "ocirepository/app"); err == nil || !strings.Contains(said, "lanyard resume ocirepository/app") {
		t.Errorf("reconcile of a suspended object: %v: %s", err, said)
	}
	rows, said, err = lanyard("resume", "--all")
	if err != nil || len(rows) != 1 || !strings.HasSuffix(rows[0].Revision, "@"+second) {
		t.Errorf("resume: %+v, %v: %s", rows, err, said)
	}
	third := tn.pushFile(t, "1.0.0", "third")
	rows, said, err = lanyard("reconcile", "ocirepository/app")
	if err != nil || len(rows) != 1 || !strings.HasSuffix(rows[0].Revision, "@"+third) {
		t.Errorf("reconcile: %+v, %v: %s", rows, err, said)
	}
	await(t, o, "the annotation is there", func(o *v1alpha1.OCIRepository) error {
		return wantf(o.Status.LastHandledReconcileAt == o.Annotations[meta.ReconcileRequestedAnnotation], "handled %q", o.Status.LastHandledReconcileAt)
	})
	offered, err := exec.CommandContext(t.Context(), binary("lanyard"), "__complete", "reconcile", "--kubeconfig", as, "-n", tn.namespace, "oci").Output()
	if err != nil || !strings.HasPrefix(string(offered), "ocirepository/app\t") {
		t.Errorf("the shell is offered %q, %v", offered, err)
	}
}

// TestImagesOfRealRegistry checks what DescribeImages and ListImages of the local cloud's Amazon
// ECR return for an image in a real registry.
func TestImagesOfRealRegistry(t *testing.T) {
	beside(t)
	tn := newTenant(t, "images-described")
	digest := tn.pushFile(t, "1.0.0", "first")
	out, err := ecrClient().DescribeImages(t.Context(), &ecr.DescribeImagesInput{
		RepositoryName: awssdk.String(tn.namespace + "/app"), ImageIds: []types.ImageIdentifier{{ImageTag: awssdk.String("1.0.0")}},
	})
	must(t, "describe the image", err)
	if got := out.ImageDetails[0]; *got.ImageDigest != digest || *got.ImageSizeInBytes == 0 || got.ImagePushedAt.IsZero() {
		t.Errorf("described as %+v, want %s", got, digest)
	}
	listed, err := ecrClient().ListImages(t.Context(), &ecr.ListImagesInput{RepositoryName: awssdk.String(tn.namespace + "/app")})
	if err != nil || len(listed.ImageIds) != 1 || *listed.ImageIds[0].ImageTag != "1.0.0" {
		t.Errorf("listed as %+v, %v", listed, err)
	}
}

// TestInterruptedStart checks that Ctrl-C during the start ends lanyard with one line and status
// 130.
func TestInterruptedStart(t *testing.T) {
	beside(t, lane4)
	cmd := exec.CommandContext(t.Context(), binary("lanyard"), "up", "--once", "--dir", filepath.Join(t.TempDir(), "demo"),
		"--controlplane", binary("controlplane"), "--controller", binary("lanyard-controller"))
	errs, err := cmd.StderrPipe()
	must(t, "read what lanyard says", err)
	must(t, "start lanyard", cmd.Start())
	var lines []string
	for scanner := bufio.NewScanner(errs); scanner.Scan(); {
		lines = append(lines, scanner.Text())
		if strings.HasSuffix(scanner.Text(), "etcd is up") {
			must(t, "interrupt lanyard", cmd.Process.Signal(os.Interrupt))
		}
	}
	var exit *exec.ExitError
	if err := cmd.Wait(); !errors.As(err, &exit) || exit.ExitCode() != 130 {
		t.Errorf("ended with %v", err)
	}
	if n := len(lines); n < 2 || !strings.HasSuffix(lines[n-2], "stopping") || lines[n-1] != "lanyard: interrupted" {
		t.Errorf("says %q", lines)
	}
}
