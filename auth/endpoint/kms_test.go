package endpoint_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/lanyard-dev/lanyard/auth/endpoint"
	"github.com/lanyard-dev/lanyard/auth/internal/must"
)

const (
	kmsID    = "1234abcd-12ab-34cd-56ef-1234567890ab"
	kmsMulti = "mrk-1234abcd12ab34cd56ef1234567890ab"
)

func TestParseKMSKey(t *testing.T) {
	key := func(region, resource string) endpoint.KMSKey {
		r, err := endpoint.ParseAWSRegion(region)
		must.Succeed(t, err)
		return endpoint.KMSKey{Region: r, Account: "123456789123", Resource: resource}
	}
	longAlias := "alias/" + strings.Repeat("a", 250)
	for _, tt := range []struct {
		arn    string
		want   endpoint.KMSKey
		host   string
		reason endpoint.Reason
	}{
		{arn: "arn:aws:kms:eu-west-1:123456789123:key/" + kmsID, want: key("eu-west-1", "key/"+kmsID), host: "kms.eu-west-1.amazonaws.com"},
		{arn: "arn:aws:kms:us-east-1:123456789123:key/" + kmsMulti, want: key("us-east-1", "key/"+kmsMulti), host: "kms.us-east-1.amazonaws.com"},
		{arn: "arn:aws:kms:eu-west-1:123456789123:alias/sops", want: key("eu-west-1", "alias/sops"), host: "kms.eu-west-1.amazonaws.com"},
		{arn: "arn:aws:kms:eu-west-1:123456789123:alias/Team-A/so_ps/1", want: key("eu-west-1", "alias/Team-A/so_ps/1"), host: "kms.eu-west-1.amazonaws.com"},
		// The alias of a key that AWS manages.
		{arn: "arn:aws:kms:eu-west-1:123456789123:alias/aws/ssm", want: key("eu-west-1", "alias/aws/ssm"), host: "kms.eu-west-1.amazonaws.com"},
		{arn: "arn:aws:kms:eu-west-1:123456789123:" + longAlias, want: key("eu-west-1", longAlias), host: "kms.eu-west-1.amazonaws.com"},
		// A region that does not exist yet.
		{arn: "arn:aws:kms:eu-new-42:123456789123:alias/sops", want: key("eu-new-42", "alias/sops"), host: "kms.eu-new-42.amazonaws.com"},
		{arn: "arn:aws-cn:kms:cn-north-1:123456789123:key/" + kmsID, want: key("cn-north-1", "key/"+kmsID), host: "kms.cn-north-1.amazonaws.com.cn"},
		{arn: "arn:aws-us-gov:kms:us-gov-west-1:123456789123:key/" + kmsID, want: key("us-gov-west-1", "key/"+kmsID), host: "kms.us-gov-west-1.amazonaws.com"},
		{arn: "arn:aws-eusc:kms:eusc-de-east-1:123456789123:key/" + kmsID, want: key("eusc-de-east-1", "key/"+kmsID), host: "kms.eusc-de-east-1.amazonaws.eu"},
		{arn: "arn:aws-iso:kms:us-iso-east-1:123456789123:key/" + kmsID, want: key("us-iso-east-1", "key/"+kmsID), host: "kms.us-iso-east-1.c2s.ic.gov"},
		{arn: "arn:aws-iso-b:kms:us-isob-east-1:123456789123:key/" + kmsID, want: key("us-isob-east-1", "key/"+kmsID), host: "kms.us-isob-east-1.sc2s.sgov.gov"},
		{arn: "arn:aws-iso-e:kms:eu-isoe-west-1:123456789123:key/" + kmsID, want: key("eu-isoe-west-1", "key/"+kmsID), host: "kms.eu-isoe-west-1.cloud.adc-e.uk"},
		{arn: "arn:aws-iso-f:kms:us-isof-south-1:123456789123:key/" + kmsID, want: key("us-isof-south-1", "key/"+kmsID), host: "kms.us-isof-south-1.csp.hci.ic.gov"},

		// Regions that the expression of SOPS accepts. The AWS SDK would make a host of some of
		// them.
		{arn: "arn:aws:kms:evil.example:123456789123:key/" + kmsID, reason: endpoint.ReasonRegion},
		{arn: "arn:aws:kms:eu-west-1.evil.example:123456789123:key/" + kmsID, reason: endpoint.ReasonRegion},
		{arn: "arn:aws:kms:evil.example/eu-west-1:123456789123:key/" + kmsID, reason: endpoint.ReasonRegion},
		{arn: "arn:aws:kms:evil.example#:123456789123:key/" + kmsID, reason: endpoint.ReasonRegion},
		{arn: "arn:aws:kms:eu-west-1@evil.example:123456789123:key/" + kmsID, reason: endpoint.ReasonRegion},
		{arn: "arn:aws:kms:evil.example:443/:123456789123:key/" + kmsID, reason: endpoint.ReasonRegion},
		{arn: "arn:aws:kms:eu-west-1:443:123456789123:key/" + kmsID, reason: endpoint.ReasonAccount},
		{arn: "arn:aws:kms:.:123456789123:key/" + kmsID, reason: endpoint.ReasonRegion},
		{arn: "arn:aws:kms:..:123456789123:key/" + kmsID, reason: endpoint.ReasonRegion},
		{arn: "arn:aws:kms:eu-west-1.:123456789123:key/" + kmsID, reason: endpoint.ReasonRegion},
		{arn: "arn:aws:kms:*:123456789123:key/" + kmsID, reason: endpoint.ReasonRegion},
		{arn: "arn:aws:kms:us:123456789123:key/" + kmsID, reason: endpoint.ReasonRegion},
		{arn: "arn:aws:kms:us-east-1-fips:123456789123:key/" + kmsID, reason: endpoint.ReasonRegion},
		{arn: "arn:aws:kms:EU-West-1:123456789123:key/" + kmsID, reason: endpoint.ReasonRegion},
		{arn: "arn:aws:kms:eu-west-1%2e:123456789123:key/" + kmsID, reason: endpoint.ReasonRegion},
		{arn: "arn:aws:kms:eu-west-1\n:123456789123:key/" + kmsID, reason: endpoint.ReasonRegion},
		{arn: "arn:aws:kms:eu-we\u0455t-1:123456789123:key/" + kmsID, reason: endpoint.ReasonRegion}, // a Cyrillic letter
		{arn: "arn:aws:kms:eu-\u212aest-1:123456789123:key/" + kmsID, reason: endpoint.ReasonRegion}, // a Kelvin sign
		{arn: "arn:aws:kms:eu-west-\u0661:123456789123:key/" + kmsID, reason: endpoint.ReasonRegion}, // an Arabic digit
		{arn: "arn:aws:kms:eu-west\uff0d1:123456789123:key/" + kmsID, reason: endpoint.ReasonRegion}, // a full-width hyphen
		{arn: "arn:aws:kms:eu-" + strings.Repeat("w", 60) + "-1:123456789123:key/" + kmsID, reason: endpoint.ReasonRegion},
		{arn: "arn:aws:kms::123456789123:key/" + kmsID, reason: endpoint.ReasonRegion},

		// Partitions that are unknown, or not the region's.
		{arn: "arn:aws:kms:cn-north-1:123456789123:key/" + kmsID, reason: endpoint.ReasonPartition},
		{arn: "arn:aws:kms:us-gov-west-1:123456789123:key/" + kmsID, reason: endpoint.ReasonPartition},
		{arn: "arn:aws-cn:kms:eu-west-1:123456789123:key/" + kmsID, reason: endpoint.ReasonPartition},
		{arn: "arn:aws-us-gov:kms:us-iso-east-1:123456789123:key/" + kmsID, reason: endpoint.ReasonPartition},
		{arn: "arn:aws-evil:kms:eu-west-1:123456789123:key/" + kmsID, reason: endpoint.ReasonPartition},
		{arn: "arn:AWS:kms:eu-west-1:123456789123:key/" + kmsID, reason: endpoint.ReasonPartition},
		{arn: "arn::kms:eu-west-1:123456789123:key/" + kmsID, reason: endpoint.ReasonPartition},

		{arn: "", reason: endpoint.ReasonEmpty},
		{arn: kmsID, reason: endpoint.ReasonMalformed},
		{arn: "alias/sops", reason: endpoint.ReasonMalformed},
		{arn: "ARN:aws:kms:eu-west-1:123456789123:key/" + kmsID, reason: endpoint.ReasonMalformed},
		{arn: " arn:aws:kms:eu-west-1:123456789123:key/" + kmsID, reason: endpoint.ReasonMalformed},
		{arn: "arn:aws:kms:eu-west-1:123456789123", reason: endpoint.ReasonMalformed},
		// SOPS separates the ARN of a role from the key's ARN with "+".
		{arn: "arn:aws:kms:eu-west-1:123456789123:key/" + kmsID + "+arn:aws:iam::123456789123:role/r", reason: endpoint.ReasonName},
		{arn: "arn:aws:iam::123456789123:role/r", reason: endpoint.ReasonService},
		{arn: "arn:aws:KMS:eu-west-1:123456789123:key/" + kmsID, reason: endpoint.ReasonService},
		{arn: "arn:aws:kms.evil:eu-west-1:123456789123:key/" + kmsID, reason: endpoint.ReasonService},
		{arn: "arn:aws:kms:eu-west-1:1234567891:key/" + kmsID, reason: endpoint.ReasonAccount},
		{arn: "arn:aws:kms:eu-west-1:1234567891234:key/" + kmsID, reason: endpoint.ReasonAccount},
		{arn: "arn:aws:kms:eu-west-1::key/" + kmsID, reason: endpoint.ReasonAccount},
		{arn: "arn:aws:kms:eu-west-1:12345678912x:key/" + kmsID, reason: endpoint.ReasonAccount},
		{arn: "arn:aws:kms:eu-west-1:123456789123:", reason: endpoint.ReasonResource},
		{arn: "arn:aws:kms:eu-west-1:123456789123:" + kmsID, reason: endpoint.ReasonResource},
		{arn: "arn:aws:kms:eu-west-1:123456789123:Key/" + kmsID, reason: endpoint.ReasonResource},
		{arn: "arn:aws:kms:eu-west-1:123456789123:/key/" + kmsID, reason: endpoint.ReasonResource},
		{arn: "arn:aws:kms:eu-west-1:123456789123:grant/" + kmsID, reason: endpoint.ReasonResource},
		{arn: "arn:aws:kms:eu-west-1:123456789123:key", reason: endpoint.ReasonName},
		{arn: "arn:aws:kms:eu-west-1:123456789123:key/", reason: endpoint.ReasonName},
		{arn: "arn:aws:kms:eu-west-1:123456789123:key:" + kmsID, reason: endpoint.ReasonResource},
		{arn: "arn:aws:kms:eu-west-1:123456789123:key/sops", reason: endpoint.ReasonName},
		{arn: "arn:aws:kms:eu-west-1:123456789123:key/*", reason: endpoint.ReasonName},
		{arn: "arn:aws:kms:eu-west-1:123456789123:key/" + strings.ToUpper(kmsID), reason: endpoint.ReasonName},
		{arn: "arn:aws:kms:eu-west-1:123456789123:key/" + kmsID + "/..", reason: endpoint.ReasonName},
		{arn: "arn:aws:kms:eu-west-1:123456789123:key/" + kmsID + "\n", reason: endpoint.ReasonName},
		{arn: "arn:aws:kms:eu-west-1:123456789123:key/" + kmsMulti + "0", reason: endpoint.ReasonName},
		{arn: "arn:aws:kms:eu-west-1:123456789123:key/mrk-" + kmsID, reason: endpoint.ReasonName},
		{arn: "arn:aws:kms:eu-west-1:123456789123:key/mrk-", reason: endpoint.ReasonName},
		{arn: "arn:aws:kms:eu-west-1:123456789123:key//user:s3cr3t-Pa55@evil.example", reason: endpoint.ReasonName},
		{arn: "arn:aws:kms:eu-west-1:123456789123:alias", reason: endpoint.ReasonName},
		{arn: "arn:aws:kms:eu-west-1:123456789123:alias/", reason: endpoint.ReasonName},
		{arn: "arn:aws:kms:eu-west-1:123456789123:alias/a b", reason: endpoint.ReasonName},
		{arn: "arn:aws:kms:eu-west-1:123456789123:alias/../sops", reason: endpoint.ReasonName},
		{arn: "arn:aws:kms:eu-west-1:123456789123:alias/a:b", reason: endpoint.ReasonName},
		{arn: "arn:aws:kms:eu-west-1:123456789123:alias/a%2fb", reason: endpoint.ReasonName},
		{arn: "arn:aws:kms:eu-west-1:123456789123:alias/s\u00f6ps", reason: endpoint.ReasonName},
		{arn: "arn:aws:kms:eu-west-1:123456789123:" + longAlias + "a", reason: endpoint.ReasonName},
	} {
		t.Run(tt.arn, func(t *testing.T) {
			got, err := endpoint.ParseKMSKey(tt.arn)
			parsed(t, got, tt.want, err, tt.reason)
			if tt.reason == "" && (got.String() != tt.arn || got.Host(endpoint.Variant{}) != tt.host) {
				t.Errorf("got %s back, at %s", got, got.Host(endpoint.Variant{}))
			}
		})
	}
}

