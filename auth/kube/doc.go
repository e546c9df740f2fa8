// Package kube reads subjects from Kubernetes and gets proofs of them. The subjects are
// ServiceAccounts, WorkloadIdentities of Lanyard's own issuer, and objects that are subjects
// themselves. The package makes an [auth.Accounts] for each of these kinds from a
// controller-runtime manager or cluster. In the auth module, only this package and
// auth/kube/manager import a Kubernetes client.
//
// Most controllers call only New of auth/kube/manager, which makes the following parts:
//
//	mgr, err := ctrl.NewManager(config, ctrl.Options{Cache: kubecache.Options{ByObject: kube.ByObject(kube.DefaultAnnotations())}})
//	accounts, err := kube.FromManager(ctx, mgr, kube.Options{})
//	tokens := cache.New(cache.Options{}) // package auth/cache
//	accounts.Subscribe(tokens.Invalidate)
//	mgr.Add(manager.RunnableFunc(tokens.Run))
//
// Lookups are answered from memory, which a watch of metadata keeps up to date, so that a cached
// token costs no API call. Before a token is issued, the account is read live. The proof (a
// TokenRequest) is bound to the UID that was read. So an account that is replaced in the meantime
// gets no proof.
//
// The program needs these permissions (RBAC): get, list and watch on serviceaccounts, and create on
// serviceaccounts/token in the namespaces of the accounts that it acts for. Unless
// [Options].APIAudiences is set, it also needs create on serviceaccounts/token in its own
// namespace, and create on selfsubjectreviews.authentication.k8s.io, which the ClusterRole
// system:basic-user grants. For [WorkloadIdentities] it needs get, list and watch on
// workloadidentities.identity.lanyard.dev, list and watch on keyrings.identity.lanyard.dev in the
// token server's namespace, and create on workloadidentities/token of token.lanyard.dev. For
// [Objects] it needs get, list and watch on the objects, and create on their subresource svid of
// token.lanyard.dev. For [SPIFFERing] it needs list and watch on the same keyrings.
package kube
