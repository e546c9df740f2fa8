package clouds

import (
	"context"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"

	"github.com/lanyard-dev/lanyard/api/toolkit/v1alpha1"
	"github.com/lanyard-dev/lanyard/auth/aws"
	"github.com/lanyard-dev/lanyard/internal/artifact/objectstore"
	"github.com/lanyard-dev/lanyard/internal/artifact/objectstore/s3"
	"github.com/lanyard-dev/lanyard/internal/clouds/buckets"
	"github.com/lanyard-dev/lanyard/internal/clouds/location"
)

// genericBuckets implements buckets.Service for any server with the protocol of Amazon S3. The
// tenant chooses the server, so the dial guard checks the server's addresses. A tenant may also
// choose to send its own AWS session to the server.
type genericBuckets struct{ aws *aws.Provider }

// Locate implements buckets.Service.
func (genericBuckets) Locate(spec v1alpha1.BucketSpec) (buckets.Place, error) {
	return location.Generic(spec), nil
}

// Open implements buckets.Service.
func (b genericBuckets) Open(_ context.Context, r buckets.Request) (objectstore.Storage, error) {
	return s3.New(s3.Options{
		Bucket: r.Bucket, Endpoint: r.Endpoint, Region: r.Region, PathStyle: true, Insecure: r.Insecure,
		Credentials: awsCredentials(b.aws, r), Transport: r.Transport, Caller: r.Caller,
	})
}

// awsCredentials returns the credentials of a session or of a user's keys. It returns nil if
// requests are not signed.
func awsCredentials(provider *aws.Provider, r buckets.Request) awssdk.CredentialsProvider {
	switch {
	case r.Mint != nil:
		return aws.NewCredentialsProvider(provider, r.Mint...)
	case r.Keys != nil:
		return credentials.NewStaticCredentialsProvider(r.Keys.ID, r.Keys.Secret.Reveal(), "")
	default:
		return nil
	}
}
