package endpoint_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/lanyard-dev/lanyard/auth/endpoint"
	"github.com/lanyard-dev/lanyard/auth/internal/must"
)

func TestParseACR(t *testing.T) {
	const public, gov, china = "AzurePublicCloud", "AzureUSGovernmentCloud", "AzureChinaCloud"
	long := strings.Repeat("a", 50)
	for _, tt := range []struct {
		image  string
		want   endpoint.ACR
		reason endpoint.Reason
	}{
		// Every suffix, and every form of a registry's host (Azure Container Registry, "Endpoint
		// reference").
		{image: "contoso.azurecr.io", want: endpoint.ACR{Host: "contoso.azurecr.io", Name: "contoso", Cloud: public}},
		{image: "contoso.azurecr.io/app", want: endpoint.ACR{Host: "contoso.azurecr.io", Name: "contoso", Cloud: public, Repository: "app"}},
		{
			image: "oci://contoso.azurecr.io/tenant-a/my_app/v1.2__x---y",
			want:  endpoint.ACR{Host: "contoso.azurecr.io", Name: "contoso", Cloud: public, Repository: "tenant-a/my_app/v1.2__x---y"},
		},
		{image: "Contoso.AzureCR.io/app", want: endpoint.ACR{Host: "contoso.azurecr.io", Name: "contoso", Cloud: public, Repository: "app"}},
		{image: "contoso.azurecr.cn/app", want: endpoint.ACR{Host: "contoso.azurecr.cn", Name: "contoso", Cloud: china, Repository: "app"}},
		{image: "contoso.azurecr.us/app", want: endpoint.ACR{Host: "contoso.azurecr.us", Name: "contoso", Cloud: gov, Repository: "app"}},
		{image: "contoso-h4shd8fcc0gzc3ae.azurecr.io", want: endpoint.ACR{Host: "contoso-h4shd8fcc0gzc3ae.azurecr.io", Name: "contoso-h4shd8fcc0gzc3ae", Cloud: public}},
		{image: "contoso.eastus2.geo.azurecr.io/app", want: endpoint.ACR{Host: "contoso.eastus2.geo.azurecr.io", Name: "contoso", Region: "eastus2", Cloud: public, Repository: "app"}},
		{image: "contoso.chinaeast2.geo.azurecr.cn", want: endpoint.ACR{Host: "contoso.chinaeast2.geo.azurecr.cn", Name: "contoso", Region: "chinaeast2", Cloud: china}},
		{image: "abcde.azurecr.io", want: endpoint.ACR{Host: "abcde.azurecr.io", Name: "abcde", Cloud: public}},
		{image: long + ".azurecr.io", want: endpoint.ACR{Host: long + ".azurecr.io", Name: long, Cloud: public}},

		// Hosts that are not login servers.
		{image: "contoso.eastus2.data.azurecr.io/app", reason: endpoint.ReasonHost},
		{image: "contoso.eastus2.foo.azurecr.io/app", reason: endpoint.ReasonHost},
		{image: "contoso.privatelink.azurecr.io", reason: endpoint.ReasonHost},
		{image: "contoso.a.b.c.azurecr.io", reason: endpoint.ReasonHost},
		{image: "contoso.east-us.geo.azurecr.io", reason: endpoint.ReasonHost},
		{image: "azurecr.io", reason: endpoint.ReasonHost},
		{image: "azurecr.io/app", reason: endpoint.ReasonHost},
		// Hosts of a cloud that was closed in October 2021, and of Microsoft's own registry.
		{image: "contoso.azurecr.de", reason: endpoint.ReasonHost},
		{image: "mcr.microsoft.com/app", reason: endpoint.ReasonHost},

		// Look-alikes.
		{image: "contoso.azurecr.io.evil.example/app", reason: endpoint.ReasonHost},
		{image: "contosoazurecr.io", reason: endpoint.ReasonHost},
		{image: "contoso.azurecr.io.", reason: endpoint.ReasonMalformed},
		{image: ".azurecr.io", reason: endpoint.ReasonMalformed},
		{image: "contoso.azurecr.io:443/app", reason: endpoint.ReasonPort},
		{image: "contoso.azurecr.io:5000/app", reason: endpoint.ReasonPort},
		{image: "contoso.azurecr.io@evil.example/app", reason: endpoint.ReasonCredentials},
		{image: "user:password@contoso.azurecr.io/app", reason: endpoint.ReasonCredentials},
		{image: "evil.example/contoso.azurecr.io", reason: endpoint.ReasonHost},
		{image: "evil.example?contoso.azurecr.io", reason: endpoint.ReasonPath},
		{image: "evil.example#.azurecr.io", reason: endpoint.ReasonPath},
		{image: `evil.example\.azurecr.io`, reason: endpoint.ReasonMalformed},
		{image: "evil.example%2f.azurecr.io", reason: endpoint.ReasonMalformed},
		{image: "contoso.azurecr.\u0131o/app", reason: endpoint.ReasonMalformed}, // dotless i
		{image: "contoso\u3002azurecr.io/app", reason: endpoint.ReasonMalformed}, // ideographic full stop
		{image: "contos\u043e.azurecr.io/app", reason: endpoint.ReasonMalformed}, // Cyrillic o
		{image: "xn--contos-jua.azurecr.io/app", reason: endpoint.ReasonName},
		{image: "https://contoso.azurecr.io/app", reason: endpoint.ReasonScheme},
		{image: "20.42.64.1/app", reason: endpoint.ReasonHost},
		{image: "[2603:1030::1]/app", reason: endpoint.ReasonHost},
		{image: "", reason: endpoint.ReasonEmpty},

		// Names that no registry can have.
		{image: "abcd.azurecr.io", reason: endpoint.ReasonName},
		{image: long + "a.azurecr.io", reason: endpoint.ReasonName},
		{image: "con_toso.azurecr.io", reason: endpoint.ReasonMalformed},
		{image: "con-to-so.azurecr.io", reason: endpoint.ReasonName},
		{image: "cont-hash.azurecr.io", reason: endpoint.ReasonName},

		// Paths that are not a repository: they would change the meaning of a token's scope.
		{image: "contoso.azurecr.io/", reason: endpoint.ReasonPath},
		{image: "contoso.azurecr.io/app:v1", reason: endpoint.ReasonPath},
		{image: "contoso.azurecr.io/app@sha256:00", reason: endpoint.ReasonPath},
		{image: "contoso.azurecr.io/App", reason: endpoint.ReasonPath},
		{image: "contoso.azurecr.io/app,b", reason: endpoint.ReasonPath},
		{image: "contoso.azurecr.io/*", reason: endpoint.ReasonPath},
		{image: "contoso.azurecr.io/../app", reason: endpoint.ReasonPath},
		{image: "contoso.azurecr.io/a..b", reason: endpoint.ReasonPath},
		{image: "contoso.azurecr.io/a___b", reason: endpoint.ReasonPath},
		{image: "contoso.azurecr.io/a._b", reason: endpoint.ReasonPath},
		{image: "contoso.azurecr.io/-app", reason: endpoint.ReasonPath},
		{image: "contoso.azurecr.io/app-", reason: endpoint.ReasonPath},
		{image: "contoso.azurecr.io//app", reason: endpoint.ReasonPath},
		{image: "contoso.azurecr.io/app/", reason: endpoint.ReasonPath},
		{image: "contoso.azurecr.io/" + strings.Repeat("a", 256), reason: endpoint.ReasonPath},
	} {
		t.Run(tt.image, func(t *testing.T) {
			got, err := endpoint.ParseACR(tt.image)
			parsed(t, got, tt.want, err, tt.reason)
		})
	}
}

