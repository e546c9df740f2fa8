package endpoint_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sts"

	"github.com/lanyard-dev/lanyard/auth/endpoint"
	"github.com/lanyard-dev/lanyard/auth/internal/must"
)

// sdkPartition has those fields of the SDK's table that must agree with this package's table.
type sdkPartition struct {
	ID          string `json:"id"`
	RegionRegex string `json:"regionRegex"`
	Outputs     struct {
		Name                 string `json:"name"`
		DNSSuffix            string `json:"dnsSuffix"`
		DualStackDNSSuffix   string `json:"dualStackDnsSuffix"`
		ImplicitGlobalRegion string `json:"implicitGlobalRegion"`
		SupportsFIPS         bool   `json:"supportsFIPS"`
		SupportsDualStack    bool   `json:"supportsDualStack"`
	} `json:"outputs"`
	Regions map[string]json.RawMessage `json:"regions"`
}

// sdkPartitions reads the SDK's table from a file of its module, because no package exports it.
func sdkPartitions(t *testing.T) []sdkPartition {
	t.Helper()
	dir, err := exec.CommandContext(t.Context(), "go", "list", "-m", "-f", "{{.Dir}}", "github.com/aws/aws-sdk-go-v2").Output()
	must.Succeed(t, err)
	data, err := os.ReadFile(filepath.Join(strings.TrimSpace(string(dir)), "internal", "endpoints", "awsrulesfn", "partitions.json"))
	must.Succeed(t, err)
	var table struct {
		Partitions []sdkPartition `json:"partitions"`
	}
	must.Succeed(t, json.Unmarshal(data, &table))
	if len(table.Partitions) == 0 {
		t.Fatal("the SDK's table is empty")
	}
	return table.Partitions
}

// TestAWSPartitionsAreTheSDKs compares this package's table with the SDK's table. If it fails after
// an update of the SDK, AWS has added or changed a partition: change awsdata.go accordingly.
func TestAWSPartitionsAreTheSDKs(t *testing.T) {
	theirs, ours := sdkPartitions(t), endpoint.AWSPartitions()
	if len(ours) != len(theirs) {
		t.Errorf("got %d partitions, the SDK has %d", len(ours), len(theirs))
	}
	for i, p := range theirs {
		if i >= len(ours) {
			t.Errorf("partition %s is missing", p.ID)
			continue
		}
		// Compare only the fields that the SDK's table has. In all others, want has our own values.
		want := ours[i]
		want.ID = p.ID
		want.DNSSuffix = p.Outputs.DNSSuffix
		want.DualStackDNSSuffix = p.Outputs.DualStackDNSSuffix
		want.GlobalRegion = p.Outputs.ImplicitGlobalRegion
		if ours[i] != want {
			t.Errorf("got %+v, the SDK has %+v", ours[i], want)
		}
		// In the SDK's expressions, alternatives are in a group. Sometimes a single alternative is
		// in a group too, so the test removes all parentheses.
		regex := strings.NewReplacer("(", "", ")", "").Replace(p.RegionRegex)
		if got := "^" + strings.ReplaceAll(ours[i].RegionPrefixes, "-", `\-`) + `\-\w+\-\d+$`; got != regex {
			t.Errorf("%s: got regions %s, the SDK has %s", p.ID, got, regex)
		}
		// The parsers require that every partition supports FIPS and dual-stack.
		if !p.Outputs.SupportsFIPS || !p.Outputs.SupportsDualStack {
			t.Errorf("%s: FIPS %v, dual-stack %v", p.ID, p.Outputs.SupportsFIPS, p.Outputs.SupportsDualStack)
		}
	}
}

// TestSTSHostsAreTheSDKs checks every region in the SDK's table. The SDK and this package must
// agree on the region's partition and STS hosts.
func TestSTSHostsAreTheSDKs(t *testing.T) {
	resolver := sts.NewDefaultEndpointResolverV2()
	for _, p := range sdkPartitions(t) {
		for name := range p.Regions {
			if strings.HasSuffix(name, "-global") {
				if _, err := endpoint.ParseAWSRegion(name); err == nil {
					t.Errorf("%s was taken for a region", name)
				}
				continue
			}
			region, err := endpoint.ParseAWSRegion(name)
			if err != nil || region.Name != name || region.Partition.ID != p.ID {
				t.Errorf("%s: got %+v, %v, want partition %s", name, region, err, p.ID)
			}
			for _, v := range []endpoint.Variant{{}, {FIPS: true}, {DualStack: true}, {FIPS: true, DualStack: true}} {
				want, err := resolver.ResolveEndpoint(t.Context(), sts.EndpointParameters{
					Region: &name, UseFIPS: &v.FIPS, UseDualStack: &v.DualStack, UseGlobalEndpoint: aws.Bool(false),
				})
				must.Succeed(t, err)
				parsed, err := endpoint.ParseSTS("https://" + want.URI.Host)
				if err != nil || parsed.Region != name || parsed.Partition != p.ID || parsed.DualStack != v.DualStack || v.FIPS && !parsed.FIPS {
					t.Errorf("%s %+v: %s reads as %+v, %v", name, v, want.URI.Host, parsed, err)
				}
			}
		}
	}
}

func TestParseAWSRegion(t *testing.T) {
	for name, partition := range map[string]string{
		"eu-west-1":                            "aws",
		"eu-new-42":                            "aws",
		"us-gov-west-1":                        "aws-us-gov",
		"us-iso-east-1":                        "aws-iso",
		"us-isob-east-1":                       "aws-iso-b",
		"eusc-de-east-1":                       "aws-eusc",
		"cn-north-1":                           "aws-cn",
		"":                                     "",
		"eu":                                   "",
		"eu-west":                              "",
		"eu-west-":                             "",
		"eu--1":                                "",
		"eu-west-1-lax":                        "",
		"eu-we.st-1":                           "",
		"eu-west-1.evil":                       "",
		"EU-west-1":                            "",
		"eu-west_x-1":                          "",
		"eusc-fr-east-1":                       "",
		"xx-west-1":                            "",
		"aws-global":                           "",
		"eu-" + strings.Repeat("w", 60) + "-1": "",
	} {
		r, err := endpoint.ParseAWSRegion(name)
		if r.Partition.ID != partition {
			t.Errorf("%q: got partition %q, want %q", name, r.Partition.ID, partition)
		}
		if partition == "" {
			refused(t, err, endpoint.ReasonRegion)
		}
	}
}
