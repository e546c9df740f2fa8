package gcp_test

import (
	"context"
	"fmt"
	"log"
	"net/http"

	"golang.org/x/oauth2"

	"github.com/lanyard-dev/lanyard/auth"
	"github.com/lanyard-dev/lanyard/auth/gcp"
	"github.com/lanyard-dev/lanyard/auth/internal/rig"
	"github.com/lanyard-dev/lanyard/cloudtest"
	cloudgcp "github.com/lanyard-dev/lanyard/cloudtest/gcp"
	"github.com/lanyard-dev/lanyard/cloudtest/oidc"
)

// Get a token for a tenant's ServiceAccount on GKE. The ServiceAccount is itself a principal of
// IAM. The scope devstorage.read_only limits the token to reading from Cloud Storage.
func Example() {
	local, accounts := localGKE()
	defer local.Cloud.Close()
	provider, err := gcp.NewProvider(gcp.Config{Transport: local.Base, MetadataHost: local.Proxy.Host})
	if err != nil {
		log.Fatal(err)
	}
	defer provider.Close()

	token, err := auth.GetToken(context.Background(), provider,
		auth.WithServiceAccount("tenant-a", "reader", accounts),
		auth.WithScopes("https://www.googleapis.com/auth/devstorage.read_only"))
	if err != nil {
		log.Fatal(err)
	}
	access := token.(*gcp.Token)
	fmt.Println(access.Secret, access.GetDuration().Minutes() > 58)
	// Output: [secret] true
}

// Google's clients send their requests as the tenant. They ask the source for a token at each
// request.
func ExampleNewTokenSource() {
	local, accounts := localGKE()
	defer local.Cloud.Close()
	provider, err := gcp.NewProvider(gcp.Config{Transport: local.Base, MetadataHost: local.Proxy.Host})
	if err != nil {
		log.Fatal(err)
	}
	defer provider.Close()

	source := gcp.NewTokenSource(context.Background(), provider, auth.WithServiceAccount("tenant-a", "reader", accounts))
	// Pass this client to option.WithHTTPClient.
	client := &http.Client{Transport: &oauth2.Transport{Source: source, Base: local.Base}}
	answer, err := client.Get("https://storage.googleapis.com/storage/v1/b/no-such-bucket/o")
	if err != nil {
		log.Fatal(err)
	}
	defer answer.Body.Close()
	fmt.Println(answer.Status)
	// Output: 404 Not Found
}

// Get a user name and a password for Artifact Registry.
func ExampleProvider_NewRegistryToken() {
	local, accounts := localGKE()
	defer local.Cloud.Close()
	provider, err := gcp.NewProvider(gcp.Config{Transport: local.Base, MetadataHost: local.Proxy.Host})
	if err != nil {
		log.Fatal(err)
	}
	defer provider.Close()

	for _, image := range []string{"europe-docker.pkg.dev/my-org-project/apps/app", "europe-docker.pkg.dev.example.org/my-org-project/apps/app"} {
		token, err := auth.GetToken(context.Background(), provider,
			auth.WithServiceAccount("tenant-a", "reader", accounts), auth.WithImageRepository(image))
		if err != nil {
			fmt.Println(auth.CodeOf(err))
			continue
		}
		login := token.(*auth.RegistryCredentials)
		fmt.Println(login.Username, login.Password)
	}
	// Output:
	// oauth2accesstoken [secret]
	// EndpointRefused
}

// localGKE starts a local Google Cloud with a GKE cluster. It returns accounts with one
// ServiceAccount of this cluster, without annotations. A real controller takes its accounts from
// package auth/kube, and uses the zero gcp.Config.
func localGKE() (*rig.Rig, auth.Accounts) {
	const issuer = "https://container.googleapis.com/v1/projects/my-org-project/locations/europe-west1/clusters/tenants"
	local, err := rig.Start(context.Background(), cloudtest.Config{GCP: cloudgcp.Config{
		Projects: []cloudgcp.Project{{
			ID: "my-org-project", Number: "123456789012",
			Clusters: []cloudgcp.Cluster{{Location: "europe-west1", Name: "tenants", Issuer: issuer}},
		}},
		Metadata: &cloudgcp.Metadata{Project: "my-org-project", ClusterLocation: "europe-west1", ClusterName: "tenants"},
	}}, issuer, oidc.RS256)
	if err != nil {
		log.Fatal(err)
	}
	return local, rig.Accounts{Sign: local.Sign, All: []auth.Account{rig.ServiceAccount("tenant-a", "reader", nil)}}
}
