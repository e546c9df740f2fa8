package endpoint_test

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/lanyard-dev/lanyard/auth/endpoint"
)

// A registry is its cloud's, or it is refused: hosts are compared with tables, label by label.
func ExampleParseRegistry() {
	for _, image := range []string{
		"oci://123456789123.dkr.ecr.eu-west-1.amazonaws.com/tenant-a/app",
		"123456789123.dkr.ecr.eu-west-1.amazonaws.com.example.org/tenant-a/app",
	} {
		registry, err := endpoint.ParseRegistry(image)
		if e, ok := errors.AsType[*endpoint.Error](err); ok {
			fmt.Println(e.Reason)
			continue
		}
		fmt.Println(registry.Account, registry.Region, registry.Partition)
	}
	// Output:
	// 123456789123 eu-west-1 aws
	// unknown-host
}

// One controller serves one cloud of Azure: the registries of the others are as foreign as any.
func ExampleAzureCloud_ParseACR() {
	registry, err := endpoint.AzurePublic().ParseACR("contoso.azurecr.io/tenant-a/app")
	fmt.Println(registry.Name, registry.Repository, err)
	_, err = endpoint.AzurePublic().ParseACR("contoso.azurecr.cn/tenant-a/app")
	fmt.Println(err)
	// Output:
	// contoso tenant-a/app <nil>
	// image repository refused: "contoso.azurecr.cn" is a registry of AzureChinaCloud, not of AzurePublicCloud; name a registry of AzurePublicCloud, or set the controller's AZURE_AUTHORITY_HOST to the other cloud's
}

// Google's registries.
func ExampleParseGAR() {
	registry, err := endpoint.ParseGAR("europe-west1-docker.pkg.dev/my-org-project/apps/app")
	fmt.Println(registry.Region, registry.Partition, err)
	// Output: europe-west1 googleapis.com <nil>
}

// What an administrator lists is accepted besides the tables, exactly as it is written.
func ExampleAllowed() {
	allowed, err := endpoint.ParseAllowed("minio.example.org:9000")
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, url := range []string{"https://minio.example.org:9000", "https://minio.example.org", "https://sts.eu-west-1.amazonaws.com"} {
		sts, err := allowed.ParseSTS(url)
		fmt.Println(sts.Audience(), err != nil)
	}
	// Output:
	// minio.example.org false
	//  true
	// sts.amazonaws.com false
}

// A name says nothing about the address behind it, which is judged when it is dialled.
func ExampleGuard() {
	guard := endpoint.Guard{DenyCIDRs: endpoint.CIDRs{netip.MustParsePrefix("10.96.0.0/12")}}
	for _, address := range []string{"127.0.0.1", "169.254.169.254", "10.96.0.1", "10.1.2.3", "::ffff:127.0.0.1"} {
		fmt.Println(address, guard.Check(netip.MustParseAddr(address)) == nil)
	}
	// Output:
	// 127.0.0.1 false
	// 169.254.169.254 false
	// 10.96.0.1 false
	// 10.1.2.3 true
	// ::ffff:127.0.0.1 false
}