func TestDataEndpointNamesItsLoginServer(t *testing.T) {
	_, err := endpoint.ParseACR("contoso.eastus2.data.azurecr.io/app")
	if err == nil || !strings.HasSuffix(err.Error(), "write the login server, contoso.azurecr.io") {
		t.Errorf("got %v", err)
	}
}

func TestRegistryOfAnotherCloud(t *testing.T) {
	clouds := endpoint.AzureClouds()
	for _, c := range clouds {
		for _, other := range clouds {
			got, err := c.ParseACR("contoso." + other.RegistrySuffix + "/app")
			if c == other {
				if err != nil || got.Cloud != c.Name {
					t.Errorf("%s: got %+v, %v", c.Name, got, err)
				}
				continue
			}
			refused(t, err, endpoint.ReasonPartition)
		}
		_, err := c.ParseACR("contoso." + c.RegistrySuffix + ".evil.example/app")
		refused(t, err, endpoint.ReasonHost)
	}
}

func TestCustomCloudOwnsItsRegistriesAlone(t *testing.T) {
	c, err := endpoint.ParseAzureEnvironment([]byte(azureStack), "")
	must.Succeed(t, err)
	got, err := c.ParseACR("contoso.azurecr.local.azurestack.external/app")
	if err != nil || got.Host != "contoso.azurecr.local.azurestack.external" || got.Cloud != "AzureStackCloud" {
		t.Errorf("got %+v, %v", got, err)
	}
	_, err = c.ParseACR("contoso.azurecr.io/app")
	refused(t, err, endpoint.ReasonPartition)
	_, err = endpoint.ParseACR("contoso.azurecr.local.azurestack.external/app")
	refused(t, err, endpoint.ReasonHost)
	c.RegistrySuffix = ""
	_, err = c.ParseACR("contoso.azurecr.local.azurestack.external/app")
	refused(t, err, endpoint.ReasonHost)
}

