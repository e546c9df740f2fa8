package endpoint_test

import (
	"context"
	"errors"
	"fmt"
	"net"

	"github.com/lanyard-dev/lanyard/auth/endpoint"
)

// ParseECR accepts only hosts of AWS. It compares a host, label by label, with tables of AWS's
// hosts.
func ExampleParseECR() {
	for _, image := range []string{
		"oci://123456789123.dkr.ecr.eu-west-1.amazonaws.com/tenant-a/app",
		"123456789123.dkr.ecr.eu-west-1.amazonaws.com.example.org/tenant-a/app",
	} {
		registry, err := endpoint.ParseECR(image)
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

// A controller serves one cloud of Azure. It refuses registries of all other clouds.
func ExampleAzureCloud_ParseACR() {
	registry, err := endpoint.AzurePublic().ParseACR("contoso.azurecr.io/tenant-a/app")
	fmt.Println(registry.Name, registry.Repository, err)
	_, err = endpoint.AzurePublic().ParseACR("contoso.azurecr.cn/tenant-a/app")
	fmt.Println(err)
	// Output:
	// contoso tenant-a/app <nil>
	// image repository refused: "contoso.azurecr.cn" is a registry of AzureChinaCloud, not of AzurePublicCloud; name a registry of AzurePublicCloud, or set the controller's AZURE_AUTHORITY_HOST to the other cloud's
}

// ParseGAR returns the location of a registry of Google Cloud and the domain of its universe.
func ExampleParseGAR() {
	registry, err := endpoint.ParseGAR("europe-west1-docker.pkg.dev/my-org-project/apps/app")
	fmt.Println(registry.Region, registry.Partition, err)
	// Output: europe-west1 googleapis.com <nil>
}

// ParseKMSKey accepts only regions of the ARN's partition. So the text of an encrypted file cannot
// name another host.
func ExampleParseKMSKey() {
	for _, arn := range []string{
		"arn:aws:kms:eu-west-1:123456789123:alias/tenant-a",
		"arn:aws:kms:example.org/:123456789123:alias/tenant-a",
	} {
		key, err := endpoint.ParseKMSKey(arn)
		if e, ok := errors.AsType[*endpoint.Error](err); ok {
			fmt.Println(e.Reason)
			continue
		}
		fmt.Println(key.Host(endpoint.Variant{}), key.Host(endpoint.Variant{FIPS: true}))
	}
	// Output:
	// kms.eu-west-1.amazonaws.com kms-fips.eu-west-1.amazonaws.com
	// unknown-region
}

// ParseVaultKey returns the audience of tokens for a vault. The audience follows from the cloud.
func ExampleParseVaultKey() {
	key, err := endpoint.ParseVaultKey("https://contoso.vault.azure.cn", "sops", "0123456789abcdef0123456789abcdef")
	fmt.Println(key.Cloud, key.Audience, err)
	fmt.Println(key.URL())
	// Output:
	// AzureChinaCloud https://vault.azure.cn <nil>
	// https://contoso.vault.azure.cn/keys/sops/0123456789abcdef0123456789abcdef
}

// The name of a key of Google Cloud does not decide the host: the caller's universe does.
func ExampleParseCloudKMSKey() {
	key, err := endpoint.ParseCloudKMSKey("projects/my-org-project/locations/global/keyRings/sops/cryptoKeys/tenant-a")
	fmt.Println(key.KeyRing, key.Key, err)
	fmt.Println(endpoint.GCPUniverses()[0].CloudKMSHost())
	// Output:
	// sops tenant-a <nil>
	// cloudkms.googleapis.com
}

// A host that an administrator listed is accepted in addition to AWS's own hosts. Host and port
// must be exactly as listed.
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
	// minio.example.org:9000 false
	//  true
	// sts.amazonaws.com false
}

// A host's name does not show its address. So a Guard checks the address when it is dialled.
func ExampleGuard() {
	dial := endpoint.Guard{}.DialContext(&net.Dialer{})
	for _, address := range []string{"127.0.0.1:443", "169.254.169.254:80", "10.96.0.1:443", "[::ffff:10.96.0.1]:443"} {
		_, err := dial(context.Background(), "tcp", address)
		if refused, ok := errors.AsType[*endpoint.AddressError](err); ok {
			fmt.Println(refused.Host, refused.Kind)
		}
	}
	// Output:
	// 127.0.0.1 loopback
	// 169.254.169.254 of a metadata service
	// 10.96.0.1 in --deny-cidrs
	// ::ffff:10.96.0.1 in --deny-cidrs
}
