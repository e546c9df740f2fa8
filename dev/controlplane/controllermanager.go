package main

import (
	"context"
	"strings"

	"k8s.io/kubernetes/cmd/kube-controller-manager/app"
	controlleroptions "k8s.io/kubernetes/cmd/kube-controller-manager/app/options"
	"k8s.io/kubernetes/cmd/kube-controller-manager/names"

	"github.com/lanyard-dev/lanyard/dev/controlplane/pki"
)

// newControllerManager prepares kube-controller-manager with the controllers
// that an API without nodes needs, and returns its Run. kube-apiserver must be
// ready.
func newControllerManager(ctx context.Context, files pki.Files) (func(context.Context) error, error) {
	s, err := controlleroptions.NewKubeControllerManagerOptions()
	if err != nil {
		return nil, err
	}
	known, disabled, aliases := app.KnownControllers(), app.ControllersDisabledByDefault(), app.ControllerAliases()
	sets := s.Flags(known, disabled, aliases)
	err = parse("kube-controller-manager", sets, []string{
		"--controllers=" + strings.Join([]string{
			names.NamespaceController,
			names.GarbageCollectorController,
			names.ServiceAccountController,
			names.RootCACertificatePublisherController,
			names.ClusterRoleAggregationController,
		}, ","),
		"--kubeconfig=" + files.ControllerKubeconfig,
		"--root-ca-file=" + files.CACert,
		// As in a cluster: each controller under its own ServiceAccount and RBAC.
		"--use-service-account-credentials=true",
		// One process, so no second instance to elect against.
		"--leader-elect=false",
		// Its metrics and health have no reader here.
		"--secure-port=0",
		"--controller-shutdown-timeout=2s",
	})
	if err != nil {
		return nil, err
	}
	s.ParsedFlags = &sets
	config, err := s.Config(ctx, known, disabled, aliases)
	if err != nil {
		return nil, err
	}
	completed := config.Complete()
	return func(ctx context.Context) error { return app.Run(ctx, completed) }, nil
}
