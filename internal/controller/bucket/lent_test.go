package bucket

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/lanyard-dev/lanyard/api/meta"
	"github.com/lanyard-dev/lanyard/api/toolkit/v1alpha1"
	"github.com/lanyard-dev/lanyard/auth"
	"github.com/lanyard-dev/lanyard/auth/azure"
	"github.com/lanyard-dev/lanyard/auth/cache"
	"github.com/lanyard-dev/lanyard/auth/gcp"
	"github.com/lanyard-dev/lanyard/auth/spec"
	"github.com/lanyard-dev/lanyard/internal/artifact/objectstore"
	"github.com/lanyard-dev/lanyard/internal/clouds/buckets"
	"github.com/lanyard-dev/lanyard/internal/controller/access"
	"github.com/lanyard-dev/lanyard/internal/controller/controllertest"
	"github.com/lanyard-dev/lanyard/internal/controller/source"
	"github.com/lanyard-dev/lanyard/internal/must"
)

// TestLentIdentityStaysAtTheCloud checks that a lent identity is used only at hosts of the cloud.
// It must not be used at another host that the administrator allows. A tenant's own identity may be
// used there.
func TestLentIdentityStaysAtTheCloud(t *testing.T) {
	tenant, err := auth.ServiceAccount("tenant-a", "reader")
	must.Succeed(t, err)
	role, err := auth.ClusterIdentity("AWSClusterRoleIdentity", "reader")
	must.Succeed(t, err)
	for name, tc := range map[string]struct {
		subject auth.Subject
		listed  bool
		refused bool
	}{
		"the tenant's at the cloud":     {tenant, false, false},
		"the tenant's at a listed host": {tenant, true, false},
		"the controller's at the cloud": {auth.Controller(), false, false},
		"the controller's at a listed":  {auth.Controller(), true, true},
		"a lent role's at the cloud":    {role, false, false},
		"a lent role's at a listed":     {role, true, true},
		"nobody's at a listed host":     {auth.Subject{}, true, false},
	} {
		t.Run(name, func(t *testing.T) {
			call := source.Call{Call: access.Call{Identity: spec.Identity{Source: spec.Cloud, Provider: "aws", Subject: tc.subject}}}
			k := kind{services: map[string]buckets.Service{"aws": listed(tc.listed)}}
			_, err := k.Decide(&v1alpha1.Bucket{Spec: v1alpha1.BucketSpec{Access: v1alpha1.Access{Provider: "aws"}, BucketName: "tenant-a"}}, call)
			if tc.refused != (auth.CodeOf(err) == auth.CodeEndpointRefused) || !tc.refused && err != nil {
				t.Fatalf("%v", err)
			}
			if tc.refused && !strings.Contains(err.Error(), "spec.serviceAccountName") {
				t.Errorf("%v", err)
			}
		})
	}
}

// listed is a fake [buckets.Service] with one host for all buckets. The value true puts this host
// outside the cloud, on the administrator's list of allowed hosts. The value false makes it a host
// of the cloud.
type listed bool

func (l listed) Locate(v1alpha1.BucketSpec) (buckets.Place, error) {
	return buckets.Place{Endpoint: "s3.internal.example:9000", Listed: bool(l)}, nil
}

func (listed) Open(context.Context, buckets.Request) (objectstore.Storage, error) {
	return nil, errors.New("nothing is opened before it is decided")
}

// TestBearerTokensAreNotShown checks that the credential in the login for a bucket has no bearer
// token. Even if it had one, the connection must not add it to requests. Only the client of the
// cloud's service sends the token.
func TestBearerTokensAreNotShown(t *testing.T) {
	secret, ends := auth.NewSecret("a.jwt"), time.Now().Add(time.Hour)
	subject, err := auth.ServiceAccount("tenant-a", "reader")
	must.Succeed(t, err)
	for _, token := range []auth.Token{&azure.Token{Secret: secret, ExpiresAt: ends}, &gcp.Token{Secret: secret, ExpiresAt: ends}} {
		var header http.Header
		network := controllertest.NewNetwork(t, map[string]http.Handler{cloudHost: http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			header = r.Header
		})})
		cloud, accounts := controllertest.NewCloud(""), &controllertest.Accounts{}
		cloud.Trust("role/a", subject.String())
		cloud.Issue(token)
		accounts.Put(t, "tenant-a", "reader", "1", map[string]string{"role": "role/a"})
		tokens := cache.New(cache.Options{})
		reach := &access.Access{
			Provider: func(string) (auth.Provider, error) { return cloud, nil }, Accounts: accounts, Cache: tokens, Observer: tokens,
			Transports: network.Pool(t, nil),
		}
		call := access.Call{Identity: spec.Identity{Source: spec.Cloud, Provider: "azure", Subject: subject}}
		conn, err := reach.Connect(t.Context(), call, cloudHost)
		must.Succeed(t, err)
		defer conn.Close()
		err = reach.Use(t.Context(), call, conn, &meta.FetchStatus{}, plan{}.credentials(), func(login access.Login) error {
			if login.Token != token || !login.Credential.IsZero() {
				t.Errorf("%T: %+v", token, login)
			}
			login.Credential.Bearer = secret // the connection must not send it
			req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://"+cloudHost+"/", http.NoBody)
			if err != nil {
				return err
			}
			resp, err := conn.As(login).RoundTrip(req)
			if err != nil {
				return err
			}
			return resp.Body.Close()
		})
		if err != nil || header == nil || header.Get("Authorization") != "" {
			t.Errorf("%T: %v, %v", token, err, header)
		}
	}
}
