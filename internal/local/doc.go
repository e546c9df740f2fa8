// Package local runs clouds and clusters on this machine. A cloud has registries and buckets, and
// verifies credentials like the real clouds. A cluster uses a cloud. The cluster is a real
// Kubernetes API with the programs of Lanyard's chart. The programs have the permissions of the
// chart. The command lanyard up runs the steps below; the end-to-end tests run them with other
// settings.
//
//	cloud, err := local.StartCloud(ctx, local.CloudOptions{Dir: ".demo", Config: cfg})
//	if err != nil { … }
//	defer cloud.Stop()
//	cluster, err := local.StartCluster(ctx, local.ClusterOptions{Cloud: cloud, ControlPlane: "bin/controlplane"})
//	if err != nil { … }
//	defer cluster.Stop(context.WithoutCancel(ctx))
//	err = cluster.InstallChart(ctx, nil)
//	controller, err := cluster.StartProgram(ctx, local.ProgramOptions{Workload: "lanyard-controller", Binary: "bin/lanyard-controller"})
//	_, err = cloud.Push(ctx, local.Push{Repository: "tenant-a/app", Tag: "1.0.0", Path: "artifacts/tenant-a"})
//	manifests, err := local.ReadManifests(ctx, "", examples.Files())
//	_, err = cluster.Apply(ctx, manifests)
//	rows, err := cluster.Settle(ctx, nil)
//
// Nothing leaves the machine. The administrator's credential is used to install, apply and watch.
// The programs never use it.
package local
