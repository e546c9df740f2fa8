package aws

import (
	"slices"
	"strings"

	"github.com/lanyard-dev/lanyard/cloudtest/aws/policy"
)

// Names of AWS's services in the journal and in faults. [GenericServices] has more names.
const (
	// ServiceIAM is Identity and Access Management.
	ServiceIAM = "iam"
	// ServiceSTS is the Security Token Service.
	ServiceSTS = "sts"
	// ServiceECR is the API of Elastic Container Registry.
	ServiceECR = "ecr"
	// ServiceECRPublic is the API of Elastic Container Registry Public.
	ServiceECRPublic = "ecr-public"
	// ServiceRegistry is the OCI registry of an account and region.
	ServiceRegistry = "registry"
	// ServicePublicRegistry is the OCI registry public.ecr.aws.
	ServicePublicRegistry = "public-registry"
	// ServiceS3 is Simple Storage Service.
	ServiceS3 = "s3"
	// ServiceKMS is Key Management Service.
	ServiceKMS = "kms"
)

// partition is one of AWS's separate clouds. The table of partitions is separate from the Lanyard
// library's table, so that tests find an error in either. Sources: AWS General Reference, "AWS
// service endpoints", "Dual-stack endpoints" and "Amazon S3 endpoints and quotas".
type partition struct {
	id         string
	suffix     string   // suffix of hosts with IPv4 only, and of all S3 hosts
	dualSuffix string   // suffix of dual-stack API hosts
	onSuffix   string   // suffix of dual-stack registry hosts; empty if there are no such hosts
	regions    []string // all regions
	fips       []string // regions with FIPS hosts
	iam        []string // hosts of IAM, which is one service for the whole partition
	iamRegion  string   // the region in signatures of requests to IAM
}

func partitions() []partition {
	return []partition{
		{
			id: "aws", suffix: "amazonaws.com", dualSuffix: "api.aws", onSuffix: "on.aws",
			regions: []string{
				"af-south-1",
				"ap-east-1", "ap-east-2", "ap-northeast-1", "ap-northeast-2", "ap-northeast-3", "ap-south-1", "ap-south-2",
				"ap-southeast-1", "ap-southeast-2", "ap-southeast-3",
				"ap-southeast-4", "ap-southeast-5", "ap-southeast-6", "ap-southeast-7",
				"ca-central-1", "ca-west-1",
				"eu-central-1", "eu-central-2", "eu-north-1", "eu-south-1", "eu-south-2", "eu-west-1", "eu-west-2", "eu-west-3",
				"il-central-1", "me-central-1", "me-south-1", "mx-central-1", "sa-east-1",
				"us-east-1", "us-east-2", "us-west-1", "us-west-2",
			},
			fips: []string{"us-east-1", "us-east-2", "us-west-1", "us-west-2", "ca-central-1", "ca-west-1"},
			iam: []string{
				"iam.amazonaws.com", "iam-fips.amazonaws.com", "iam.global.api.aws", "iam-fips.global.api.aws",
			}, iamRegion: "us-east-1",
		},
		{
			id: "aws-cn", suffix: "amazonaws.com.cn", dualSuffix: "api.amazonwebservices.com.cn", onSuffix: "on.amazonwebservices.com.cn",
			regions: []string{"cn-north-1", "cn-northwest-1"},
			iam:     []string{"iam.cn-north-1.amazonaws.com.cn", "iam.global.api.amazonwebservices.com.cn"}, iamRegion: "cn-north-1",
		},
		{
			id: "aws-us-gov", suffix: "amazonaws.com", dualSuffix: "api.aws", onSuffix: "on.aws",
			regions: []string{"us-gov-east-1", "us-gov-west-1"},
			fips:    []string{"us-gov-east-1", "us-gov-west-1"},
			iam:     []string{"iam.us-gov.amazonaws.com", "iam.us-gov.api.aws"}, iamRegion: "us-gov-west-1",
		},
		{
			id: "aws-eusc", suffix: "amazonaws.eu", dualSuffix: "api.amazonwebservices.eu", onSuffix: "on.amazonwebservices.eu",
			regions: []string{"eusc-de-east-1"},
			iam:     []string{"iam.eusc-de-east-1.amazonaws.eu"}, iamRegion: "eusc-de-east-1",
		},
		{
			id: "aws-iso", suffix: "c2s.ic.gov", dualSuffix: "api.aws.ic.gov",
			regions: []string{"us-iso-east-1", "us-iso-west-1"},
			iam:     []string{"iam.us-iso-east-1.c2s.ic.gov"}, iamRegion: "us-iso-east-1",
		},
		{
			id: "aws-iso-b", suffix: "sc2s.sgov.gov", dualSuffix: "api.aws.scloud",
			regions: []string{"us-isob-east-1", "us-isob-west-1"},
			iam:     []string{"iam.us-isob-east-1.sc2s.sgov.gov"}, iamRegion: "us-isob-east-1",
		},
		{
			id: "aws-iso-e", suffix: "cloud.adc-e.uk", dualSuffix: "api.cloud-aws.adc-e.uk",
			regions: []string{"eu-isoe-west-1"},
			iam:     []string{"iam.eu-isoe-west-1.cloud.adc-e.uk"}, iamRegion: "eu-isoe-west-1",
		},
		{
			id: "aws-iso-f", suffix: "csp.hci.ic.gov", dualSuffix: "api.aws.hci.ic.gov",
			regions: []string{"us-isof-east-1", "us-isof-south-1"},
			iam:     []string{"iam.us-isof-south-1.csp.hci.ic.gov"}, iamRegion: "us-isof-south-1",
		},
	}
}

