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
// Sessions come from the STS endpoint of the call, or by default from the region's endpoint as the SDK knows it. The region is
// the first that is set: the call's, the endpoint's, [Config].Region, the region of the image repository's host; Config.Region
// is passed over if the repository is in another partition. AWS_ variables are read only for the controller's own identity
// (the SDK's default chain).
//
// An endpoint outside AWS that an administrator listed ([Config].AllowedEndpointHosts) may be the STS of an S3-compatible store,
// such as MinIO or Ceph. It gets a proof whose audience is its host, and needs no region. There, and only there, the annotation
// may name a store's role (arn:minio:iam:::role/<id>) or be absent: MinIO then decides by the proof's claims.
package aws
