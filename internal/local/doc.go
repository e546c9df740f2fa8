// Package local runs a whole world on this machine: a real Kubernetes API, a cloud that verifies, a registry, and Lanyard's
// controller under the permissions that the chart gives it. The command lanyard up runs its steps one after the other; the
// end-to-end tests run them with other settings.
//
//	world, err := local.Start(ctx, local.Options{Dir: ".demo", ControlPlane: "bin/controlplane", Cloud: cfg})
//	if err != nil { … }
//	defer world.Stop(context.WithoutCancel(ctx))
//	err = world.InstallChart(ctx, nil)
//	controller, err := world.StartController(ctx, local.ControllerOptions{Binary: "bin/lanyard-controller"})
//	_, err = world.Push(ctx, local.Push{Repository: "tenant-a/app", Tag: "1.0.0", Path: "artifacts/tenant-a"})
//	err = world.Apply(ctx, examples.Files())
//	rows, err := world.Settle(ctx, nil)
//
// Nothing leaves the machine. The administrator's credential is used to install, apply and watch, never by the controller.
package local