// TestKMSHostsAreTheSDKs checks the hosts of KMS in every region of the SDK's table. The form
// kms[-fips].<region>.<suffix> is that of the SDK's resolver (service/kms, endpoints.go). This
// module does not import service/kms.
func TestKMSHostsAreTheSDKs(t *testing.T) {
	for _, p := range sdkPartitions(t) {
		for name := range p.Regions {
			if strings.HasSuffix(name, "-global") {
				continue
			}
			key, err := endpoint.ParseKMSKey("arn:" + p.ID + ":kms:" + name + ":123456789123:alias/sops")
			must.Succeed(t, err)
			for v, want := range map[endpoint.Variant]string{
				{}:                            "kms." + name + "." + p.Outputs.DNSSuffix,
				{FIPS: true}:                  "kms-fips." + name + "." + p.Outputs.DNSSuffix,
				{DualStack: true}:             "kms." + name + "." + p.Outputs.DualStackDNSSuffix,
				{FIPS: true, DualStack: true}: "kms-fips." + name + "." + p.Outputs.DualStackDNSSuffix,
			} {
				if got := key.Host(v); got != want || endpoint.ProviderOf(got) != "aws" {
					t.Errorf("%s %+v: got %s of %q, the SDK has %s", name, v, got, endpoint.ProviderOf(got), want)
				}
			}
		}
	}
}

