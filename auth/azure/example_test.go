package azure_test

import (
	"context"
	"fmt"
	"log"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"

	"github.com/lanyard-dev/lanyard/auth"
	"github.com/lanyard-dev/lanyard/auth/azure"
	"github.com/lanyard-dev/lanyard/auth/endpoint"
	"github.com/lanyard-dev/lanyard/auth/internal/rig"
	"github.com/lanyard-dev/lanyard/cloudtest"
	cloudazure "github.com/lanyard-dev/lanyard/cloudtest/azure"
	"github.com/lanyard-dev/lanyard/cloudtest/oidc"
)

// GetToken returns a token for Azure Key Vault. It is a token of the application in the annotation
// of the tenant's ServiceAccount.
func Example() {
	local, accounts := localAzure()
	defer local.Cloud.Close()
	provider, err := azure.NewProvider(azure.Config{TenantID: "72f988bf-86f1-41af-91ab-2d7cd011db47", Transport: local.Base})
	if err != nil {
		log.Fatal(err)
	}
	defer provider.Close()

	token, err := auth.GetToken(context.Background(), provider,
		auth.WithServiceAccount("tenant-a", "puller", accounts),
		auth.WithScopes(azure.KeyVaultScope(provider.Cloud())))
	if err != nil {
		log.Fatal(err)
	}
	bearer := token.(*azure.Token)
	fmt.Println(bearer.Secret, bearer.GetDuration().Minutes() > 58)
	// Output: [secret] true
}

// A client of the Azure SDK acts as the tenant. It asks for the scope of its service, such as Azure
// Storage.
func ExampleNewTokenCredential() {
	local, accounts := localAzure()
	defer local.Cloud.Close()
	provider, err := azure.NewProvider(azure.Config{TenantID: "72f988bf-86f1-41af-91ab-2d7cd011db47", Transport: local.Base})
	if err != nil {
		log.Fatal(err)
	}
	defer provider.Close()

	credential := azure.NewTokenCredential(provider, auth.WithServiceAccount("tenant-a", "puller", accounts))
	// The client from azblob.NewClient(url, credential, nil) makes this call before its requests:
	token, err := credential.GetToken(context.Background(), policy.TokenRequestOptions{Scopes: []string{"https://storage.azure.com/.default"}})
	fmt.Println(token.Token != "", err)
	// Output: true <nil>
}

// The token is a user and a password for one repository of Azure Container Registry.
func ExampleProvider_NewRegistryToken() {
	local, accounts := localAzure()
	defer local.Cloud.Close()
	provider, err := azure.NewProvider(azure.Config{TenantID: "72f988bf-86f1-41af-91ab-2d7cd011db47", Transport: local.Base})
	if err != nil {
		log.Fatal(err)
	}
	defer provider.Close()

	for _, image := range []string{"contoso.azurecr.io/tenant-a/app", "contoso.azurecr.cn/tenant-a/app"} {
		token, err := auth.GetToken(context.Background(), provider,
			auth.WithServiceAccount("tenant-a", "puller", accounts), auth.WithImageRepository(image))
		if err != nil {
			fmt.Println(auth.CodeOf(err))
			continue
		}
		login := token.(*auth.RegistryCredentials)
		fmt.Println(login.Username, login.Password)
	}
	// Output:
	// 00000000-0000-0000-0000-000000000000 [secret]
	// EndpointRefused
}

// Outside Azure's public cloud, a controller reads the authority from the environment variable
// AZURE_AUTHORITY_HOST. Azure's webhook sets this variable.
func ExampleConfig() {
	cloud, err := endpoint.ParseAzureAuthority("https://login.microsoftonline.us/")
	if err != nil {
		log.Fatal(err)
	}
	provider, err := azure.NewProvider(azure.Config{Cloud: cloud})
	if err != nil {
		log.Fatal(err)
	}
	defer provider.Close()
	fmt.Println(provider.Cloud().Name, azure.ResourceManagerScope(cloud))
	// Output: AzureUSGovernmentCloud https://management.usgovcloudapi.net/.default
}

// localAzure returns a local Azure with one application, and an [auth.Accounts] with the only
// ServiceAccount that the application trusts. A controller gets its [auth.Accounts] from package
// auth/kube instead, and needs no Transport in its [azure.Config].
func localAzure() (*rig.Rig, auth.Accounts) {
	const issuer, client = "https://oidc.example.org/cluster", "d6e4fc00-c5b2-4a72-9f84-6a92e3f06b08"
	local, err := rig.Start(context.Background(), cloudtest.Config{Azure: cloudazure.Config{Tenants: []cloudazure.Tenant{{
		ID: "72f988bf-86f1-41af-91ab-2d7cd011db47",
		Applications: []cloudazure.Application{{
			ClientID:             client,
			FederatedCredentials: []cloudazure.FederatedCredential{{Name: "cluster", Issuer: issuer, Subject: "system:serviceaccount:tenant-a:puller"}},
		}},
		Registries: []cloudazure.RegistryConfig{{Name: "contoso", RoleAssignments: []cloudazure.RegistryRole{{ClientID: client, Role: "AcrPull"}}}},
	}}}}, issuer, oidc.RS256)
	if err != nil {
		log.Fatal(err)
	}
	return local, rig.Accounts{Sign: local.Sign, All: []auth.Account{
		rig.ServiceAccount("tenant-a", "puller", map[string]string{azure.ClientAnnotation: client}),
	}}
}
