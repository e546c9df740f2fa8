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
//
// An endpoint that is not AWS's, which an administrator listed ([Config].AllowedEndpointHosts), may be an S3-compatible store's
// own STS, such as MinIO's or Ceph's. It gets a proof whose audience is its host, and needs no region. There, and only there,
// the annotation may name a store's role (arn:minio:iam:::role/<id>) or be absent: MinIO then decides by the proof's claims.
package aws