func TestParseBlobEndpoint(t *testing.T) {
	for _, tt := range []struct {
		url           string
		account, name string
		reason        endpoint.Reason
	}{
		{url: "https://contoso.blob.core.windows.net", account: "contoso", name: "AzurePublicCloud"},
		{url: "contoso.blob.core.windows.net", account: "contoso", name: "AzurePublicCloud"},
		{url: "contoso.blob.core.windows.net:443", account: "contoso", name: "AzurePublicCloud"},
		{url: "contoso.blob.core.windows.net:80", reason: endpoint.ReasonPort},
		{url: "http://contoso.blob.core.windows.net", reason: endpoint.ReasonScheme},
		{url: "https://contoso.blob.core.windows.net/", account: "contoso", name: "AzurePublicCloud"},
		{url: "https://Contoso.blob.core.windows.net:443", account: "contoso", name: "AzurePublicCloud"},
		{url: "https://contoso-secondary.blob.core.windows.net", account: "contoso", name: "AzurePublicCloud"},
		{url: "https://contoso.z01.blob.storage.azure.net", account: "contoso", name: "AzurePublicCloud"},
		{url: "https://contoso.blob.core.usgovcloudapi.net", account: "contoso", name: "AzureUSGovernmentCloud"},
		{url: "https://contoso.blob.core.chinacloudapi.cn", account: "contoso", name: "AzureChinaCloud"},

		{url: "http://contoso.blob.core.windows.net", reason: endpoint.ReasonScheme},
		{url: "https://contoso.blob.core.windows.net/container", reason: endpoint.ReasonPath},
		{url: "https://contoso.blob.core.windows.net?sv=2021&sig=x", reason: endpoint.ReasonPath},
		{url: "https://contoso.blob.core.windows.net:8443", reason: endpoint.ReasonPort},
		{url: "https://key@contoso.blob.core.windows.net", reason: endpoint.ReasonCredentials},
		{url: "https://contoso.blob.core.windows.net.evil.example", reason: endpoint.ReasonHost},
		{url: "https://contosoblob.core.windows.net", reason: endpoint.ReasonHost},
		{url: "https://contoso.queue.core.windows.net", reason: endpoint.ReasonHost},
		{url: "https://contoso.privatelink.blob.core.windows.net", reason: endpoint.ReasonHost},
		{url: "https://contoso.z.blob.storage.azure.net", reason: endpoint.ReasonHost},
		{url: "https://contoso.zx1.blob.storage.azure.net", reason: endpoint.ReasonHost},
		{url: "https://contoso.blob.storage.azure.net", reason: endpoint.ReasonHost},
		{url: "https://blob.core.windows.net", reason: endpoint.ReasonHost},
		{url: "https://ab.blob.core.windows.net", reason: endpoint.ReasonHost},
		{url: "https://con-toso.blob.core.windows.net", reason: endpoint.ReasonHost},
		{url: "https://" + strings.Repeat("a", 25) + ".blob.core.windows.net", reason: endpoint.ReasonHost},
		{url: "", reason: endpoint.ReasonEmpty},
	} {
		t.Run(tt.url, func(t *testing.T) {
			got, err := endpoint.ParseBlobEndpoint(tt.url)
			if tt.reason != "" {
				refused(t, err, tt.reason)
			} else if err != nil {
				t.Fatal(err)
			}
			if got.Account != tt.account || got.Cloud != tt.name {
				t.Errorf("got %+v", got)
			}
		})
	}
	gov := endpoint.AzureClouds()[1]
	_, err := gov.ParseBlobEndpoint("https://contoso.blob.core.windows.net")
	refused(t, err, endpoint.ReasonHost)
}

