package s3_test

import (
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	sdk "github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/lanyard-dev/lanyard/auth/endpoint"
)

// TestHostsAreTheSDKs compares the S3 hosts of package endpoint with the hosts of AWS's SDK, in
// every partition and variant that the SDK supports.
func TestHostsAreTheSDKs(t *testing.T) {
	resolved := 0
	for _, name := range []string{
		"us-east-1", "eu-west-1", "ap-southeast-5", "mx-central-1", "cn-north-1", "cn-northwest-1", "us-gov-west-1", "us-gov-east-1",
		"eusc-de-east-1", "us-iso-east-1", "us-isob-east-1", "eu-isoe-west-1", "us-isof-south-1",
	} {
		region, err := endpoint.ParseAWSRegion(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, v := range []endpoint.Variant{{}, {FIPS: true}, {DualStack: true}, {FIPS: true, DualStack: true}} {
			got, err := sdk.NewDefaultEndpointResolverV2().ResolveEndpoint(t.Context(), sdk.EndpointParameters{
				Region: &name, UseFIPS: aws.Bool(v.FIPS), UseDualStack: aws.Bool(v.DualStack),
			})
			if err != nil {
				continue // the SDK does not support this variant
			}
			resolved++
			if own := region.S3Host(v); own != got.URI.Host {
				t.Errorf("%s %+v: %q, the SDK has %q", name, v, own, got.URI.Host)
			}
			if parsed, err := endpoint.ParseS3(got.URI.Host); err != nil || parsed.Region != name || parsed.Variant != v {
				t.Errorf("%s: %+v, %v", got.URI.Host, parsed, err)
			}
		}
	}
	if resolved < 40 {
		t.Errorf("the SDK resolved only %d", resolved)
	}
}
