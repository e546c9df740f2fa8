// Package auth gets short-lived credentials for the subjects that a controller acts for.
//
// A [Prover] makes a proof of a subject, such as a ServiceAccount or a WorkloadIdentity. A cloud
// exchanges the proof for a [Token]:
//
//	subject ──proof──▶ exchange ──▶ token
//
// One call, [GetToken], takes all these steps. It answers from a cache if it can:
//
//	mgr, err := manager.New(ctx, config, manager.Options{}) // once per program: package auth/kube/manager
//	provider, err := aws.NewProvider(aws.Config{})
//
//	token, err := auth.GetToken(ctx, provider,
//		auth.WithServiceAccount("tenant-a", "puller", mgr.Accounts), // reads accounts, makes proofs
//		auth.WithCache(mgr.Tokens, auth.InvolvedObject{}),           // drops tokens after changes
//		auth.WithImageRepository("123456789123.dkr.ecr.eu-west-1.amazonaws.com/app"),
//	)
//
// The package imports no Kubernetes client and no cloud SDK. An [AccountReader] reads a subject, a
// [Prover] proves the subject, and a [Provider] exchanges the proof. Other packages implement these
// interfaces:
//
//   - auth/kube makes an AccountReader and a Prover from a manager.
//   - auth/aws, auth/azure and auth/gcp are the providers of the clouds. A program links only the
//     SDKs of the providers that it imports.
//   - auth/bearer and auth/svid are providers that exchange nothing, because the proof itself is
//     the credential.
//
// Package auth/providers links the three clouds, and finds a provider by its name in an object's
// spec.
//
// Each cloud provider has an adapter through which the cloud's SDK gets its tokens from GetToken.
// The adapters are aws.NewCredentialsProvider, azure.NewTokenCredential and gcp.NewTokenSource.
//
// Everything fails closed. A call without a subject is an error: a program must ask for its own
// identity with [WithController]. A failure is an [*Error] with a stage, a stable code and the next
// step to take.
package auth
