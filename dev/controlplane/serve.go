package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/lanyard-dev/lanyard/dev/controlplane/component"
	"github.com/lanyard-dev/lanyard/dev/controlplane/pki"
)

// How long each component may take to stop. Together they take at most ten seconds.
const (
	controllerManagerGrace = 3 * time.Second
	apiserverGrace         = 5 * time.Second
	etcdGrace              = 2 * time.Second
)

// options are the flags of serve. Paths are absolute once parseFlags returns.
type options struct {
	// DataDir holds all state; see the package comment. Required.
	DataDir string
	// Issuer is the issuer of ServiceAccount tokens: an https URL without query
	// and fragment (OpenID Connect Discovery 1.0 §2). Required.
	Issuer string
	// AuthenticationConfig is the file of an AuthenticationConfiguration
	// (apiserver.config.k8s.io), which names further issuers of tokens. The API
	// server reads the file again when it changes. Default: none.
	AuthenticationConfig string
	// StopWithStdin ends serve when standard input ends, which also happens when the process that
	// holds the other end of standard input is killed.
	StopWithStdin bool
}

func parseFlags(args []string, out io.Writer) (options, error) {
	var o options
	fs := flag.NewFlagSet("controlplane serve", flag.ContinueOnError)
	fs.SetOutput(out)
	fs.StringVar(&o.DataDir, "data-dir", "", "`directory` of all state, created with mode 0700; required")
	fs.StringVar(&o.Issuer, "service-account-issuer", "", "issuer of ServiceAccount tokens, an https `URL`; required")
	fs.StringVar(&o.AuthenticationConfig, "authentication-config", "",
		"`file` with an AuthenticationConfiguration: further issuers that the API server trusts")
	fs.BoolVar(&o.StopWithStdin, "stop-with-stdin", false, "stop when standard input ends, and leave interrupts to its owner")
	if err := fs.Parse(args); err != nil {
		return options{}, err
	}
	if fs.NArg() > 0 {
		return options{}, fmt.Errorf("unexpected argument %q", fs.Arg(0))
	}
	if o.DataDir == "" {
		return options{}, errors.New("--data-dir is required")
	}
	if err := checkHTTPS(o.Issuer); err != nil {
		return options{}, fmt.Errorf("--service-account-issuer: %w", err)
	}
	for _, path := range []*string{&o.DataDir, &o.AuthenticationConfig} {
		if *path == "" { // no authentication configuration
			continue
		}
		abs, err := filepath.Abs(*path)
		if err != nil {
			return options{}, fmt.Errorf("resolve %q: %w", *path, err)
		}
		*path = abs
	}
	return o, nil
}

// checkHTTPS refuses an issuer that is not https. kube-apiserver would accept such an issuer, but
// would not publish its discovery document.
func checkHTTPS(raw string) error {
	u, err := url.Parse(raw)
	if err != nil {
		return err
	}
	if u.Scheme != "https" || u.Host == "" || u.RawQuery != "" || u.Fragment != "" || u.User != nil {
		return fmt.Errorf("%q must be an https URL with a host and without user, query and fragment", u.Redacted())
	}
	return nil
}

// untilEOF returns a context that ends with ctx or when r ends.
func untilEOF(ctx context.Context, r io.Reader) context.Context {
	ctx, cancel := context.WithCancelCause(ctx)
	go func() {
		_, err := io.Copy(io.Discard, r)
		cancel(fmt.Errorf("standard input ended: %w", errors.Join(io.EOF, err)))
	}()
	return ctx
}

