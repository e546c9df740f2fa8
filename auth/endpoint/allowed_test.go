package endpoint_test

import (
	"flag"
	"io"
	"strings"
	"testing"

	"github.com/lanyard-dev/lanyard/auth/endpoint"
	"github.com/lanyard-dev/lanyard/auth/internal/must"
)

func mustAllow(t *testing.T, entries ...string) endpoint.Allowed {
	t.Helper()
	a, err := endpoint.ParseAllowed(entries...)
	must.Succeed(t, err)
	return a
}

func TestAllowedContains(t *testing.T) {
	list := mustAllow(t, "minio.example.org:9000", "STS.example.org", "127.0.0.1:5000", "[::1]:5000", "[::ffff:10.0.0.1]")
	for hostport, want := range map[string]bool{
		"minio.example.org:9000":   true,
		"MINIO.example.org:9000":   true,
		"minio.example.org":        false,
		"minio.example.org:443":    false,
		"minio.example.org:09000":  false,
		"sts.example.org":          true,
		"sts.example.org:443":      true,
		"sts.example.org:80":       false,
		"x.sts.example.org":        false,
		"sts.example.org.":         false,
		"sts.example.org.evil.com": false,
		"evil.com@sts.example.org": false,
		"127.0.0.1:5000":           true,
		"127.0.0.1":                false,
		"[::1]:5000":               true,
		"[0:0::1]:5000":            true,
		"[::1]":                    false,
		"::1":                      false,
		"10.0.0.1:443":             true,
		"":                         false,
		":443":                     false,
	} {
		if got := list.Contains(hostport); got != want {
			t.Errorf("Contains(%q) = %v, want %v", hostport, got, want)
		}
	}
	var none endpoint.Allowed
	if none.Contains("") || none.Contains("sts.example.org") {
		t.Error("the zero list holds something")
	}
}

func TestParseAllowedRefuses(t *testing.T) {
	for entry, reason := range map[string]endpoint.Reason{
		"":                        endpoint.ReasonEmpty,
		":443":                    endpoint.ReasonMalformed,
		"*":                       endpoint.ReasonMalformed,
		"*.example.org":           endpoint.ReasonMalformed,
		"https://sts.example.org": endpoint.ReasonMalformed,
		"sts.example.org/path":    endpoint.ReasonMalformed,
		"user@sts.example.org":    endpoint.ReasonMalformed,
		"sts.example.org.":        endpoint.ReasonMalformed,
		"sts.example.org:":        endpoint.ReasonPort,
		"sts.example.org:0":       endpoint.ReasonPort,
		"sts.example.org:65536":   endpoint.ReasonPort,
		"sts.example.org:+80":     endpoint.ReasonPort,
		"sts.example.org:https":   endpoint.ReasonPort,
		"[fe80::1%eth0]:443":      endpoint.ReasonMalformed,
		"[127.0.0.1]:443":         endpoint.ReasonMalformed,
		"[::1:443":                endpoint.ReasonMalformed,
		"::1":                     endpoint.ReasonMalformed,
		" sts.example.org":        endpoint.ReasonMalformed,
		"st\u0455.example.org":    endpoint.ReasonMalformed,
	} {
		t.Run(entry, func(t *testing.T) {
			_, err := endpoint.ParseAllowed("good.example.org", entry)
			refused(t, err, reason)
		})
	}
}

func TestAllowedIsAFlag(t *testing.T) {
	var list endpoint.Allowed
	fs := flag.NewFlagSet("", flag.ContinueOnError)
	fs.SetOutput(io.Discard)
	fs.Var(&list, "allowed-endpoint-hosts", "")
	must.Succeed(t, fs.Parse([]string{
		"--allowed-endpoint-hosts=b.example.org,a.example.org:80", "--allowed-endpoint-hosts=a.example.org:80", "--allowed-endpoint-hosts=",
	}))
	const want = "a.example.org:80,b.example.org:443"
	if got := list.String(); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if err := fs.Parse([]string{"--allowed-endpoint-hosts=c.example.org,*"}); err == nil {
		t.Error("a wildcard was accepted")
	}
	if got := list.String(); got != want {
		t.Errorf("a refused value changed the list to %s", got)
	}
	more, err := list.With("c.example.org")
	if err != nil || !more.Contains("c.example.org") || list.Contains("c.example.org") {
		t.Errorf("With: got %v, %v beside %v", more.String(), err, list.String())
	}
}

