package clouds_test

import (
	"net/http"
	"reflect"
	"strings"
	"testing"

	"github.com/lanyard-dev/lanyard/api/toolkit/v1alpha1"
	"github.com/lanyard-dev/lanyard/auth"
	"github.com/lanyard-dev/lanyard/auth/endpoint"
	"github.com/lanyard-dev/lanyard/auth/providers"
	"github.com/lanyard-dev/lanyard/internal/artifact/origin"
	"github.com/lanyard-dev/lanyard/internal/clouds"
	"github.com/lanyard-dev/lanyard/internal/clouds/buckets"
	"github.com/lanyard-dev/lanyard/internal/must"
)

// TestBucketsAreLocated checks that a cloud's credential goes only to hosts of the cloud. A
// credential of AWS may also go to hosts that the administrator allows.
func TestBucketsAreLocated(t *testing.T) {
	allowed, err := endpoint.ParseAllowed("s3.internal.example:9000", "blob.internal.example", "storage.internal.example")
	must.Succeed(t, err)
	type spec = v1alpha1.BucketSpec
	for name, test := range map[string]struct {
		region string // the controller's own region
		spec   spec
		want   buckets.Place // the place without its field Token
		minted int           // length of the place's field Token, the options of a token request
		code   auth.Code     // of the refusal
		says   string
	}{
		"generic": {
			spec: spec{Access: v1alpha1.Access{Provider: "generic"}, Endpoint: "minio.example.com:9000"},
			want: buckets.Place{Endpoint: "minio.example.com:9000", Host: "minio.example.com:9000", Region: "us-east-1"},
		},
		"generic with a region": {
			spec: spec{Access: v1alpha1.Access{Provider: "generic"}, Endpoint: "minio.example.com", Region: "garage"},
			want: buckets.Place{Endpoint: "minio.example.com", Host: "minio.example.com", Region: "garage"},
		},
		"aws by the region": {
			spec: spec{Access: v1alpha1.Access{Provider: "aws"}, Region: "eu-west-1"}, minted: 1,
			want: buckets.Place{Endpoint: "s3.eu-west-1.amazonaws.com", Host: "tenant-a.s3.eu-west-1.amazonaws.com", Region: "eu-west-1"},
		},
		"aws in China": {
			spec: spec{Access: v1alpha1.Access{Provider: "aws"}, Region: "cn-north-1"}, minted: 1,
			want: buckets.Place{Endpoint: "s3.cn-north-1.amazonaws.com.cn", Host: "tenant-a.s3.cn-north-1.amazonaws.com.cn", Region: "cn-north-1"},
		},
		"aws in China, of a controller elsewhere": {
			region: "eu-north-1", spec: spec{Access: v1alpha1.Access{Provider: "aws"}, Region: "cn-north-1"}, minted: 1,
			want: buckets.Place{Endpoint: "s3.cn-north-1.amazonaws.com.cn", Host: "tenant-a.s3.cn-north-1.amazonaws.com.cn", Region: "cn-north-1"},
		},
		"aws, listed, of a controller with a region": {
			region: "eu-north-1", spec: spec{Access: v1alpha1.Access{Provider: "aws"}, Endpoint: "s3.internal.example:9000"},
			want: buckets.Place{Endpoint: "s3.internal.example:9000", Host: "s3.internal.example:9000", Region: "us-east-1", Listed: true},
		},
		"aws by the controller's region": {
			region: "eu-north-1", spec: spec{Access: v1alpha1.Access{Provider: "aws"}},
			want: buckets.Place{Endpoint: "s3.eu-north-1.amazonaws.com", Host: "tenant-a.s3.eu-north-1.amazonaws.com", Region: "eu-north-1"},
		},
		"aws by the endpoint": {
			region: "eu-north-1", spec: spec{Access: v1alpha1.Access{Provider: "aws"}, Endpoint: "s3.dualstack.us-east-2.amazonaws.com"},
			want: buckets.Place{Endpoint: "s3.dualstack.us-east-2.amazonaws.com", Host: "tenant-a.s3.dualstack.us-east-2.amazonaws.com", Region: "us-east-2"},
		},
		"aws, global": {
			spec: spec{Access: v1alpha1.Access{Provider: "aws"}, Endpoint: "s3.amazonaws.com", Region: "us-east-1"}, minted: 1,
			want: buckets.Place{Endpoint: "s3.amazonaws.com", Host: "tenant-a.s3.amazonaws.com", Region: "us-east-1"},
		},
		"aws with another STS": {
			spec: spec{Access: v1alpha1.Access{Provider: "aws"}, Region: "eu-west-1", STS: &v1alpha1.BucketSTS{Provider: "aws", Endpoint: "https://sts.amazonaws.com"}},
			want: buckets.Place{Endpoint: "s3.eu-west-1.amazonaws.com", Host: "tenant-a.s3.eu-west-1.amazonaws.com", Region: "eu-west-1"},
		},
		"aws with a dot in the bucket's name": {
			spec: spec{Access: v1alpha1.Access{Provider: "aws"}, BucketName: "tenant.a", Region: "eu-west-1"}, minted: 1,
			want: buckets.Place{Endpoint: "s3.eu-west-1.amazonaws.com", Host: "s3.eu-west-1.amazonaws.com", Region: "eu-west-1"},
		},
		"aws, listed": {
			spec: spec{Access: v1alpha1.Access{Provider: "aws"}, Endpoint: "s3.internal.example:9000", Region: "eu-west-1"}, minted: 1,
			want: buckets.Place{Endpoint: "s3.internal.example:9000", Host: "s3.internal.example:9000", Region: "eu-west-1", Listed: true},
		},
		"aws, listed, without a region": {
			spec: spec{Access: v1alpha1.Access{Provider: "aws"}, Endpoint: "s3.internal.example:9000"}, minted: 1,
			want: buckets.Place{Endpoint: "s3.internal.example:9000", Host: "s3.internal.example:9000", Region: "us-east-1", Listed: true},
		},
		"aws without a region":      {spec: spec{Access: v1alpha1.Access{Provider: "aws"}}, code: auth.CodeRegionMissing, says: "set spec.region"},
		"aws in no region":          {spec: spec{Access: v1alpha1.Access{Provider: "aws"}, Region: "nowhere"}, says: "spec.region"},
		"aws in two regions":        {spec: spec{Access: v1alpha1.Access{Provider: "aws"}, Endpoint: "s3.eu-west-1.amazonaws.com", Region: "us-east-1"}, says: "spec.region"},
		"aws, global, in no region": {spec: spec{Access: v1alpha1.Access{Provider: "aws"}, Endpoint: "s3.amazonaws.com", Region: "nowhere"}, says: "spec.region"},
		"aws, global, in another partition": {
			spec: spec{Access: v1alpha1.Access{Provider: "aws"}, Endpoint: "s3.amazonaws.com", Region: "cn-north-1"}, says: "spec.region: it is not of the partition",
		},
		"aws, listed, in a region of its own": {
			spec: spec{Access: v1alpha1.Access{Provider: "aws"}, Endpoint: "s3.internal.example:9000", Region: "garage"},
			want: buckets.Place{Endpoint: "s3.internal.example:9000", Host: "s3.internal.example:9000", Region: "garage", Listed: true},
		},
		"aws elsewhere":            {spec: spec{Access: v1alpha1.Access{Provider: "aws"}, Endpoint: "minio.example.com:9000"}, code: auth.CodeEndpointRefused, says: "spec.endpoint"},
		"aws's look-alike":         {spec: spec{Access: v1alpha1.Access{Provider: "aws"}, Endpoint: "s3.eu-west-1.amazonaws.com.evil.example"}, code: auth.CodeEndpointRefused, says: "spec.endpoint"},
		"aws's bucket in the host": {spec: spec{Access: v1alpha1.Access{Provider: "aws"}, Endpoint: "tenant-b.s3.eu-west-1.amazonaws.com"}, code: auth.CodeEndpointRefused, says: "write s3.eu-west-1.amazonaws.com"},
		"azure": {
			spec: spec{Access: v1alpha1.Access{Provider: "azure"}, Endpoint: "contoso.blob.core.windows.net"}, minted: 1,
			want: buckets.Place{Endpoint: "contoso.blob.core.windows.net", Host: "contoso.blob.core.windows.net"},
		},
		"azure of another cloud": {spec: spec{Access: v1alpha1.Access{Provider: "azure"}, Endpoint: "contoso.blob.core.chinacloudapi.cn"}, code: auth.CodeEndpointRefused, says: "write <account>.blob.core.windows.net"},
		"azure's look-alike":     {spec: spec{Access: v1alpha1.Access{Provider: "azure"}, Endpoint: "contoso.blob.core.windows.net.evil.example"}, code: auth.CodeEndpointRefused, says: "spec.endpoint"},
		// Any host that gets the token could use it at Azure. So no list of allowed hosts applies,
		// and the host is refused.
		"azure, listed": {spec: spec{Access: v1alpha1.Access{Provider: "azure"}, Endpoint: "blob.internal.example"}, code: auth.CodeEndpointRefused, says: "spec.endpoint"},
		"gcp": {
			spec: spec{Access: v1alpha1.Access{Provider: "gcp"}}, minted: 1,
			want: buckets.Place{Endpoint: "storage.googleapis.com", Host: "storage.googleapis.com"},
		},
		"gcp by the endpoint": {
			spec: spec{Access: v1alpha1.Access{Provider: "gcp"}, Endpoint: "storage.me-central2.rep.googleapis.com"}, minted: 1,
			want: buckets.Place{Endpoint: "storage.me-central2.rep.googleapis.com", Host: "storage.me-central2.rep.googleapis.com"},
		},
		"gcp of another universe": {spec: spec{Access: v1alpha1.Access{Provider: "gcp"}, Endpoint: "storage.s3nsapis.fr"}, code: auth.CodeEndpointRefused, says: "universe googleapis.com"},
		"gcp's look-alike":        {spec: spec{Access: v1alpha1.Access{Provider: "gcp"}, Endpoint: "storage.googleapis.com.evil.example"}, code: auth.CodeEndpointRefused, says: "spec.endpoint"},
		"gcp, listed":             {spec: spec{Access: v1alpha1.Access{Provider: "gcp"}, Endpoint: "storage.internal.example"}, code: auth.CodeEndpointRefused, says: "spec.endpoint"},
	} {
		t.Run(name, func(t *testing.T) {
			set, err := providers.New(providers.Config{AWSRegion: test.region, AllowedEndpointHosts: allowed})
			must.Succeed(t, err)
			t.Cleanup(set.Close)
			if test.spec.BucketName == "" {
				test.spec.BucketName = "tenant-a"
			}
			service := clouds.Buckets(set, allowed)[test.spec.Provider]
			place, err := service.Locate(test.spec)
			if test.says != "" {
				if err == nil || auth.CodeOf(err) != test.code || !strings.Contains(err.Error(), test.says) || strings.Contains(err.Error(), "https://") {
					t.Errorf("%+v, %v", place, err)
				}
				return
			}
			must.Succeed(t, err)
			if len(place.Token) != test.minted {
				t.Errorf("%d options of a token", len(place.Token))
			}
			got := place
			if got.Token = nil; !reflect.DeepEqual(got, test.want) {
				t.Errorf("%+v, want %+v", got, test.want)
			}
			// The bucket's requests must go to the place's host. Requests without a credential are
			// enough to check this.
			way := &wire{}
			opened, err := service.Open(t.Context(), buckets.Request{Place: place, Bucket: test.spec.BucketName, Transport: way, Caller: origin.Caller{Anonymous: true}})
			must.Succeed(t, err)
			for _, err := range opened.List(t.Context(), "") {
				if err == nil || !strings.Contains(err.Error(), "no credential was sent") {
					t.Errorf("without a credential it says %v", err)
				}
			}
			if len(way.hosts) == 0 || way.hosts[0] != place.Host {
				t.Errorf("asked %q, want %s", way.hosts, place.Host)
			}
		})
	}
}

// wire records the hosts of requests, and forbids every request.
type wire struct{ hosts []string }

func (w *wire) RoundTrip(r *http.Request) (*http.Response, error) {
	w.hosts = append(w.hosts, r.URL.Host)
	return &http.Response{StatusCode: http.StatusForbidden, Body: http.NoBody, Header: http.Header{}, Request: r}, nil
}