func TestParseAzureAuthority(t *testing.T) {
	for url, want := range map[string]string{
		"https://login.microsoftonline.com/":       "AzurePublicCloud",
		"https://login.microsoftonline.com":        "AzurePublicCloud",
		"https://login.windows.net":                "AzurePublicCloud",
		"https://login.microsoftonline.us/":        "AzureUSGovernmentCloud",
		"https://login.chinacloudapi.cn":           "AzureChinaCloud",
		"https://login.partner.microsoftonline.cn": "AzureChinaCloud",
	} {
		if got, err := endpoint.ParseAzureAuthority(url); err != nil || got.Name != want {
			t.Errorf("%s: got %s, %v", url, got.Name, err)
		}
	}
	for url, reason := range map[string]endpoint.Reason{
		"":                                        endpoint.ReasonEmpty,
		"http://login.microsoftonline.com":        endpoint.ReasonScheme,
		"login.microsoftonline.com":               endpoint.ReasonScheme,
		"https://login.microsoftonline.com:8443":  endpoint.ReasonHost,
		"https://login.microsoftonline.com/adfs":  endpoint.ReasonPath,
		"https://login.microsoftonline.com.evil":  endpoint.ReasonHost,
		"https://login.microsoftonline.de":        endpoint.ReasonHost,
		"https://u:p@login.microsoftonline.com":   endpoint.ReasonCredentials,
		"https://login.microsoftonline.com/?a=b":  endpoint.ReasonPath,
		"https://xlogin.microsoftonline.com":      endpoint.ReasonHost,
		"https://login.microsoftonline.com.":      endpoint.ReasonMalformed,
		"https://login.microsoftonline.com%00.us": endpoint.ReasonMalformed,
	} {
		_, err := endpoint.ParseAzureAuthority(url)
		refused(t, err, reason)
	}
}

// azureStack is a file in go-autorest's format, with additional fields.
const azureStack = `{
	"name": "AzureStackCloud",
	"managementPortalURL": "https://portal.local.azurestack.external/",
	"activeDirectoryEndpoint": "https://login.local.azurestack.external/",
	"resourceManagerEndpoint": "https://management.local.azurestack.external/",
	"tokenAudience": "https://management.azurestack.onmicrosoft.com/4de154de-f8a8-4017-af41-df619da68155",
	"containerRegistryDNSSuffix": "azurecr.local.azurestack.external",
	"storageEndpointSuffix": "local.azurestack.external",
	"keyVaultDNSSuffix": "vault.local.azurestack.external",
	"managedHSMDNSSuffix": "N/A",
	"cosmosDBDNSSuffix": "N/A",
	"resourceIdentifiers": {"graph": "https://graph.windows.net/", "keyVault": "N/A", "storage": "https://storage.azure.com/"}
}`

