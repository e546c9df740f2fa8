package endpoint_test

import (
	"strings"
	"testing"

	"github.com/lanyard-dev/lanyard/auth/endpoint"
)

func TestParseRoleARN(t *testing.T) {
	longPath := "/" + strings.Repeat("p", 510) + "/"
	longName := strings.Repeat("n", 64)
	for _, tt := range []struct {
		arn    string
		want   endpoint.RoleARN
		reason endpoint.Reason
	}{
		{
			arn:  "arn:aws:iam::123456789123:role/tenant-a-ecr",
			want: endpoint.RoleARN{Partition: "aws", Account: "123456789123", Path: "/", Name: "tenant-a-ecr"},
		},
		{
			arn:  "arn:aws:iam::000000000001:role/team/a/Role_+=,.@-9",
			want: endpoint.RoleARN{Partition: "aws", Account: "000000000001", Path: "/team/a/", Name: "Role_+=,.@-9"},
		},
		{
			arn:  "arn:aws-us-gov:iam::123456789123:role/r",
			want: endpoint.RoleARN{Partition: "aws-us-gov", Account: "123456789123", Path: "/", Name: "r"},
		},
		{arn: "arn:aws-cn:iam::123456789123:role/r", want: endpoint.RoleARN{Partition: "aws-cn", Account: "123456789123", Path: "/", Name: "r"}},
		{arn: "arn:aws-iso:iam::123456789123:role/r", want: endpoint.RoleARN{Partition: "aws-iso", Account: "123456789123", Path: "/", Name: "r"}},
		{arn: "arn:aws-eusc:iam::123456789123:role/r", want: endpoint.RoleARN{Partition: "aws-eusc", Account: "123456789123", Path: "/", Name: "r"}},
		{
			// In IAM a path can contain any printable ASCII.
			arn:  "arn:aws:iam::123456789123:role/a:b!%/r",
			want: endpoint.RoleARN{Partition: "aws", Account: "123456789123", Path: "/a:b!%/", Name: "r"},
		},
		{
			arn:  "arn:aws:iam::123456789123:role" + longPath + longName,
			want: endpoint.RoleARN{Partition: "aws", Account: "123456789123", Path: longPath, Name: longName},
		},

		{arn: "", reason: endpoint.ReasonEmpty},
		{arn: "foobar", reason: endpoint.ReasonMalformed},
		{arn: "tenant-a-ecr", reason: endpoint.ReasonMalformed},
		{arn: "arn:aws:iam::123456789123", reason: endpoint.ReasonMalformed},
		{arn: "ARN:aws:iam::123456789123:role/r", reason: endpoint.ReasonMalformed},
		{arn: " arn:aws:iam::123456789123:role/r", reason: endpoint.ReasonMalformed},
		{arn: "arn:aws-:iam::123456789123:role/r", reason: endpoint.ReasonPartition},
		{arn: "arn::iam::123456789123:role/r", reason: endpoint.ReasonPartition},
		{arn: "arn:aws-other:iam::123456789123:role/r", reason: endpoint.ReasonPartition},
		{arn: "arn:AWS:iam::123456789123:role/r", reason: endpoint.ReasonPartition},
		{arn: "arn:aws:sts::123456789123:assumed-role/r/session", reason: endpoint.ReasonService},
		{arn: "arn:aws:s3::123456789123:role/r", reason: endpoint.ReasonService},
		{arn: "arn:aws:iam:us-east-1:123456789123:role/r", reason: endpoint.ReasonRegion},
		{arn: "arn:aws:iam::1234567890:role/some-role", reason: endpoint.ReasonAccount},
		{arn: "arn:aws:iam::1234567891234:role/r", reason: endpoint.ReasonAccount},
		{arn: "arn:aws:iam::1234-5678-9123:role/r", reason: endpoint.ReasonAccount},
		{arn: "arn:aws:iam:::role/r", reason: endpoint.ReasonAccount},
		{arn: "arn:aws:iam::aws:role/r", reason: endpoint.ReasonAccount},
		{arn: "arn:aws:iam::\u0661\u0662\u0663\u0664\u0665\u0666:role/r", reason: endpoint.ReasonAccount},
		{arn: "arn:aws:iam::123456789123:user/u", reason: endpoint.ReasonResource},
		{arn: "arn:aws:iam::123456789123:root", reason: endpoint.ReasonResource},
		{arn: "arn:aws:iam::123456789123:role", reason: endpoint.ReasonResource},
		{arn: "arn:aws:iam::123456789123:roles/r", reason: endpoint.ReasonResource},
		{arn: "arn:aws:iam::123456789123:role:r", reason: endpoint.ReasonResource},
		{arn: "arn:aws:iam::123456789123:role/", reason: endpoint.ReasonName},
		{arn: "arn:aws:iam::123456789123:role/path/", reason: endpoint.ReasonName},
		{arn: "arn:aws:iam::123456789123:role/r\n", reason: endpoint.ReasonName},
		{arn: "arn:aws:iam::123456789123:role/r\nsource_profile=x", reason: endpoint.ReasonName},
		{arn: "arn:aws:iam::123456789123:role/r*", reason: endpoint.ReasonName},
		{arn: "arn:aws:iam::123456789123:role/r:s", reason: endpoint.ReasonName},
		{arn: "arn:aws:iam::123456789123:role/a b/r", reason: endpoint.ReasonName},
		{arn: "arn:aws:iam::123456789123:role/\u00e9/r", reason: endpoint.ReasonName},
		{arn: "arn:aws:iam::123456789123:role/r\u00e9", reason: endpoint.ReasonName},
		{arn: "arn:aws:iam::123456789123:role/" + longName + "n", reason: endpoint.ReasonName},
		{arn: "arn:aws:iam::123456789123:role/p" + longPath + "r", reason: endpoint.ReasonName},
	} {
		t.Run(tt.arn, func(t *testing.T) {
			got, err := endpoint.ParseRoleARN(tt.arn)
			parsed(t, got, tt.want, err, tt.reason)
			if tt.reason == "" && got.String() != tt.arn {
				t.Errorf("got %s back", got)
			}
		})
	}
}

func FuzzParseRoleARN(f *testing.F) {
	for _, seed := range []string{
		"arn:aws:iam::123456789123:role/tenant-a-ecr", "arn:aws-cn:iam::123456789123:role/a/b/c",
		"arn:aws:iam::123456789123:role/a:b/c", "arn:aws:iam::123456789123:role/r\n", "arn:aws:sts::123456789123:assumed-role/r/s",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, s string) {
		a, err := endpoint.ParseRoleARN(s)
		if err != nil {
			if a != (endpoint.RoleARN{}) {
				t.Fatalf("%q: refused, yet a role %+v", s, a)
			}
			return
		}
		if a.String() != s {
			t.Fatalf("%q: accepted as %q", s, a)
		}
		if strings.ContainsFunc(s, func(r rune) bool { return r <= ' ' || r >= 0x7f }) {
			t.Fatalf("%q: accepted with a character that is not printable ASCII", s)
		}
		if len(a.Account) != 12 || a.Name == "" || strings.Contains(a.Name, "/") || !strings.HasSuffix(a.Path, "/") {
			t.Fatalf("%q: accepted as %+v", s, a)
		}
	})
}
