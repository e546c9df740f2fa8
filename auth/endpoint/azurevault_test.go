package endpoint_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/lanyard-dev/lanyard/auth/endpoint"
	"github.com/lanyard-dev/lanyard/auth/internal/must"
)

const vaultVersion = "0123456789abcdef0123456789abcdef"

func TestParseVaultKey(t *testing.T) {
	const public, gov, china = "AzurePublicCloud", "AzureUSGovernmentCloud", "AzureChinaCloud"
	vault := func(host, cloud, audience string) endpoint.VaultKey {
		return endpoint.VaultKey{Host: host, Cloud: cloud, Audience: audience}
	}
	hsm := func(host, cloud, audience string) endpoint.VaultKey {
		return endpoint.VaultKey{Host: host, Cloud: cloud, Audience: audience, ManagedHSM: true}
	}
	contoso := vault("contoso.vault.azure.net", public, "https://vault.azure.net")
	long := strings.Repeat("a", 24)
	for _, tt := range []struct {
		url    string
		want   endpoint.VaultKey
		reason endpoint.Reason
	}{
		{url: "https://contoso.vault.azure.net", want: contoso},
		{url: "https://contoso.vault.azure.net/", want: contoso},
		{url: "https://contoso.vault.azure.net:443", want: contoso},
		{url: "https://Contoso.Vault.Azure.net:443/", want: contoso},
		{url: "https://abc.vault.azure.net", want: vault("abc.vault.azure.net", public, "https://vault.azure.net")},
		{url: "https://" + long + ".vault.azure.net", want: vault(long+".vault.azure.net", public, "https://vault.azure.net")},
		{url: "https://my-vault-1.vault.usgovcloudapi.net", want: vault("my-vault-1.vault.usgovcloudapi.net", gov, "https://vault.usgovcloudapi.net")},
		{url: "https://contoso.vault.azure.cn", want: vault("contoso.vault.azure.cn", china, "https://vault.azure.cn")},
		{url: "https://contoso.managedhsm.azure.net", want: hsm("contoso.managedhsm.azure.net", public, "https://managedhsm.azure.net")},
		{url: "https://my-hsm.managedhsm.usgovcloudapi.net", want: hsm("my-hsm.managedhsm.usgovcloudapi.net", gov, "https://managedhsm.usgovcloudapi.net")},
		{url: "https://contoso.managedhsm.azure.cn/", want: hsm("contoso.managedhsm.azure.cn", china, "https://managedhsm.azure.cn")},

		// Look-alikes, and other hosts of Azure.
		{url: "https://contoso.vault.azure.net.evil.example", reason: endpoint.ReasonHost},
		{url: "https://contosovault.azure.net", reason: endpoint.ReasonHost},
		{url: "https://contoso.xvault.azure.net", reason: endpoint.ReasonHost},
		{url: "https://contoso.vault-azure.net", reason: endpoint.ReasonHost},
		{url: "https://contoso.vault.azure.network", reason: endpoint.ReasonHost},
		{url: "https://contoso.vault.azure.com", reason: endpoint.ReasonHost},
		{url: "https://contoso.vault.managedhsm.azure.net", reason: endpoint.ReasonHost},
		{url: "https://contoso.managedhsm.vault.azure.net", reason: endpoint.ReasonHost},
		{url: "https://contoso.privatelink.vaultcore.azure.net", reason: endpoint.ReasonHost},
		{url: "https://contoso.evil.vault.azure.net", reason: endpoint.ReasonHost},
		{url: "https://contoso.blob.core.windows.net", reason: endpoint.ReasonHost},
		{url: "https://contoso.vault.microsoftazure.de", reason: endpoint.ReasonHost},
		{url: "https://vault.azure.net", reason: endpoint.ReasonHost},
		{url: "https://managedhsm.azure.net", reason: endpoint.ReasonHost},
		{url: "https://169.254.169.254", reason: endpoint.ReasonHost},
		{url: "https://[::1]", reason: endpoint.ReasonHost},
		{url: "https://evil.example", reason: endpoint.ReasonHost},

		// Names that no vault can have.
		{url: "https://ab.vault.azure.net", reason: endpoint.ReasonHost},
		{url: "https://" + long + "a.vault.azure.net", reason: endpoint.ReasonHost},
		{url: "https://1contoso.vault.azure.net", reason: endpoint.ReasonHost},
		{url: "https://con--toso.vault.azure.net", reason: endpoint.ReasonHost},
		{url: "https://xn--contoso-jua.vault.azure.net", reason: endpoint.ReasonHost},
		{url: "https://-contoso.vault.azure.net", reason: endpoint.ReasonMalformed},
		{url: "https://contoso-.vault.azure.net", reason: endpoint.ReasonMalformed},
		{url: "https://con_toso.vault.azure.net", reason: endpoint.ReasonMalformed},
		{url: "https://.vault.azure.net", reason: endpoint.ReasonMalformed},
		{url: "https://contoso..vault.azure.net", reason: endpoint.ReasonMalformed},

		// Texts that are not https://host.
		{url: "", reason: endpoint.ReasonEmpty},
		{url: "https://", reason: endpoint.ReasonEmpty},
		{url: "contoso.vault.azure.net", reason: endpoint.ReasonScheme},
		{url: "http://contoso.vault.azure.net", reason: endpoint.ReasonScheme},
		{url: "HTTPS://contoso.vault.azure.net", reason: endpoint.ReasonScheme},
		{url: "//contoso.vault.azure.net", reason: endpoint.ReasonScheme},
		{url: "https://contoso.vault.azure.net:8443", reason: endpoint.ReasonPort},
		{url: "https://contoso.vault.azure.net:", reason: endpoint.ReasonPort},
		{url: "https://contoso.vault.azure.net/keys/sops", reason: endpoint.ReasonPath},
		{url: "https://contoso.vault.azure.net//", reason: endpoint.ReasonPath},
		{url: "https://contoso.vault.azure.net/..", reason: endpoint.ReasonPath},
		{url: "https://evil.example/.vault.azure.net", reason: endpoint.ReasonPath},
		{url: "https://evil.example?.vault.azure.net", reason: endpoint.ReasonPath},
		{url: "https://evil.example#.vault.azure.net", reason: endpoint.ReasonPath},
		{url: "https://user:s3cr3t-Pa55@contoso.vault.azure.net", reason: endpoint.ReasonCredentials},
		{url: "https://contoso.vault.azure.net@evil.example", reason: endpoint.ReasonCredentials},
		{url: `https://evil.example\.vault.azure.net`, reason: endpoint.ReasonMalformed},
		{url: "https://evil.example%2f.vault.azure.net", reason: endpoint.ReasonMalformed},
		{url: "https://contoso%2evault.azure.net", reason: endpoint.ReasonMalformed},
		{url: "https://contoso.vault.azure.net.", reason: endpoint.ReasonMalformed},
		{url: "https://contoso.vault.azure.net\n", reason: endpoint.ReasonMalformed},
		{url: " https://contoso.vault.azure.net", reason: endpoint.ReasonMalformed},
		{url: "https://contos\u043e.vault.azure.net", reason: endpoint.ReasonMalformed}, // Cyrillic o
		{url: "https://\u212aontoso.vault.azure.net", reason: endpoint.ReasonMalformed}, // Kelvin sign
		{url: "https://contoso\u3002vault.azure.net", reason: endpoint.ReasonMalformed}, // ideographic full stop
		{url: "https://" + strings.Repeat("a", 2100) + ".vault.azure.net", reason: endpoint.ReasonMalformed},
	} {
		t.Run(tt.url, func(t *testing.T) {
			if tt.reason == "" {
				tt.want.Name, tt.want.Version = "sops", vaultVersion
			}
			got, err := endpoint.ParseVaultKey(tt.url, "sops", vaultVersion)
			parsed(t, got, tt.want, err, tt.reason)
			if tt.reason == "" && got.URL() != "https://"+got.Host+"/keys/sops/"+vaultVersion {
				t.Errorf("got URL %s", got.URL())
			}
		})
	}
}

