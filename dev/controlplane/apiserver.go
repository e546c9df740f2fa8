package main

import (
	"context"
	"errors"
	"net"
	"path/filepath"
	"strings"

	"github.com/spf13/pflag"
	"k8s.io/client-go/rest"
	cliflag "k8s.io/component-base/cli/flag"
	"k8s.io/kubernetes/cmd/kube-apiserver/app"
	apiserveroptions "k8s.io/kubernetes/cmd/kube-apiserver/app/options"

	"github.com/lanyard-dev/lanyard/dev/controlplane/pki"
)

// clusterAudience is an audience that clusters usually accept. This API server accepts it in
// addition to the issuer's URL.
const clusterAudience = "https://kubernetes.default.svc"

// auditPolicy logs every request when it ends, without bodies. A watch is also logged when it
// starts (ResponseStarted).
const auditPolicy = `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- level: Metadata
`

// newAPIServer prepares kube-apiserver with the listener l, and returns the function that runs it.
func newAPIServer(ctx context.Context, o options, files pki.Files, l net.Listener) (func(context.Context) error, error) {
	if err := pki.WriteFile(files.AuditPolicy, []byte(auditPolicy)); err != nil {
		return nil, err
	}
	s := apiserveroptions.NewServerRunOptions()
	args := []string{
		"--bind-address=127.0.0.1",
		"--advertise-address=127.0.0.1",
		// The API server writes no Endpoints for its Service, because Endpoints must not hold a
		// loopback address. No program on this machine reaches the API server through its Service.
		"--endpoint-reconciler-type=none",
		"--service-cluster-ip-range=" + pki.ServiceCIDR,
		"--etcd-servers=" + etcdEndpoint,
		"--tls-cert-file=" + files.ServingCert,
		"--tls-private-key-file=" + files.ServingKey,
		"--client-ca-file=" + files.CACert,
		"--authorization-mode=RBAC",

		"--service-account-issuer=" + o.Issuer,
		"--service-account-jwks-uri=" + strings.TrimSuffix(o.Issuer, "/") + "/openid/v1/jwks",
		"--service-account-signing-key-file=" + files.ServiceAccountKey,
		"--service-account-key-file=" + files.ServiceAccountKey,
		"--api-audiences=" + o.Issuer + "," + clusterAudience,

		// An aggregated API server needs these settings to trust the names of callers in forwarded
		// requests.
		"--requestheader-client-ca-file=" + files.FrontProxyCACert,
		"--requestheader-allowed-names=" + pki.FrontProxyName,
		"--requestheader-username-headers=X-Remote-User",
		"--requestheader-uid-headers=X-Remote-Uid",
		"--requestheader-group-headers=X-Remote-Group",
		"--requestheader-extra-headers-prefix=X-Remote-Extra-",
		"--proxy-client-cert-file=" + files.FrontProxyCert,
		"--proxy-client-key-file=" + files.FrontProxyKey,

		"--audit-policy-file=" + files.AuditPolicy,
		"--audit-log-path=" + filepath.Join(o.DataDir, "audit.log"),
		// A request is answered only after its line in the log is written.
		"--audit-log-mode=blocking",
		// The size, in MiB, is so large that the log stays one file, as its readers expect. The
		// value 0 would mean 100 MiB.
		"--audit-log-maxsize=1048576",

		// Without this flag, a stop waits up to a minute for clients to end their watches.
		"--shutdown-watch-termination-grace-period=2s",
	}
	if o.AuthenticationConfig != "" {
		args = append(args, "--authentication-config="+o.AuthenticationConfig)
	}
	if err := parse("kube-apiserver", s.Flags(), args); err != nil {
		return nil, err
	}
	s.SecureServing.Listener = l
	s.SecureServing.BindPort = l.Addr().(*net.TCPAddr).Port

	if err := s.GenericServerRunOptions.ComponentGlobalsRegistry.Set(); err != nil {
		return nil, err
	}
	// Discard warnings. Otherwise the server's own loopback clients would log the warnings that the
	// server sends to them.
	rest.SetDefaultWarningHandler(rest.NoWarnings{})

	completed, err := s.Complete(ctx)
	if err != nil {
		return nil, err
	}
	if err := errors.Join(completed.Validate()...); err != nil {
		return nil, err
	}
	return func(ctx context.Context) error { return app.Run(ctx, completed) }, nil
}

// parse reads args as a component's command line.
func parse(name string, sets cliflag.NamedFlagSets, args []string) error {
	fs := pflag.NewFlagSet(name, pflag.ContinueOnError)
	for _, set := range sets.FlagSets {
		fs.AddFlagSet(set)
	}
	return fs.Parse(args)
}
