package keyservice

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"slices"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/service/kms"
	"github.com/aws/smithy-go"

	"github.com/lanyard-dev/lanyard/auth"
	"github.com/lanyard-dev/lanyard/auth/endpoint"
	"github.com/lanyard-dev/lanyard/internal/clouds/awsclient"
	"github.com/lanyard-dev/lanyard/internal/encryptedfile/masterkey"
)

// decryptAWS decrypts with AWS KMS. Source: KMS API Reference, Decrypt.
func (s *Service) decryptAWS(ctx context.Context, key masterkey.Key, options []auth.Option) ([]byte, error) {
	if err := refuseIdentity(key.AWS); err != nil {
		return nil, err
	}
	arn, err := endpoint.ParseKMSKey(key.AWS.ARN)
	if err != nil {
		return nil, err
	}
	encrypted, err := decode(base64.StdEncoding, key.Encrypted)
	if err != nil {
		return nil, err
	}
	host := arn.Host(endpoint.Variant{})
	scope := awsclient.Scope{
		Provider: s.Clouds.AWS, Options: append(slices.Clip(options), auth.WithSTSRegion(arn.Region.Name)),
		Region: arn.Region, HTTPClient: s.client(host),
	}
	client := kms.NewFromConfig(scope.Config(), func(o *kms.Options) {
		o.BaseEndpoint = awssdk.String("https://" + host)
		o.RetryMaxAttempts = attempts
	})
	answer, err := client.Decrypt(ctx, &kms.DecryptInput{KeyId: awssdk.String(arn.String()), CiphertextBlob: encrypted, EncryptionContext: key.AWS.Context})
	if err != nil {
		return nil, awsError(err)
	}
	return answer.Plaintext, nil
}

// attempts is how often a call is tried, if a key service is busy.
const attempts = 3

// refuseIdentity refuses a key that says whose identity to use.
func refuseIdentity(key *masterkey.AWS) error {
	const fix = "remove it from the file; the role is that of the identity in spec.decryption, such as the annotation eks.amazonaws.com/role-arn of the ServiceAccount"
	switch {
	case key.Role != "":
		return fmt.Errorf("the file names the role %.200q, and a file chooses no identity: %s", key.Role, fix)
	case key.Profile != "":
		return fmt.Errorf("the file names the profile %.200q (aws_profile), and a file chooses no identity: %s", key.Profile, fix)
	}
	return nil
}

// awsError converts an error of the AWS SDK.
func awsError(err error) error {
	if refused, ok := errors.AsType[*auth.Error](err); ok {
		return refused // without the words of the SDK around it
	}
	failure := &serviceError{service: "AWS KMS"}
	if answer, ok := errors.AsType[smithy.APIError](err); ok {
		failure.code, failure.message = answer.ErrorCode(), answer.ErrorMessage()
		if response, ok := errors.AsType[*awshttp.ResponseError](err); ok {
			failure.status = response.HTTPStatusCode()
		}
		return failure
	}
	failure.err = err
	return failure
}