func TestParseVaultKeyName(t *testing.T) {
	const vault = "https://contoso.vault.azure.net"
	long := strings.Repeat("k", 127)
	for _, tt := range []struct {
		name, version, path string
		reason              endpoint.Reason
	}{
		{name: "sops", version: vaultVersion, path: "sops/" + vaultVersion},
		{name: "sops", version: strings.ToUpper(vaultVersion), path: "sops/" + strings.ToUpper(vaultVersion)},
		{name: "sops", path: "sops"},
		{name: "0", path: "0"},
		{name: "-So-Ps--1-", path: "-So-Ps--1-"},
		{name: long, path: long},
		{name: "", reason: endpoint.ReasonName},
		{name: long + "k", reason: endpoint.ReasonName},
		{name: ".", reason: endpoint.ReasonName},
		{name: "..", reason: endpoint.ReasonName},
		{name: "so_ps", reason: endpoint.ReasonName},
		{name: "sops/" + vaultVersion, reason: endpoint.ReasonName},
		{name: "../secrets/sops", reason: endpoint.ReasonName},
		{name: `..\secrets`, reason: endpoint.ReasonName},
		{name: "sops%2f..", reason: endpoint.ReasonName},
		{name: "sops?api-version=1", reason: endpoint.ReasonName},
		{name: "sops#", reason: endpoint.ReasonName},
		{name: "sops\n", reason: endpoint.ReasonName},
		{name: "so\x00ps", reason: endpoint.ReasonName},
		{name: "s\u043eps", reason: endpoint.ReasonName},
		{name: "https://user:s3cr3t-Pa55@evil.example", reason: endpoint.ReasonName},
		{name: "sops", version: vaultVersion[1:], reason: endpoint.ReasonName},
		{name: "sops", version: vaultVersion + "0", reason: endpoint.ReasonName},
		{name: "sops", version: "g" + vaultVersion[1:], reason: endpoint.ReasonName},
		{name: "sops", version: "/" + vaultVersion[1:], reason: endpoint.ReasonName},
		{name: "sops", version: "../" + vaultVersion[3:], reason: endpoint.ReasonName},
		{name: "sops", version: vaultVersion[1:] + "\n", reason: endpoint.ReasonName},
		{name: "sops", version: "\uff10" + vaultVersion[3:], reason: endpoint.ReasonName}, // full-width 0
		{name: "sops", version: "latest", reason: endpoint.ReasonName},
		{name: "sops", version: "/", reason: endpoint.ReasonName},
	} {
		t.Run(tt.name+" "+tt.version, func(t *testing.T) {
			got, err := endpoint.ParseVaultKey(vault, tt.name, tt.version)
			if tt.reason != "" {
				parsed(t, got, endpoint.VaultKey{}, err, tt.reason)
			} else if err != nil || got.URL() != vault+"/keys/"+tt.path || got.Name != tt.name || got.Version != tt.version {
				t.Errorf("got %+v, %v, at %s", got, err, got.URL())
			}
		})
	}
}