// endpoint has the parts of a parsed host name.
type endpoint struct {
	service   string
	partition string
	region    string
	account   string // of a registry
	bucket    string // first label of an S3 virtual host; empty for other hosts
	global    bool   // set for S3's legacy global endpoint, whose virtual hosts serve all regions
}

// parseHost parses an AWS host name in lower case and without port. It accepts only names that AWS
// has.
func parseHost(host string) (endpoint, bool) {
	switch host {
	case "sts.amazonaws.com": // the global endpoint: its signatures and answers are for us-east-1
		return endpoint{service: ServiceSTS, partition: "aws", region: "us-east-1"}, true
	case "api.ecr-public.us-east-1.amazonaws.com", "ecr-public.us-east-1.api.aws":
		return endpoint{service: ServiceECRPublic, partition: "aws", region: "us-east-1"}, true
	case "public.ecr.aws", "ecr-public.aws.com":
		return endpoint{service: ServicePublicRegistry, partition: "aws", region: "us-east-1"}, true
	case "s3.amazonaws.com":
		return endpoint{service: ServiceS3, partition: "aws", region: "us-east-1", global: true}, true
	}
	if bucket, ok := strings.CutSuffix(host, ".s3.amazonaws.com"); ok && isBucketLabel(bucket) {
		return endpoint{service: ServiceS3, partition: "aws", region: "us-east-1", bucket: bucket, global: true}, true
	}
	for _, p := range partitions() {
		if slices.Contains(p.iam, host) {
			return endpoint{service: ServiceIAM, partition: p.id, region: p.iamRegion}, true
		}
		for _, form := range p.forms() {
			rest, ok := strings.CutSuffix(host, "."+form.suffix)
			if !ok {
				continue
			}
			account, bucket := "", ""
			if form.account {
				if account, rest, ok = strings.Cut(rest, "."); !ok || !policy.IsAccountID(account) {
					continue
				}
			}
			if first, after, ok := strings.Cut(rest, "."); form.service == ServiceS3 &&
				ok && strings.HasPrefix(after, form.prefix+".") && isBucketLabel(first) {
				bucket, rest = first, after
			}
			region, ok := strings.CutPrefix(rest, form.prefix+".")
			regions := p.regions
			if form.fips {
				regions = p.fips
			}
			if ok && slices.Contains(regions, region) {
				return endpoint{service: form.service, partition: p.id, region: region, account: account, bucket: bucket}, true
			}
		}
	}
	return endpoint{}, false
}

// hostForm describes hosts of a service: [account.|bucket.]prefix.region.suffix.
type hostForm struct {
	service, prefix, suffix string
	account, fips           bool
}

func (p partition) forms() []hostForm {
	forms := []hostForm{
		{service: ServiceECR, prefix: "api.ecr", suffix: p.suffix},
		{service: ServiceECR, prefix: "ecr", suffix: p.dualSuffix},
		{service: ServiceECR, prefix: "api.ecr", suffix: p.dualSuffix},
		{service: ServiceECR, prefix: "api.ecr-fips", suffix: p.suffix, fips: true},
		{service: ServiceECR, prefix: "ecr-fips", suffix: p.dualSuffix, fips: true},
		{service: ServiceRegistry, prefix: "dkr.ecr", suffix: p.suffix, account: true},
		{service: ServiceRegistry, prefix: "dkr.ecr-fips", suffix: p.suffix, account: true, fips: true},
		{service: ServiceS3, prefix: "s3", suffix: p.suffix},
		{service: ServiceS3, prefix: "s3.dualstack", suffix: p.suffix},
		{service: ServiceS3, prefix: "s3-fips", suffix: p.suffix, fips: true},
		{service: ServiceS3, prefix: "s3-fips.dualstack", suffix: p.suffix, fips: true},
	}
	for _, name := range append(GenericServices(), ServiceSTS, ServiceKMS) {
		forms = append(forms,
			hostForm{service: name, prefix: name, suffix: p.suffix},
			hostForm{service: name, prefix: name, suffix: p.dualSuffix},
			hostForm{service: name, prefix: name + "-fips", suffix: p.suffix, fips: true},
			hostForm{service: name, prefix: name + "-fips", suffix: p.dualSuffix, fips: true})
	}
	if p.onSuffix != "" {
		forms = append(forms,
			hostForm{service: ServiceRegistry, prefix: "dkr-ecr", suffix: p.onSuffix, account: true},
			hostForm{service: ServiceRegistry, prefix: "dkr-ecr-fips", suffix: p.onSuffix, account: true, fips: true})
	}
	return forms
}

// isBucketLabel reports whether a bucket's name can be the first label of a virtual host. A name
// with dots cannot, because S3's certificates cover only one label. Source: Amazon S3 User Guide,
// "General purpose bucket naming rules".
func isBucketLabel(name string) bool { return isBucketName(name) && !strings.Contains(name, ".") }

func partitionByID(id string) (partition, bool) {
	all := partitions()
	i := slices.IndexFunc(all, func(p partition) bool { return p.id == id })
	if i < 0 {
		return partition{}, false
	}
	return all[i], true
}