func TestParseAzureEnvironment(t *testing.T) {
	got, err := endpoint.ParseAzureEnvironment([]byte(azureStack), "")
	must.Succeed(t, err)
	want := endpoint.AzureCloud{
		Name:                    "AzureStackCloud",
		Authority:               "https://login.local.azurestack.external",
		ProofAudience:           "api://AzureADTokenExchange",
		ResourceManager:         "https://management.local.azurestack.external",
		ResourceManagerAudience: "https://management.azurestack.onmicrosoft.com/4de154de-f8a8-4017-af41-df619da68155",
		RegistrySuffix:          "azurecr.local.azurestack.external", RegistryAudience: "https://containerregistry.azure.net", RegistriesMayLackAudience: true,
		StorageSuffix: "local.azurestack.external", StorageAudience: "https://storage.azure.com",
		KeyVaultSuffix: "vault.local.azurestack.external", KeyVaultAudience: "https://vault.local.azurestack.external",
		EventHubsAudience: "https://eventhubs.azure.net",
	}
	if got != want {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
	least, err := endpoint.ParseAzureEnvironment([]byte(`{"activeDirectoryEndpoint":"https://login.microsoftonline.us","resourceManagerEndpoint":"https://arm.example.gov:8443/"}`), "")
	if err != nil || least.ProofAudience != "api://AzureADTokenExchangeUSGov" || least.ResourceManagerAudience != "https://arm.example.gov:8443" || least.RegistrySuffix != "" {
		t.Errorf("got %+v, %v", least, err)
	}
	const required = `"activeDirectoryEndpoint":"https://login.example.gov","resourceManagerEndpoint":"https://arm.example.gov"`
	hsm, err := endpoint.ParseAzureEnvironment([]byte(`{`+required+`,"managedHSMDNSSuffix":"managedhsm.example.gov"}`), "")
	if err != nil || hsm.ManagedHSMSuffix != "managedhsm.example.gov" || hsm.ManagedHSMAudience != "https://managedhsm.example.gov" {
		t.Errorf("got %+v, %v", hsm, err)
	}
	hsm, err = endpoint.ParseAzureEnvironment([]byte(`{`+required+`,"managedHSMDNSSuffix":"hsm.example.gov","resourceIdentifiers":{"managedHSM":"https://managedhsm.example.gov/"}}`), "")
	if err != nil || hsm.ManagedHSMSuffix != "hsm.example.gov" || hsm.ManagedHSMAudience != "https://managedhsm.example.gov" {
		t.Errorf("got %+v, %v", hsm, err)
	}
	own, err := endpoint.ParseAzureEnvironment([]byte(`{"activeDirectoryEndpoint":"https://login.example.gov","resourceManagerEndpoint":"https://arm.example.gov","federatedCredentialAudience":"api://AzureADTokenExchangeUSNat"}`), "")
	if err != nil || own.ProofAudience != "api://AzureADTokenExchangeUSNat" {
		t.Errorf("got %+v, %v", own, err)
	}
}

// TestAzureEnvironmentTakesTheAuthorityOfItsOwnFirst checks that AZURE_AUTHORITY_HOST is used only
// if the file has no authority.
func TestAzureEnvironmentTakesTheAuthorityOfItsOwnFirst(t *testing.T) {
	const manager = `"resourceManagerEndpoint":"https://arm.example.gov"`
	for _, tt := range []struct{ file, host, want, fault string }{
		{`{` + manager + `}`, "https://login.microsoftonline.us/", "https://login.microsoftonline.us", ""},
		{`{"activeDirectoryEndpoint":"N/A",` + manager + `}`, "https://login.example.gov", "https://login.example.gov", ""},
		{`{"activeDirectoryEndpoint":"https://login.example.gov",` + manager + `}`, "https://login.microsoftonline.us/", "https://login.example.gov", ""},
		{`{"activeDirectoryEndpoint":"http://login.example.gov",` + manager + `}`, "https://login.microsoftonline.us/", "", "activeDirectoryEndpoint"},
		{`{` + manager + `}`, "http://login.example.gov", "", "AZURE_AUTHORITY_HOST"},
		{`{` + manager + `}`, "", "", "activeDirectoryEndpoint"},
	} {
		got, err := endpoint.ParseAzureEnvironment([]byte(tt.file), tt.host)
		if got.Authority != tt.want || (err == nil) != (tt.fault == "") || err != nil && !strings.Contains(err.Error(), tt.fault) {
			t.Errorf("%s with %q: %q, %v", tt.file, tt.host, got.Authority, err)
		}
	}
}

func TestParseAzureEnvironmentRefuses(t *testing.T) {
	const required = `"activeDirectoryEndpoint":"https://login.example.gov","resourceManagerEndpoint":"https://arm.example.gov"`
	for _, tt := range []struct {
		file   string
		reason endpoint.Reason
		field  string
	}{
		{``, endpoint.ReasonMalformed, ""},
		{`[]`, endpoint.ReasonMalformed, ""},
		{`{"name": 1}`, endpoint.ReasonMalformed, ""},
		{`{}`, endpoint.ReasonEmpty, "activeDirectoryEndpoint"},
		{`{"activeDirectoryEndpoint":"https://login.example.gov"}`, endpoint.ReasonEmpty, "resourceManagerEndpoint"},
		{`{"activeDirectoryEndpoint":"http://login.example.gov","resourceManagerEndpoint":"https://arm.example.gov"}`, endpoint.ReasonScheme, "activeDirectoryEndpoint"},
		{`{"activeDirectoryEndpoint":"https://login.example.gov/adfs","resourceManagerEndpoint":"https://arm.example.gov"}`, endpoint.ReasonPath, "activeDirectoryEndpoint"},
		{`{"activeDirectoryEndpoint":"https://login.example.gov","resourceManagerEndpoint":"https://u:p@arm.example.gov"}`, endpoint.ReasonCredentials, "resourceManagerEndpoint"},
		{`{` + required + `,"containerRegistryDNSSuffix":"com"}`, endpoint.ReasonMalformed, "containerRegistryDNSSuffix"},
		{`{` + required + `,"containerRegistryDNSSuffix":".azurecr.example"}`, endpoint.ReasonMalformed, "containerRegistryDNSSuffix"},
		{`{` + required + `,"containerRegistryDNSSuffix":"azurecr.example:443"}`, endpoint.ReasonMalformed, "containerRegistryDNSSuffix"},
		{`{` + required + `,"containerRegistryDNSSuffix":"10.0.0.1"}`, endpoint.ReasonMalformed, "containerRegistryDNSSuffix"},
		{`{` + required + `,"containerRegistryDNSSuffix":"[fd00::1]"}`, endpoint.ReasonMalformed, "containerRegistryDNSSuffix"},
		{`{` + required + `,"storageEndpointSuffix":"*.example"}`, endpoint.ReasonMalformed, "storageEndpointSuffix"},
		{`{` + required + `,"managedHSMDNSSuffix":"net"}`, endpoint.ReasonMalformed, "managedHSMDNSSuffix"},
		{`{` + required + `,"resourceIdentifiers":{"managedHSM":"managedhsm"}}`, endpoint.ReasonScheme, "resourceIdentifiers.managedHSM"},
		{`{` + required + `,"tokenAudience":"http://arm.example.gov"}`, endpoint.ReasonScheme, "tokenAudience"},
		{`{` + required + `,"tokenAudience":"https://arm.example.gov?x=y"}`, endpoint.ReasonPath, "tokenAudience"},
		{`{` + required + `,"federatedCredentialAudience":"kubernetes"}`, endpoint.ReasonScheme, "federatedCredentialAudience"},
		{`{` + required + `,"name":"a\nb"}`, endpoint.ReasonName, "name"},
	} {
		t.Run(tt.file, func(t *testing.T) {
			got, err := endpoint.ParseAzureEnvironment([]byte(tt.file), "")
			refused(t, err, tt.reason)
			if !got.IsZero() || !strings.Contains(err.Error(), tt.field) {
				t.Errorf("got %+v, %v", got, err)
			}
		})
	}
}

// TestAzureCloudsAreComplete checks that the fields which the provider needs are set, and that each
// cloud has its own name, endpoints, suffixes and audience of proofs.
func TestAzureCloudsAreComplete(t *testing.T) {
	seen := map[string]bool{}
	for _, c := range endpoint.AzureClouds() {
		for _, own := range []string{c.Name, c.Authority, c.ProofAudience, c.ResourceManager, c.RegistrySuffix, c.StorageSuffix, c.KeyVaultSuffix, c.ManagedHSMSuffix} {
			if own == "" || seen[own] {
				t.Errorf("%s: %q is empty or of two clouds", c.Name, own)
			}
			seen[own] = true
		}
		for _, resource := range []string{c.ResourceManagerAudience, c.RegistryAudience, c.StorageAudience, c.KeyVaultAudience, c.ManagedHSMAudience, c.EventHubsAudience} {
			if !strings.HasPrefix(resource, "https://") || strings.HasSuffix(resource, "/") {
				t.Errorf("%s: resource %q", c.Name, resource)
			}
		}
		if c.RegistriesMayLackAudience {
			t.Errorf("%s: its registries have the one audience of all clouds", c.Name)
		}
	}
}

// FuzzParseACR checks that only login servers of the clouds in AzureClouds are accepted, and that
// parsing an accepted text again gives the same result.
func FuzzParseACR(f *testing.F) {
	for _, seed := range []string{
		"contoso.azurecr.io/app", "oci://contoso.azurecr.us/a/b", "contoso.eastus.geo.azurecr.cn", "contoso.eastus.data.azurecr.io", "contoso-h4sh.azurecr.io",
		"contoso.azurecr.io.evil.example", "contoso.azurecr.io@evil.example", "contoso.azurecr.io:443", "CONTOSO.azurecr.io/APP", "\u212aontoso.azurecr.io",
		"a.azurecr.io", "azurecr.io", "contoso.azurecr.io/a..b", "contoso.azurecr.io/a:b", "[::1]", "",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, image string) {
		r, err := endpoint.ParseACR(image)
		if err != nil {
			if (r != endpoint.ACR{}) {
				t.Errorf("%q is refused, and is %+v", image, r)
			}
			return
		}
		// Check the host in another way than ParseACR does: compare the labels from the right.
		labels := strings.Split(r.Host, ".")
		slices.Reverse(labels)
		owner := map[string]string{"io": "AzurePublicCloud", "us": "AzureUSGovernmentCloud", "cn": "AzureChinaCloud"}[labels[0]]
		login := len(labels) == 3 || len(labels) == 5 && labels[2] == "geo" && labels[3] == r.Region
		if owner == "" || owner != r.Cloud || labels[1] != "azurecr" || !login || labels[len(labels)-1] != r.Name {
			t.Errorf("%q is accepted as %+v", image, r)
		}
		if name, _, _ := strings.Cut(r.Name, "-"); len(name) < 5 || len(name) > 50 {
			t.Errorf("%q has the name %q", image, r.Name)
		}
		if strings.ContainsAny(r.String(), ":@,?#%* ") || strings.ToLower(r.String()) != r.String() {
			t.Errorf("%q is accepted as %q", image, r)
		}
		if again, err := endpoint.ParseACR(r.String()); err != nil || again != r {
			t.Errorf("%q means %+v, which means %+v, %v", image, r, again, err)
		}
	})
}

