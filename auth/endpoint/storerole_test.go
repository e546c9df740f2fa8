package endpoint_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/lanyard-dev/lanyard/auth/endpoint"
)

func TestParseStoreRoleARN(t *testing.T) {
	for _, tt := range []struct {
		arn    string
		reason endpoint.Reason
	}{
		{"arn:minio:iam:::role/nOybJqMNzNmroqEKq5D0EUsRZw0", ""},
		{"arn:minio:iam:::role/idp/a_b.c-d", ""},
		{"arn:minio:iam:eu-west-1::role/r", ""},
		{"arn:minio:iam:My_Site-1::role/r", ""},
		{"arn:aws:iam:::role/S3Access", ""},
		{"arn:aws:iam:::role/application/R+=,.@-", ""},

		{"", endpoint.ReasonMalformed},
		{"minio", endpoint.ReasonMalformed},
		{" arn:minio:iam:::role/r", endpoint.ReasonMalformed},
		{"arn:minio:iam:::role/" + strings.Repeat("r", 2048), endpoint.ReasonMalformed},
		{"arn:ceph:iam:::role/r", endpoint.ReasonPartition},
		{"arn:aws-cn:iam:::role/r", endpoint.ReasonPartition},
		{"arn:minio:sts:::role/r", endpoint.ReasonService},
		{"arn:aws:iam:eu-west-1::role/r", endpoint.ReasonRegion},
		{"arn:minio:iam:a b::role/r", endpoint.ReasonRegion},
		{"arn:minio:iam::123456789123:role/r", endpoint.ReasonAccount},
		{"arn:aws:iam::123456789123:role/r", endpoint.ReasonAccount},
		{"arn:minio:iam:::user/r", endpoint.ReasonResource},
		{"arn:minio:iam:::role", endpoint.ReasonResource},
		{"arn:minio:iam:::role/", endpoint.ReasonName},
		{"arn:minio:iam:::role/r\n", endpoint.ReasonName},
		{"arn:minio:iam:::role/r\nx = y", endpoint.ReasonName},
		{"arn:minio:iam:::role/a:b", endpoint.ReasonName},
		{"arn:minio:iam:::role/ä", endpoint.ReasonName},
	} {
		err := endpoint.ParseStoreRoleARN(tt.arn)
		e, ok := errors.AsType[*endpoint.Error](err)
		if (err == nil) != (tt.reason == "") || (err != nil && (!ok || e.Reason != tt.reason || e.Fix == "")) {
			t.Errorf("%q: %v, want reason %q", tt.arn, err, tt.reason)
		}
		// No string is both a role of AWS and a role of a store.
		if _, aws := endpoint.ParseRoleARN(tt.arn); aws == nil && err == nil {
			t.Errorf("%q is a role of AWS too", tt.arn)
		}
	}
}

// FuzzParseStoreRoleARN checks that every accepted ARN is one line of printable ASCII, has no
// account, and is not a role of AWS.
func FuzzParseStoreRoleARN(f *testing.F) {
	f.Add("arn:minio:iam:::role/nOybJqMNzNmroqEKq5D0EUsRZw0")
	f.Add("arn:aws:iam:::role/S3Access")
	f.Fuzz(func(t *testing.T, s string) {
		if endpoint.ParseStoreRoleARN(s) != nil {
			return
		}
		if strings.ContainsFunc(s, func(r rune) bool { return r <= ' ' || r > '~' }) || strings.Count(s, ":") != 5 || !strings.Contains(s, "::role/") {
			t.Errorf("%q is accepted", s)
		}
		if _, err := endpoint.ParseRoleARN(s); err == nil {
			t.Errorf("%q is a role of AWS too", s)
		}
	})
}
