package auth_test

import (
	"testing"

	"github.com/lanyard-dev/lanyard/auth"
)

// TestFingerprintVectors makes fingerprints with a fixed key, and compares them with vectors.
// Another implementation (Python's hmac) made the vectors.
func TestFingerprintVectors(t *testing.T) {
	key := []byte("a key of exactly thirty-two byte")
	for _, tt := range []struct {
		attributes map[string]string
		values     []string
		want       string
	}{
		{nil, nil, "Xcl_zlfg0kfk3Xv09BwvtA"},
		{map[string]string{"roleARN": "arn:aws:iam::111122223333:role/a", "externalID": "agreed"}, []string{"uid"}, "dTWmX0r5V3u4xQn8EJhpQw"},
	} {
		if got := auth.FingerprintWith(key, tt.attributes, tt.values); got != tt.want {
			t.Errorf("%v %q: %s, want %s", tt.attributes, tt.values, got, tt.want)
		}
	}
}

// TestFingerprintsDiffer checks that different arguments have different fingerprints, even if the
// strings concatenate to the same text.
func TestFingerprintsDiffer(t *testing.T) {
	seen := map[string]bool{}
	for _, print := range []string{
		auth.Fingerprint(nil),
		auth.Fingerprint(nil, ""),
		auth.Fingerprint(nil, "", ""),
		auth.Fingerprint(nil, "ab"),
		auth.Fingerprint(nil, "a", "b"),
		auth.Fingerprint(map[string]string{"a": "b"}),
		auth.Fingerprint(map[string]string{"ab": ""}),
		auth.Fingerprint(map[string]string{"a": "b", "c": ""}),
		auth.Fingerprint(map[string]string{"a": ""}, "b"),
		auth.Fingerprint(map[string]string{}, "a", "", "b"),
	} {
		if seen[print] {
			t.Errorf("%s twice", print)
		}
		seen[print] = true
	}
	if auth.Fingerprint(map[string]string{"a": "b", "c": "d"}) != auth.Fingerprint(map[string]string{"c": "d", "a": "b"}) {
		t.Error("the order of a map counts")
	}
}

func BenchmarkFingerprint(b *testing.B) {
	attributes := map[string]string{
		"source": "AWSClusterStaticIdentity root", "roleARN": "arn:aws:iam::111122223333:role/team/CAPARole", "sessionName": "cluster-spinner.acme.com",
		"durationSeconds": "3600", "externalID": "7a5b816a-7743-4377-a382-2d695bf1f172", "tags": "company=acme+industries&product=cluster-spinner",
		"inlinePolicy": `{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Action":"ec2:*","Resource":"*"}]}`, "transitiveTags": "company,product",
	}
	b.ReportAllocs()
	for b.Loop() {
		auth.Fingerprint(attributes, "lanyard.dev:awsclusterroleidentity:test-account-role", "7c1f4d0e-1f74-4195-852b-e1a74b03496a", "x9Y")
	}
}
