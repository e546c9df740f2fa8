// Package auth gets short-lived credentials for the subjects that a controller acts for.
//
// A subject (a ServiceAccount, a WorkloadIdentity, the controller itself) is proven, the proof is exchanged at a cloud,
// and the result is a [Token]:
//
//	subject ──proof──▶ exchange ──▶ token
//
// One call does it all and answers from a cache when it can:
//
//	accounts, err := kube.FromManager(ctx, mgr, kube.Options{})  // reads and proves ServiceAccounts
//	tokens := cache.New(cache.Options{MaxSize: 10_000})
//	accounts.Subscribe(tokens.Invalidate)                        // a changed account loses its tokens at once
//
//	token, err := auth.GetToken(ctx, provider,
//		auth.WithServiceAccount("tenant-a", "puller", accounts),
//		auth.WithCache(tokens, auth.InvolvedObject{}),
//		auth.WithImageRepository("123456789123.dkr.ecr.eu-west-1.amazonaws.com/app"),
//	)
//
// The package knows no Kubernetes client and no cloud SDK: [AccountReader] and [Prover] say what a subject is and vouch
// for it (package auth/kube makes both from a manager), a [Provider] exchanges the proof. Packages auth/aws, auth/azure and
// auth/gcp are the providers; a program links the SDKs of those that it imports, and no others. Each has an adapter by which
// its cloud's SDK makes the same call: aws.NewCredentialsProvider, azure.NewTokenCredential, gcp.NewTokenSource.
//
// Everything fails closed. A subject is never implied: leaving it out is an error, and the controller's own identity is
// asked for by name, [WithController]. Failures are an [*Error] with a stage, a stable code and the next step to take.
package auth
