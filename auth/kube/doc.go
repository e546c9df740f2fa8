// Package kube reads subjects from Kubernetes and gets proofs of them. It makes an [auth.Accounts]
// from a controller-runtime manager or cluster, for each of these kinds of subjects:
//
//   - ServiceAccounts ([Accounts])
//   - WorkloadIdentities of Lanyard's own issuer ([WorkloadIdentities])
//   - objects that are subjects themselves ([Objects])
//
// In the auth module, only this package and auth/kube/manager import a Kubernetes client.
//
// Most controllers call only New of auth/kube/manager, which makes the following parts:
//
//	mgr, err := ctrl.NewManager(config, ctrl.Options{Cache: kubecache.Options{ByObject: kube.ByObject(kube.DefaultAnnotations())}})
//	accounts, err := kube.FromManager(ctx, mgr, kube.Options{})
//	tokens := cache.New(cache.Options{}) // package auth/cache
//	accounts.Subscribe(tokens.Invalidate)
//	mgr.Add(manager.RunnableFunc(tokens.Run))
//
// Lookups are answered from memory, which a watch of metadata keeps up to date. So a cached token
// costs no API call. Before a token is issued, the account is read live. The proof (a TokenRequest)
// is bound to the UID that was read. So an account that is replaced in the meantime gets no proof.
//
// The program needs these permissions (RBAC):
//
//   - [Accounts]: get, list and watch on serviceaccounts, and create on serviceaccounts/token in
//     the namespaces of the accounts that the program acts for.
//   - [Accounts] without [Options].APIAudiences: also create on serviceaccounts/token in the
//     program's own namespace, and create on selfsubjectreviews.authentication.k8s.io. The
//     ClusterRole system:basic-user grants the latter.
//   - [WorkloadIdentities]: get, list and watch on workloadidentities.identity.lanyard.dev, and
//     create on workloadidentities/token of token.lanyard.dev. Also list and watch on
//     keyrings.identity.lanyard.dev in the token server's namespace.
//   - [Objects]: get, list and watch on the objects, and create on their subresource svid of
//     token.lanyard.dev.
//   - [SPIFFERing]: list and watch on keyrings.identity.lanyard.dev in the token server's
//     namespace.
package kube