// FuzzParseKMSKey checks that no text of an accepted ARN but its region becomes part of a host, and
// that the host ends in a suffix of the ARN's partition.
func FuzzParseKMSKey(f *testing.F) {
	for _, seed := range []string{
		"arn:aws:kms:eu-west-1:123456789123:key/" + kmsID, "arn:aws-cn:kms:cn-north-1:123456789123:key/" + kmsMulti,
		"arn:aws-us-gov:kms:us-gov-west-1:123456789123:alias/aws/s3", "arn:aws:kms:evil.example:123456789123:key/" + kmsID,
		"arn:aws:kms:cn-north-1:123456789123:alias/a", "arn:aws:kms:eu-west-1:123456789123:alias/a\n", "arn:aws:kms:a/b:123456789123:alias/a",
	} {
		f.Add(seed)
	}
	suffixes := map[string][]string{}
	for _, p := range endpoint.AWSPartitions() {
		suffixes[p.ID] = []string{p.DNSSuffix, p.DualStackDNSSuffix}
	}
	f.Fuzz(func(t *testing.T, arn string) {
		k, err := endpoint.ParseKMSKey(arn)
		if err != nil {
			if k != (endpoint.KMSKey{}) {
				t.Fatalf("%q: refused, yet a key %+v", arn, k)
			}
			return
		}
		// The parts of the text, read in another way than ParseKMSKey does.
		parts := strings.Split(arn, ":")
		if k.String() != arn || len(parts) != 6 || strings.ContainsFunc(arn, func(r rune) bool { return r <= ' ' || r >= 0x7f }) {
			t.Fatalf("%q: accepted as %q", arn, k)
		}
		for _, v := range []endpoint.Variant{{}, {FIPS: true}, {DualStack: true}, {FIPS: true, DualStack: true}} {
			host := k.Host(v)
			owned := slices.ContainsFunc(suffixes[parts[1]], func(suffix string) bool {
				rest, ok := strings.CutSuffix(host, "."+parts[3]+"."+suffix)
				return ok && (rest == "kms" || rest == "kms-fips")
			})
			if !isPlainHost(host) || !endsInTable(host) || !owned || strings.Contains(parts[3], ".") {
				t.Fatalf("%q: at %q", arn, host)
			}
		}
	})
}