func TestVaultOfAnotherCloud(t *testing.T) {
	clouds := endpoint.AzureClouds()
	for _, c := range clouds {
		for _, other := range clouds {
			for suffix, audience := range map[string]string{other.KeyVaultSuffix: other.KeyVaultAudience, other.ManagedHSMSuffix: other.ManagedHSMAudience} {
				got, err := c.ParseVaultKey("https://contoso."+suffix, "sops", "")
				if c == other {
					if err != nil || got.Cloud != c.Name || got.Audience != audience || audience != "https://"+suffix {
						t.Errorf("%s: got %+v, %v", c.Name, got, err)
					}
					continue
				}
				parsed(t, got, endpoint.VaultKey{}, err, endpoint.ReasonPartition)
			}
		}
		_, err := c.ParseVaultKey("https://contoso."+c.KeyVaultSuffix+".evil.example", "sops", "")
		refused(t, err, endpoint.ReasonHost)
	}
}

func TestCustomCloudOwnsItsVaultsAlone(t *testing.T) {
	own, err := endpoint.ParseAzureEnvironment([]byte(azureStack), "")
	must.Succeed(t, err)
	own.ManagedHSMSuffix, own.ManagedHSMAudience = "hsm.local.azurestack.external", "https://other.audience.example"
	for _, want := range []endpoint.VaultKey{
		{Host: "contoso." + own.KeyVaultSuffix, Cloud: own.Name, Audience: own.KeyVaultAudience, Name: "sops"},
		{Host: "contoso." + own.ManagedHSMSuffix, Cloud: own.Name, Audience: own.ManagedHSMAudience, ManagedHSM: true, Name: "sops"},
	} {
		got, err := own.ParseVaultKey("https://"+want.Host, "sops", "")
		parsed(t, got, want, err, "")
		_, err = endpoint.ParseVaultKey("https://"+want.Host, "sops", "")
		refused(t, err, endpoint.ReasonHost)
	}
	_, err = own.ParseVaultKey("https://contoso.vault.azure.net", "sops", "")
	refused(t, err, endpoint.ReasonPartition)
	// Without suffixes the cloud has no vaults. An empty suffix must not match any host.
	own.ManagedHSMSuffix = ""
	_, err = own.ParseVaultKey("https://contoso.hsm.local.azurestack.external", "sops", "")
	refused(t, err, endpoint.ReasonHost)
	own.KeyVaultSuffix = ""
	for _, host := range []string{"contoso.vault.local.azurestack.external", "contoso", "contoso.example"} {
		_, err = own.ParseVaultKey("https://"+host, "sops", "")
		refused(t, err, endpoint.ReasonHost)
		if err != nil && !strings.Contains(err.Error(), "keyVaultDNSSuffix") {
			t.Errorf("the error names no field of the file: %v", err)
		}
	}
}