// FuzzParseBlobEndpoint checks that only blob endpoints of the clouds in AzureClouds are accepted.
func FuzzParseBlobEndpoint(f *testing.F) {
	for _, seed := range []string{
		"https://contoso.blob.core.windows.net", "https://contoso-secondary.blob.core.usgovcloudapi.net/", "https://contoso.z01.blob.storage.azure.net",
		"https://contoso.blob.core.windows.net.evil.example", "https://evil.example/.blob.core.windows.net", "https://a@contoso.blob.core.chinacloudapi.cn",
	} {
		f.Add(seed)
	}
	suffixes := []string{".blob.core.windows.net", ".blob.core.usgovcloudapi.net", ".blob.core.chinacloudapi.cn", ".blob.storage.azure.net"}
	f.Fuzz(func(t *testing.T, raw string) {
		b, err := endpoint.ParseBlobEndpoint(raw)
		if err != nil {
			return
		}
		if !slices.ContainsFunc(suffixes, func(s string) bool { return strings.HasSuffix(b.Host, s) }) || !strings.HasPrefix(b.Host, b.Account) || len(b.Account) < 3 {
			t.Errorf("%q is accepted as %+v", raw, b)
		}
		if again, err := endpoint.ParseBlobEndpoint(b.URL()); err != nil || again != b {
			t.Errorf("%q means %+v, which means %+v, %v", raw, b, again, err)
		}
	})
}
