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
// The program needs these permissions (RBAC): get, list and watch on serviceaccounts, and create on serviceaccounts/token,
// of the accounts it acts for and of its own.
package kube