// TestAllowedParses checks that ParseSTS accepts the hosts of the list, but never as hosts of AWS.
// The audience of a proof must be exactly the host and port. Otherwise two services of one host
// would accept each other's proofs.
func TestAllowedParses(t *testing.T) {
	list := mustAllow(t, "minio.example.org:9000", "sts.example.org", "127.0.0.1:5000", "[::1]")
	for raw, want := range map[string]endpoint.STS{
		"https://minio.example.org:9000":  {Host: "minio.example.org", Port: "9000", Listed: true},
		"https://sts.example.org":         {Host: "sts.example.org", Listed: true},
		"https://Sts.example.org:443/":    {Host: "sts.example.org", Listed: true},
		"https://[::1]":                   {Host: "::1", Listed: true},
		"https://sts.cn-north-1.api.aws":  {},
		"http://sts.example.org":          {},
		"https://sts.example.org/path":    {},
		"https://a:b@sts.example.org":     {},
		"https://sts.example.org:8443":    {},
		"https://evil.example.org":        {},
		"https://sts.example.org.evil.io": {},
	} {
		got, err := list.ParseSTS(raw)
		if got != want || (err == nil) != want.Listed {
			t.Errorf("ParseSTS(%s): got %+v, %v, want %+v", raw, got, err, want)
		}
		if audience := strings.TrimPrefix(want.URL(), "https://"); err == nil && got.Audience() != audience {
			t.Errorf("ParseSTS(%s): got the audience %s, want %s", raw, got.Audience(), audience)
		}
		if err == nil {
			if again, err := list.ParseSTS(got.URL()); err != nil || again != got {
				t.Errorf("ParseSTS(%s): its URL %s parses to %+v, %v", raw, got.URL(), again, err)
			}
		}
	}
	aws, err := list.ParseSTS("https://sts.eu-west-1.amazonaws.com")
	if err != nil || aws.Listed || aws.Provider != endpoint.AWS {
		t.Errorf("got %+v, %v beside the list", aws, err)
	}
}

// TestAllowedParsesS3 checks that ParseS3 accepts the hosts of the list, marked as Listed and
// without a region. Bucket names must go into the path, not into the host.
func TestAllowedParsesS3(t *testing.T) {
	list := mustAllow(t, "minio.example.org:9000", "store.example.org", "[::1]:9000")
	for raw, want := range map[string]struct {
		s3   endpoint.S3
		text string
	}{
		"minio.example.org:9000":         {endpoint.S3{Host: "minio.example.org", Port: "9000", Listed: true}, "minio.example.org:9000"},
		"https://Minio.example.org:9000": {endpoint.S3{Host: "minio.example.org", Port: "9000", Listed: true}, "minio.example.org:9000"},
		"store.example.org":              {endpoint.S3{Host: "store.example.org", Listed: true}, "store.example.org"},
		"https://store.example.org:443/": {endpoint.S3{Host: "store.example.org", Listed: true}, "store.example.org"},
		"[::1]:9000":                     {endpoint.S3{Host: "::1", Port: "9000", Listed: true}, "[::1]:9000"},
		"minio.example.org":              {},
		"store.example.org:9000":         {},
		"http://store.example.org":       {},
		"store.example.org/bucket":       {},
		"bucket.store.example.org":       {},
		"a:b@store.example.org":          {},
		"store.example.org.evil.io":      {},
	} {
		got, err := list.ParseS3(raw)
		if got != want.s3 || (err == nil) != want.s3.Listed {
			t.Errorf("ParseS3(%s): got %+v, %v, want %+v", raw, got, err, want.s3)
		}
		if err == nil && (got.String() != want.text || got.BucketHost("bucket") != want.text) {
			t.Errorf("ParseS3(%s): %s, and %s for a bucket, want %s for both", raw, got, got.BucketHost("bucket"), want.text)
		}
		if _, err := endpoint.ParseS3(raw); err == nil {
			t.Errorf("ParseS3(%s): accepted without a list", raw)
		}
	}
	aws, err := list.ParseS3("s3.eu-west-1.amazonaws.com")
	if err != nil || aws.Listed || aws.Region != "eu-west-1" {
		t.Errorf("got %+v, %v beside the list", aws, err)
	}
}
