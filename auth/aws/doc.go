// Package aws is the provider of Amazon Web Services. At AWS STS, it exchanges the proof of a
// subject for a session of the IAM role that the subject names. At Amazon ECR, it exchanges a
// session for registry credentials.
//
//	provider, err := aws.NewProvider(aws.Config{Region: region})
//
//	token, err := auth.GetToken(ctx, provider,
//		auth.WithServiceAccount("tenant-a", "puller", accounts),
//		auth.WithImageRepository("123456789123.dkr.ecr.eu-west-1.amazonaws.com/app"))
//
// A ServiceAccount names its role in the annotation [RoleAnnotation], and the role's trust policy
// names the ServiceAccount. With an image repository the token is an [auth.RegistryCredentials],
// otherwise a [*Token]. [NewCredentialsProvider] makes the same call from inside the AWS SDK.
//
// Sessions come from the STS endpoint of the call. The default is the region's endpoint in the SDK.
// The region is the first of these that is set:
//
//   - the region of the call
//   - the region of the endpoint
//   - [Config].Region, unless the image repository is in another partition
//   - the region of the image repository's host
//
// AWS_ variables are read only for the controller's own identity (the SDK's default chain).
//
// An administrator may list endpoints outside AWS ([Config].AllowedEndpointHosts), such as the STS
// of an S3-compatible store (MinIO, Ceph). A listed endpoint differs from AWS:
//
//   - It needs no region.
//   - The audience of its proofs is its host, with the port if that is not 443.
//   - The annotation may name a store's role (arn:minio:iam:::role/<id>), or be absent. Without a
//     role, MinIO decides by the proof's claims.
package aws
