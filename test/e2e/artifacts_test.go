package e2e

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/distribution/distribution/v3/configuration"
	"github.com/distribution/distribution/v3/registry/handlers"
)

// gate is a registry that can hold back the upload of a layer.
type gate struct {
	registry http.Handler

	mu sync.Mutex
	// reached is closed when an upload waits. It is nil if no upload has to wait.
	reached  chan struct{}
	released chan struct{}
}

// shut makes the next upload wait. The channel reached is closed when the upload has arrived. The
// function release ends the upload's request without an answer.
func (g *gate) shut() (reached <-chan struct{}, release func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.reached, g.released = make(chan struct{}), make(chan struct{})
	return g.reached, sync.OnceFunc(func() { close(g.released) })
}

func (g *gate) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	g.mu.Lock()
	reached, released := g.reached, g.released
	if r.Method == http.MethodPatch {
		g.reached = nil
	}
	g.mu.Unlock()
	if r.Method != http.MethodPatch || reached == nil {
		g.registry.ServeHTTP(w, r)
		return
	}
	close(reached)
	<-released
	panic(http.ErrAbortHandler) // send no answer: the test has ended the client
}

// newPlainRegistry starts the registry CNCF Distribution at a host, without authentication.
func newPlainRegistry(t *testing.T, host string) *gate {
	t.Helper()
	config := &configuration.Configuration{Storage: configuration.Storage{
		"inmemory":    configuration.Parameters{},
		"maintenance": configuration.Parameters{"uploadpurging": map[any]any{"enabled": false}},
	}}
	config.HTTP.RelativeURLs = true
	config.Log.AccessLog.Disabled = true
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	g := &gate{registry: handlers.NewApp(ctx, config)}
	must(t, "start a registry", world.Cloud().Handle(host, g))
	t.Cleanup(func() {
		_ = world.Cloud().Handle(host, nil)
		cancel()
	})
	return g
}

// TestArtifacts follows an artifact: a job pushes a folder, the controller deploys it, and another
// job pulls the same content.
func TestArtifacts(t *testing.T) {
	beside(t)
	const host = "artifacts.registry.example.com"
	registry := newPlainRegistry(t, host)
	app := "oci://" + host + "/team/app"
	job := newCIJob(t)
	must(t, "write content", os.WriteFile(filepath.Join(job.folder, "run.sh"), []byte("#!/bin/sh\n"), 0o700))
	lanyard := func(args ...string) string {
		t.Helper()
		out, said, err := job.run(t, binary("lanyard"), args...)
		if err != nil {
			t.Fatalf("%q: %v: %s", args, err, said)
		}
		return strings.TrimSpace(out)
	}

	pushed := lanyard("push", "artifact", app+":1.0.0", "--path", job.folder, "--source=https://git.example.com/app", "--revision=main@sha1:0123", "--reproducible")
	if again := lanyard("push", "artifact", app+":1.0.0", "--path", job.folder, "--source=https://git.example.com/app", "--revision=main@sha1:0123", "--reproducible"); again != pushed {
		t.Errorf("pushed %s, and then %s", pushed, again)
	}
	tn := newTenant(t, "artifacts")
	o := tn.generic("app", app)
	create(t, o)
	await(t, o, "it is pulled", pulled)
	if deployed := o.Status.Artifact; !strings.HasSuffix(deployed.Revision, pushed[strings.LastIndex(pushed, "@"):]) ||
		deployed.Metadata["org.opencontainers.image.revision"] != "main@sha1:0123" {
		t.Errorf("pushed %s; the controller has %+v", pushed, deployed)
	}
	lanyard("tag", "artifact", app+":1.0.0", "--tag=stable")
	if tags := lanyard("list", "artifact", app); tags != "1.0.0\nstable" {
		t.Errorf("tags %q", tags)
	}
	target := filepath.Join(t.TempDir(), "target")
	lanyard("pull", "artifact", app+":stable", "--path", target)
	if info, err := os.Stat(filepath.Join(target, "run.sh")); err != nil || info.Mode()&0o100 == 0 {
		t.Errorf("pulled: %v, %v", info, err)
	}
	lanyard("diff", "artifact", app+":stable", "--path", target)
	must(t, "change content", os.WriteFile(filepath.Join(target, "app.yaml"), []byte("kind: Secret\n"), 0o600))
	if out, _, err := job.run(t, binary("lanyard"), "diff", "artifact", app+":stable", "--path", target); err == nil || !strings.Contains(out, "-kind: ConfigMap\n+kind: Secret\n") {
		t.Errorf("diff: %v: %s", err, out)
	}
	interruptedPush(t, registry, job, app)
}

// interruptedPush sends SIGINT to a push during its upload. Nothing must be published, and a second
// push must work.
func interruptedPush(t *testing.T, registry *gate, job *ciJob, app string) {
	t.Helper()
	content := make([]byte, 4<<20)
	_, _ = rand.Read(content)
	must(t, "write content", os.WriteFile(filepath.Join(job.folder, "large.bin"), content, 0o600))
	reached, release := registry.shut()
	cmd := exec.CommandContext(t.Context(), binary("lanyard"), "push", "artifact", app+":2.0.0", "--path", job.folder)
	cmd.Env = append(job.env, "TMPDIR="+t.TempDir())
	var said bytes.Buffer
	cmd.Stderr = &said
	must(t, "start a push", cmd.Start())
	<-reached
	must(t, "interrupt the push", cmd.Process.Signal(syscall.SIGINT))
	err := cmd.Wait()
	release()
	if exit, ok := errors.AsType[*exec.ExitError](err); !ok || exit.ExitCode() != 130 || said.String() != "lanyard: interrupted\n" {
		t.Errorf("interrupted: %v: %s", err, said.String())
	}
	if out, _, err := job.run(t, binary("lanyard"), "pull", "artifact", app+":2.0.0", "--path", filepath.Join(t.TempDir(), "target")); err == nil {
		t.Errorf("the tag is there: %s", out)
	}
	if out, said, err := job.run(t, binary("lanyard"), "push", "artifact", app+":2.0.0", "--path", job.folder); err != nil {
		t.Errorf("pushed again: %v: %s%s", err, out, said)
	}
}
