// Package kube reads and proves Kubernetes ServiceAccounts: it makes the [auth.Accounts] that package auth asks for, from
// a controller-runtime manager. It is the only package of the auth module that knows a Kubernetes client.
//
//	mgr, err := ctrl.NewManager(config, ctrl.Options{Cache: cache.Options{ByObject: kube.ByObject(kube.DefaultAnnotations())}})
//	accounts, err := kube.FromManager(ctx, mgr, kube.Options{})
//	accounts.Subscribe(tokens.Invalidate)
//
// What a ServiceAccount maps to is answered from memory, fed by a watch of metadata, so that a cached token costs no API
// call. Before a token is issued the account is read live, and the proof (a TokenRequest) is bound to the UID that was
// read: an account that is swapped in between yields no proof.
//
// The program needs these permissions (RBAC): get, list and watch on serviceaccounts, and create on serviceaccounts/token in the
// namespaces of the accounts that it acts for. Unless [Options].APIAudiences is set, it also needs create on serviceaccounts/token in
// its own namespace, and create on selfsubjectreviews.authentication.k8s.io, which the ClusterRole system:basic-user grants.
package kube
