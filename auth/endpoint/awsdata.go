package endpoint

// awsPartitions is the table of AWS partitions, in the order of the AWS SDK's table (aws-sdk-go-v2,
// internal/endpoints/awsrulesfn/partitions.json). TestAWSPartitionsAreTheSDKs compares the two
// tables.
//
// The SDK's table lacks the hosts of registries' data planes. Their sources are the Amazon ECR user
// guide ("Making requests to Amazon ECR registries") and, for the ISO partitions, the list of image
// hosts in amazon-ecs-agent.
func awsPartitions() [8]AWSPartition {
	return [...]AWSPartition{
		{
			ID:                      "aws",
			RegionPrefixes:          "us|eu|ap|sa|ca|me|af|il|mx",
			DNSSuffix:               "amazonaws.com",
			DualStackDNSSuffix:      "api.aws",
			RegistryDualStackSuffix: "on.aws",
			GlobalRegion:            "us-east-1",
			GlobalSTSHost:           "sts.amazonaws.com",
		},
		{
			ID:                      "aws-cn",
			RegionPrefixes:          "cn",
			DNSSuffix:               "amazonaws.com.cn",
			DualStackDNSSuffix:      "api.amazonwebservices.com.cn",
			RegistryDualStackSuffix: "on.amazonwebservices.com.cn",
			GlobalRegion:            "cn-northwest-1",
		},
		{
			ID:                      "aws-eusc",
			RegionPrefixes:          "eusc-de",
			DNSSuffix:               "amazonaws.eu",
			DualStackDNSSuffix:      "api.amazonwebservices.eu",
			RegistryDualStackSuffix: "on.amazonwebservices.eu",
			GlobalRegion:            "eusc-de-east-1",
		},
		{
			ID:                      "aws-iso",
			RegionPrefixes:          "us-iso",
			DNSSuffix:               "c2s.ic.gov",
			DualStackDNSSuffix:      "api.aws.ic.gov",
			RegistryDualStackSuffix: "on.aws.ic.gov",
			GlobalRegion:            "us-iso-east-1",
		},
		{
			ID:                      "aws-iso-b",
			RegionPrefixes:          "us-isob",
			DNSSuffix:               "sc2s.sgov.gov",
			DualStackDNSSuffix:      "api.aws.scloud",
			RegistryDualStackSuffix: "on.aws.scloud",
			GlobalRegion:            "us-isob-east-1",
		},
		{
			ID:                      "aws-iso-e",
			RegionPrefixes:          "eu-isoe",
			DNSSuffix:               "cloud.adc-e.uk",
			DualStackDNSSuffix:      "api.cloud-aws.adc-e.uk",
			RegistryDualStackSuffix: "on.cloud-aws.adc-e.uk",
			GlobalRegion:            "eu-isoe-west-1",
		},
		{
			ID:                      "aws-iso-f",
			RegionPrefixes:          "us-isof",
			DNSSuffix:               "csp.hci.ic.gov",
			DualStackDNSSuffix:      "api.aws.hci.ic.gov",
			RegistryDualStackSuffix: "on.aws.hci.ic.gov",
			GlobalRegion:            "us-isof-south-1",
		},
		{
			ID:                      "aws-us-gov",
			RegionPrefixes:          "us-gov",
			DNSSuffix:               "amazonaws.com",
			DualStackDNSSuffix:      "api.aws",
			RegistryDualStackSuffix: "on.aws",
			GlobalRegion:            "us-gov-west-1",
			STSIsFIPS:               true,
		},
	}
}

// publicHost is one host of a registry that belongs to no account.
type publicHost struct {
	host, partition, region string
	dualStack               bool
}

// awsPublicRegistries returns the hosts of Amazon ECR Public. The API that issues tokens for them
// is only in us-east-1. Source: Amazon ECR Public user guide, "Making requests to Amazon ECR Public
// registries" and "Registry authentication".
func awsPublicRegistries() [2]publicHost {
	return [...]publicHost{
		{host: "public.ecr.aws", partition: "aws", region: "us-east-1"},
		{host: "ecr-public.aws.com", partition: "aws", region: "us-east-1", dualStack: true},
	}
}

// hostForm relates a fixed part of host names to a [Variant]. For example, the hosts with the part
// "sts-fips." are FIPS hosts.
type hostForm struct {
	prefix string
	Variant
}

// ecrForms returns the parts that can stand between the account and the region in the host of an
// ECR registry.
func ecrForms() []hostForm {
	return []hostForm{
		{prefix: "dkr.ecr."},
		{prefix: "dkr.ecr-fips.", Variant: Variant{FIPS: true}},
		{prefix: "dkr-ecr.", Variant: Variant{DualStack: true}},
		{prefix: "dkr-ecr-fips.", Variant: Variant{FIPS: true, DualStack: true}},
	}
}

// stsForms returns the parts that can stand before the region in the host of an STS endpoint.
// Dual-stack hosts differ in the suffix, not in the form.
func stsForms() []hostForm {
	return []hostForm{
		{prefix: "sts."},
		{prefix: "sts-fips.", Variant: Variant{FIPS: true}},
	}
}