// FuzzParseVaultKey checks that only vaults and managed HSMs of the clouds in AzureClouds are
// accepted, each with its own audience. Name and version must not change the form of the URL.
func FuzzParseVaultKey(f *testing.F) {
	for _, seed := range [][3]string{
		{"https://contoso.vault.azure.net", "sops", vaultVersion},
		{"https://my-hsm.managedhsm.usgovcloudapi.net/", "sops", ""},
		{"https://contoso.vault.azure.cn:443", "a", ""},
		{"https://contoso.vault.azure.net.evil.example", "sops", ""},
		{"https://evil.example/.vault.azure.net", "sops", ""},
		{"https://a@contoso.vault.azure.net", "..", "/"},
		{"", "", ""},
	} {
		f.Add(seed[0], seed[1], seed[2])
	}
	f.Fuzz(func(t *testing.T, vault, name, version string) {
		k, err := endpoint.ParseVaultKey(vault, name, version)
		if err != nil {
			if k != (endpoint.VaultKey{}) {
				t.Fatalf("%q, %q, %q: refused, yet a key %+v", vault, name, version, k)
			}
			return
		}
		// The cloud that owns the name's end must be the cloud whose audience the key has.
		owned := slices.ContainsFunc(endpoint.AzureClouds(), func(c endpoint.AzureCloud) bool {
			suffix, audience := c.KeyVaultSuffix, c.KeyVaultAudience
			if k.ManagedHSM {
				suffix, audience = c.ManagedHSMSuffix, c.ManagedHSMAudience
			}
			label, rest, _ := strings.Cut(k.Host, ".")
			return rest == suffix && k.Audience == audience && k.Cloud == c.Name && len(label) >= 3 && len(label) <= 24
		})
		if !owned || !isPlainHost(k.Host) {
			t.Fatalf("%q: accepted as %+v", vault, k)
		}
		authority := strings.TrimSuffix(strings.TrimSuffix(strings.TrimPrefix(vault, "https://"), "/"), ":443")
		if !strings.EqualFold(authority, k.Host) {
			t.Fatalf("%q: accepted as %q, but reads as %q", vault, k.Host, authority)
		}
		parts := strings.Split(k.URL(), "/")
		if strings.ContainsAny(k.URL(), "?#%@\\ \n") || len(parts) != 5 && len(parts) != 6 || parts[2] != k.Host || parts[4] != name {
			t.Fatalf("%q, %q, %q: at %q", vault, name, version, k.URL())
		}
		if again, err := endpoint.ParseVaultKey("https://"+parts[2], parts[4], strings.Join(parts[5:], "/")); err != nil || again != k {
			t.Fatalf("%q: parses to %+v, its URL to %+v, %v", vault, k, again, err)
		}
	})
}
