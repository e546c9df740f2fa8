// Package aws is the provider of Amazon Web Services: it gives the proof of a subject to AWS STS for a session of the IAM
// role that the subject names, and a session to Amazon ECR for registry credentials.
//
//	provider, err := aws.NewProvider(aws.Config{Region: region})
//
//	token, err := auth.GetToken(ctx, provider,
//		auth.WithServiceAccount("tenant-a", "puller", accounts),
//		auth.WithImageRepository("123456789123.dkr.ecr.eu-west-1.amazonaws.com/app"))
//
// A ServiceAccount names its role in the annotation [RoleAnnotation]; the role's trust policy names the ServiceAccount. With
// an image repository the token is an [auth.RegistryCredentials], otherwise a [*Token]. [NewCredentialsProvider] makes the
// same call from inside the AWS SDK.
//
// Where a session is asked for: the STS endpoint of the call, else the endpoint that the SDK knows for the region. The region
// is the first that is set: the call's, the endpoint's, [Config].Region, the region of the image repository's host. No
// AWS_ variable has a say, except on the way to the controller's own identity (the SDK's default chain).
package aws
