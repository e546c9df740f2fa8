// Controlplane is a Kubernetes control plane in one program, for the demo and the end-to-end tests.
// It has etcd, kube-apiserver, kubectl, and the few controllers of kube-controller-manager that an
// API without nodes needs. It is made of Kubernetes' own modules, so a test that passes here passes
// against a cluster. It has no nodes, no scheduler and no network, and it is not shipped.
//
//	controlplane serve --data-dir DIR --service-account-issuer URL
//	controlplane kubectl --kubeconfig DIR/admin.kubeconfig get namespaces
//
// A link to the program behaves as kubectl if the link is named kubectl.
//
// # One process
//
// serve runs every component as a goroutine of one process. So there is one log, and nothing is
// left behind when the process is killed.
//
// The command of kube-apiserver (app.NewAPIServerCommand) would handle the process's signals and
// configure its logging. So serve uses only the options and the Run function of that command. It
// sets most options by kube-apiserver's flags, as a cluster's administrator would write them.
//
// The package of kube-controller-manager's command imports all controllers, which take minutes to
// compile. So controllermanager.go does not use this package. It makes each of the few controllers
// itself.
//
// # What DIR holds
//
// DIR is readable by its owner only and belongs to one running serve at a time.
// It keeps the state across restarts:
//
//	etcd/               the database
//	etcd.sock           etcd's only listener: who cannot read DIR cannot reach it
//	ca.crt, ca.key      the authority for serving and client certificates
//	front-proxy-ca.crt  the authority that vouches for the aggregator's certificate
//	sa.key              the RSA key that signs ServiceAccount tokens
//	port                the port of the last start, taken again when it is free
//	admin.kubeconfig    the administrator's access, written anew at every start
//	audit.log           every request, level Metadata, RequestReceived omitted
//
// Authorities and sa.key are made once; all other certificates are issued at
// every start.
//
// # What standard output says
//
// One line per step, then "ready URL" once /readyz is ok and the namespace
// default has its ServiceAccount. Logs go to standard error.
package main
