package main

import (
	"context"
	"errors"
	"net/url"

	"go.etcd.io/etcd/server/v3/embed"
)

// etcdEndpoint is etcd's client URL: a socket in the working directory. A port
// would be open, without authentication, to every user of the machine.
const etcdEndpoint = "unix://etcd.sock"

type etcdServer struct{ *embed.Etcd }

// startEtcd starts a single-member etcd on dir and returns once it serves.
func startEtcd(ctx context.Context, dir string) (*etcdServer, error) {
	cfg := embed.NewConfig()
	cfg.Name = "controlplane"
	cfg.Dir = dir
	cfg.LogLevel = "warn"
	// The data stays in the page cache when the process ends. Only a power cut loses data, and
	// nobody needs this state after a power cut.
	cfg.UnsafeNoFsync = true
	// A sole member wins every election. So the default election timeout of a second would only
	// delay the start. At rest, etcd does little more than wake up for each tick. So a tick is as
	// long as etcd allows: a fifth of the election timeout.
	cfg.TickMs, cfg.ElectionMs = 50, 250
	// NewConfig sets no threshold. With zero, etcd would report every request as slow.
	cfg.WarningUnaryRequestDuration = embed.DefaultWarningUnaryRequestDuration
	cfg.EnableGRPCGateway = false
	cfg.ListenClientUrls = []url.URL{{Scheme: "unix", Host: "etcd.sock"}}
	cfg.ListenPeerUrls = nil // there are no peers
	cfg.InitialCluster = cfg.InitialClusterFromName(cfg.Name)

	e, err := embed.StartEtcd(cfg)
	if err != nil {
		return nil, err
	}
	select {
	case <-e.Server.ReadyNotify():
		return &etcdServer{e}, nil
	case err := <-e.Err():
		e.Close()
		return nil, err
	case <-ctx.Done():
		e.Close()
		return nil, context.Cause(ctx)
	}
}

// run waits until ctx ends or etcd fails, and closes etcd.
func (e *etcdServer) run(ctx context.Context) error {
	defer e.Close()
	select {
	case err := <-e.Err():
		return err
	case <-e.Server.StopNotify():
		return errors.New("the server stopped")
	case <-ctx.Done():
		return nil
	}
}