// serve runs the control plane until ctx ends or a component fails. It returns nil only if ctx
// ended and no component failed. A component that does not stop in time does not count as failed.
func serve(ctx context.Context, o options, out io.Writer) (err error) {
	if err := os.MkdirAll(o.DataDir, 0o700); err != nil {
		return fmt.Errorf("create data directory: %w", err)
	}
	unlock, err := lock(filepath.Join(o.DataDir, "lock"))
	if err != nil {
		return err
	}
	defer unlock()
	// The path of etcd's socket is relative to DataDir: an absolute path may exceed the 107 bytes
	// that a socket's name can have.
	if err := os.Chdir(o.DataDir); err != nil {
		return err
	}

	listener, err := listen(ctx, filepath.Join(o.DataDir, "port"))
	if err != nil {
		return err
	}
	defer func() { _ = listener.Close() }() // fails if kube-apiserver has closed it
	server := "https://" + listener.Addr().String()

	files, err := pki.Prepare(o.DataDir, server, time.Now())
	if err != nil {
		return err
	}
	probe, err := newProbe(server, files)
	if err != nil {
		return err
	}

	// Components keep running after ctx ends, so that they can be stopped in order: the component
	// that was started last is stopped first.
	base := context.WithoutCancel(ctx)
	var started []*component.Component
	defer func() {
		for _, c := range slices.Backward(started) {
			late := c.Stop()
			if errors.Is(late, component.ErrStillRunning) {
				// A component that does not end in time does not count as failed. It ends when the
				// process exits, after etcd has closed.
				say(out, "%v: ending without it", late)
				continue
			}
			err = errors.Join(err, late)
		}
	}()

	etcd, err := startEtcd(ctx, filepath.Join(o.DataDir, "etcd"))
	if err != nil {
		return fmt.Errorf("etcd: %w", err)
	}
	started = append(started, component.Start(base, "etcd", etcdGrace, etcd.run))
	say(out, "etcd is up")

	apiserver, err := newAPIServer(base, o, files, listener)
	if err != nil {
		return fmt.Errorf("kube-apiserver: %w", err)
	}
	started = append(started, component.Start(base, "kube-apiserver", apiserverGrace, apiserver))
	if err := component.WaitFor(ctx, started, probe.healthy); err != nil {
		return fmt.Errorf("kube-apiserver: %w", err)
	}
	say(out, "kube-apiserver is up at %s", server)

	controllers, err := newControllerManager(files)
	if err != nil {
		return fmt.Errorf("kube-controller-manager: %w", err)
	}
	started = append(started, component.Start(base, "kube-controller-manager", controllerManagerGrace, controllers))
	if err := component.WaitFor(ctx, started, probe.populated); err != nil {
		return fmt.Errorf("kube-controller-manager: %w", err)
	}
	say(out, "kube-controller-manager is up")

	say(out, "ready %s", server)

	if failed := component.FirstToEnd(ctx, started); failed != nil {
		return failed.Failure()
	}
	say(out, "stopping: %v", context.Cause(ctx))
	return nil
}

// say reports a step. Errors of the output are ignored, because serve goes on even if nobody reads
// the output.
func say(out io.Writer, format string, args ...any) {
	_, _ = fmt.Fprintf(out, format+"\n", args...)
}

// lock reserves the directory for this process. The kernel releases the lock when the process ends,
// even by a crash.
func lock(path string) (unlock func(), err error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600) //nolint:gosec // in the operator's own directory
	if err != nil {
		return nil, fmt.Errorf("open lock: %w", err)
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		_ = f.Close() // the error of Flock is reported instead
		return nil, fmt.Errorf("%s is in use by another control plane: %w", filepath.Dir(path), err)
	}
	return func() { _ = f.Close() }, nil
}

// listen opens the API server's loopback listener, and writes its port into portFile. The port is
// that of the last start if it is free, else any free port. The listener stays open from here on,
// so that no other program takes the port.
func listen(ctx context.Context, portFile string) (net.Listener, error) {
	var lc net.ListenConfig
	last, _ := os.ReadFile(portFile) //nolint:gosec // in the operator's own directory; without the file any port is chosen
	l, err := lc.Listen(ctx, "tcp", "127.0.0.1:"+strings.TrimSpace(string(last)))
	if err != nil {
		l, err = lc.Listen(ctx, "tcp", "127.0.0.1:0")
	}
	if err != nil {
		return nil, fmt.Errorf("listen for kube-apiserver: %w", err)
	}
	_, chosen, err := net.SplitHostPort(l.Addr().String())
	if err == nil {
		err = pki.WriteFile(portFile, []byte(chosen+"\n"))
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("note kube-apiserver's port: %w", err), l.Close())
	}
	return l, nil
}
