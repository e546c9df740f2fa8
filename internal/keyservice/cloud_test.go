package keyservice_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/security/keyvault/azkeys"
	"github.com/aws/aws-sdk-go-v2/service/kms"
	"github.com/getsops/sops/v3/shamir"
	cloudkms "google.golang.org/api/cloudkms/v1"

	"github.com/lanyard-dev/lanyard/auth"
	cloudaws "github.com/lanyard-dev/lanyard/cloudtest/aws"
	cloudazure "github.com/lanyard-dev/lanyard/cloudtest/azure"
	"github.com/lanyard-dev/lanyard/cloudtest/fault"
	cloudgcp "github.com/lanyard-dev/lanyard/cloudtest/gcp"
	"github.com/lanyard-dev/lanyard/internal/keyservice"
	"github.com/lanyard-dev/lanyard/internal/must"
	"github.com/lanyard-dev/lanyard/internal/sopsfile/masterkey"
)

// TestMain sets variables that would change whose credentials the clouds' clients use, and where
// they send them. No test may depend on them.
func TestMain(m *testing.M) {
	for _, name := range []string{
		"AWS_PROFILE", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_REGION", "AZURE_TENANT_ID", "AZURE_CLIENT_ID",
		"AZURE_CLIENT_SECRET", "AZURE_AUTHORITY_HOST", "GOOGLE_APPLICATION_CREDENTIALS", "GOOGLE_CLOUD_UNIVERSE_DOMAIN", "GOOGLE_CLOUD_QUOTA_PROJECT",
	} {
		_ = os.Setenv(name, "evil.example")
	}
	for _, name := range []string{"AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_KMS", "HTTPS_PROXY"} {
		_ = os.Setenv(name, "http://evil.example")
	}
	os.Exit(m.Run())
}

// refusal returns an error as an [*keyservice.Error] that is not temporary, or ends the test.
func refusal(t *testing.T, name string, keys map[string][]byte, err error, texts ...string) {
	t.Helper()
	refused, ok := errors.AsType[*keyservice.Error](err)
	if !ok || refused.Temporary() || len(keys) > 0 || !says(err, texts...) {
		t.Errorf("%s: %q, %v, want %q", name, keys, err, texts)
	}
}

// TestClouds decrypts as two tenants. Each tenant can use its own key, and no other.
func TestClouds(t *testing.T) {
	t.Parallel()
	for _, p := range places() {
		t.Run(p.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			key := p.seal(w, tenantA, dataKey())
			for range 2 {
				got, calls, err := w.decrypt(t.Context(), tenantA, only(key))
				if granted, refused := calls.at(p.service); err != nil || !bytes.Equal(got["a.yaml"], dataKey()) || granted != 1 || refused != 0 {
					t.Fatalf("%q, %v, %d decryptions, %d refusals", got, err, granted, refused)
				}
				if last := calls[len(calls)-1]; !strings.HasPrefix(last.Principal, p.principal) {
					t.Errorf("%s decrypts, want %s", last.Principal, p.principal)
				}
			}
			got, calls, err := w.decrypt(t.Context(), tenantB, only(key))
			refusal(t, "tenant B", got, err, "a.yaml: ", key.String()+", asked by "+subjectOf(tenantB)+": ", map[string]string{
				"aws":   "AWS KMS answered AccessDeniedException: User: arn:aws:sts::" + account + ":assumed-role/tenant-b/",
				"azure": "Azure Key Vault answered Forbidden: Caller is not authorized to perform action on resource. If role assignments",
				"gcp":   "Google Cloud KMS answered with status 403: Permission 'cloudkms.cryptoKeyVersions.useToDecrypt' denied on resource",
			}[p.name])
			if granted, refused := calls.at(p.service); granted != 0 || refused != 1 {
				t.Errorf("tenant B: %d decryptions, %d refusals", granted, refused)
			}
			if got, _, err := w.decrypt(t.Context(), tenantB, only(p.seal(w, tenantB, dataKey()))); err != nil || len(got) != 1 {
				t.Errorf("tenant B with its own key: %v", err)
			}
			w.accounts.posing = map[string]string{tenantB: tenantA}
			got, calls, err = w.decrypt(t.Context(), tenantB, only(key))
			refusal(t, "tenant B in tenant A's role", got, err, "asked by "+subjectOf(tenantB))
			if granted, refused := calls.at(p.service); granted+refused != 0 || auth.CodeOf(keyErrors(err)[0].Err) != auth.CodeTrustRefused {
				t.Errorf("tenant B in tenant A's role: %v, %d decryptions", err, granted+refused)
			}
		})
	}
}

// keyErrors returns the errors of all keys.
func keyErrors(err error) []keyservice.KeyError {
	if refused, ok := errors.AsType[*keyservice.Error](err); ok && len(refused.Keys) > 0 {
		return refused.Keys
	}
	return []keyservice.KeyError{{}}
}

// TestNobodyIsAsked has keys that are refused before anybody gets a token or a request.
func TestNobodyIsAsked(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	const id = ":" + account + ":key/0af1c2d3-1111-2222-3333-444455556666"
	const arn = "arn:aws:kms:eu-west-1" + id
	arnOf := func(arn string) masterkey.Key { return masterkey.Key{AWS: &masterkey.AWS{ARN: arn}} }
	vault := func(url string) masterkey.Key {
		return masterkey.Key{Azure: &masterkey.Azure{VaultURL: url, Name: tenantA}}
	}
	google := func(name string) masterkey.Key { return masterkey.Key{GCP: &masterkey.GCP{ResourceID: name}} }
	for name, c := range map[string]struct {
		key  masterkey.Key
		says string
	}{
		"a role":                         {masterkey.Key{AWS: &masterkey.AWS{ARN: arn, Role: "arn:aws:iam::" + account + ":role/admin"}}, "the file names the role"},
		"a profile":                      {masterkey.Key{AWS: &masterkey.AWS{ARN: arn, Profile: "admin"}}, "the file names the profile"},
		"a region that is a host":        {arnOf("arn:aws:kms:eu-west-1.evil.example/" + id), "region"},
		"a region with a fragment":       {arnOf("arn:aws:kms:evil.example#" + id), "region"},
		"a region of another partition":  {arnOf("arn:aws:kms:cn-north-1" + id), "belongs to the partition aws-cn"},
		"a partition of another region":  {arnOf("arn:aws-cn:kms:eu-west-1" + id), "belongs to the partition aws,"},
		"a whole other partition":        {arnOf("arn:aws-cn:kms:cn-north-1" + id), "partition"},
		"another service":                {arnOf("arn:aws:iam:eu-west-1:" + account + ":role/x"), "not kms"},
		"a path in a key's ID":           {arnOf(arn + "/../x"), "UUID"},
		"a vault that looks alike":       {vault("https://a.vault.azure.net.evil.example"), "evil.example"},
		"a vault without TLS":            {vault("http://contoso-keys.vault.azure.net"), "https"},
		"a vault at another port":        {vault(vaultURL + ":8443"), "port"},
		"a vault with a path":            {vault(vaultURL + "/x"), "path"},
		"a vault with a password":        {vault("https://a:b@contoso-keys.vault.azure.net"), "user"},
		"a vault of another Azure":       {vault("https://contoso-keys.vault.azure.cn"), "AzureChinaCloud"},
		"a path in a key's name":         {masterkey.Key{Azure: &masterkey.Azure{VaultURL: vaultURL, Name: "../secrets/x"}}, "name"},
		"a path in a key's version":      {masterkey.Key{Azure: &masterkey.Azure{VaultURL: vaultURL, Name: tenantA, Version: "../../secrets/x"}}, "version"},
		"a version of a key":             {google(keyRing + "/cryptoKeys/tenant-a/cryptoKeyVersions/1"), "version"},
		"a path that leaves the ring":    {google(keyRing + "/cryptoKeys/../x"), "not the name of a key"},
		"a key that is two dots":         {google(keyRing + "/cryptoKeys/.."), `the key ".."`},
		"a project that is two dots":     {google(strings.Replace(keyRing, project, "..", 1) + "/cryptoKeys/tenant-a"), "project"},
		"another method":                 {google(keyRing + "/cryptoKeys/tenant-a:encrypt"), "letters, digits"},
		"a query":                        {google(keyRing + "/cryptoKeys/tenant-a?alt=media"), "letters, digits"},
		"Vault":                          {masterkey.Key{Vault: &masterkey.Vault{Address: "https://evil.example"}}, "not supported"},
		"Huawei Cloud":                   {masterkey.Key{HuaweiKMS: &masterkey.HuaweiKMS{ID: "x"}}, "not supported"},
		"no text of AWS in base64":       {masterkey.Key{AWS: &masterkey.AWS{ARN: arn}, Encrypted: "%"}, "not base64"},
		"no text of Azure in base64":     {masterkey.Key{Azure: &masterkey.Azure{VaultURL: vaultURL, Name: tenantA}, Encrypted: "%"}, "not base64"},
		"no text of Google in base64":    {masterkey.Key{GCP: &masterkey.GCP{ResourceID: keyRing + "/cryptoKeys/tenant-a"}, Encrypted: "%"}, "not base64"},
		"a key of two types at one time": {masterkey.Key{AWS: &masterkey.AWS{ARN: arn}, GCP: &masterkey.GCP{ResourceID: "x"}}, "2 types"},
	} {
		if c.key.Encrypted == "" {
			c.key.Encrypted = "AAAA"
		}
		got, calls, err := w.decrypt(t.Context(), tenantA, only(c.key))
		refusal(t, name, got, err, "a.yaml: ", c.says)
		if len(calls) > 0 {
			t.Errorf("%s: %+v", name, calls)
		}
	}
}

// verdict is what becomes of a key: decrypted if no text is given, refused with a text otherwise.
type verdict struct {
	name string
	key  masterkey.Key
	says string
}

// judge decrypts each key alone. The service must get one request of tenant A for each key.
func (w *world) judge(service string, verdicts ...verdict) {
	w.t.Helper()
	for _, v := range verdicts {
		got, calls, err := w.decrypt(w.t.Context(), tenantA, only(v.key))
		granted, refused := calls.at(service)
		switch {
		case granted+refused != 1:
			w.t.Errorf("%s: %d requests", v.name, granted+refused)
		case v.says != "":
			refusal(w.t, v.name, got, err, v.says)
		case err != nil || !bytes.Equal(got["a.yaml"], dataKey()):
			w.t.Errorf("%s: %q, %v", v.name, got, err)
		}
	}
}

func TestAWS(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	arn, disabled, deleted := w.awsKey(tenantA), w.awsKey(tenantA), w.awsKey(tenantA)
	context := map[string]string{"app": "shop", "stage": "live"}
	sealed := w.sealAWS(arn, context, dataKey())
	of := func(change masterkey.AWS) masterkey.Key {
		return masterkey.Key{AWS: &change, Encrypted: sealed.Encrypted}
	}
	offKey, goneKey := w.sealAWS(disabled, nil, dataKey()), w.sealAWS(deleted, nil, dataKey())
	_, err := w.kms().DisableKey(t.Context(), &kms.DisableKeyInput{KeyId: &disabled})
	must.Succeed(t, err)
	_, err = w.kms().ScheduleKeyDeletion(t.Context(), &kms.ScheduleKeyDeletionInput{KeyId: &deleted})
	must.Succeed(t, err)
	w.judge(cloudaws.ServiceKMS,
		verdict{"the encryption context", sealed, ""},
		verdict{"another context", of(masterkey.AWS{ARN: arn, Context: map[string]string{"app": "shop", "stage": "test"}}), "InvalidCiphertextException"},
		verdict{"no context", of(masterkey.AWS{ARN: arn}), "InvalidCiphertextException"},
		verdict{"another key's name", of(masterkey.AWS{ARN: w.awsKey(tenantA), Context: context}), "IncorrectKeyException"},
		verdict{"an alias", of(masterkey.AWS{ARN: "arn:aws:kms:" + region + ":" + account + ":alias/a", Context: context}), "NotFoundException"},
		verdict{"another region", of(masterkey.AWS{ARN: strings.Replace(arn, region, "us-east-1", 1), Context: context}), "IncorrectKeyException"},
		verdict{"a disabled key", offKey, "DisabledException"},
		verdict{"a key that is pending deletion", goneKey, "KMSInvalidStateException"},
	)
}

func TestAzure(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	sealed := w.sealAzure(tenantA, dataKey())
	of := func(encrypted string, change masterkey.Azure) masterkey.Key {
		return masterkey.Key{Azure: &change, Encrypted: encrypted}
	}
	version := sealed.Azure.Version
	w.judge(cloudazure.ServiceKeyVault,
		verdict{"the version", sealed, ""},
		verdict{"an old file without a version", of(sealed.Encrypted, masterkey.Azure{VaultURL: vaultURL + "/", Name: tenantA}), ""},
		verdict{"another version", of(sealed.Encrypted, masterkey.Azure{VaultURL: vaultURL, Name: tenantA, Version: strings.Repeat("0", 32)}), "KeyNotFound"},
		verdict{"another ciphertext", of("AAAA", masterkey.Azure{VaultURL: vaultURL, Name: tenantA, Version: version}), "BadParameter"},
	)
	enabled := false
	_, err := w.vault().UpdateKey(t.Context(), tenantA, version, azkeys.UpdateKeyParameters{KeyAttributes: &azkeys.KeyAttributes{Enabled: &enabled}}, nil)
	must.Succeed(t, err)
	w.judge(cloudazure.ServiceKeyVault, verdict{"a disabled key", sealed, "Operation decrypt is not allowed on a disabled key"})

	// The vault of another tenant of Microsoft Entra asks for a token of that tenant.
	got, calls, err := w.decrypt(t.Context(), tenantA, only(of(sealed.Encrypted, masterkey.Azure{VaultURL: "https://fabrikam-keys.vault.azure.net", Name: tenantA})))
	refusal(t, "a vault of strangers", got, err, stranger)
	if len(calls) != 1 || calls[0].Principal != "" {
		t.Errorf("a vault of strangers: %+v", calls)
	}
}

func TestGCP(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	sealed := w.sealGCP(tenantA, dataKey())
	version := sealed.GCP.ResourceID + "/cryptoKeyVersions/1"
	versions := w.cloudKMS().CryptoKeyVersions
	set := func(state string) {
		t.Helper()
		_, err := versions.Patch(version, &cloudkms.CryptoKeyVersion{State: state}).UpdateMask("state").Do()
		must.Succeed(t, err)
	}
	w.judge(cloudgcp.ServiceKMS,
		verdict{"the key", sealed, ""},
		verdict{"another key's ciphertext", masterkey.Key{GCP: sealed.GCP, Encrypted: w.sealGCP(tenantB, dataKey()).Encrypted}, "verify that 'name' refers to the correct CryptoKey"},
		verdict{"no such key", masterkey.Key{GCP: &masterkey.GCP{ResourceID: sealed.GCP.ResourceID + "x"}, Encrypted: sealed.Encrypted}, "status 403"},
	)
	set("DISABLED")
	w.judge(cloudgcp.ServiceKMS, verdict{"a disabled version", sealed, "not enabled, current state is: DISABLED"})
	set("ENABLED")
	_, err := versions.Destroy(version, &cloudkms.DestroyCryptoKeyVersionRequest{}).Do()
	must.Succeed(t, err)
	w.judge(cloudgcp.ServiceKMS, verdict{"a destroyed version", sealed, "DESTROY_SCHEDULED"})
}

// TestGroups checks which keys are tried, in which order, and what several groups decrypt.
func TestGroups(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	id := identity(t)
	keys, err := keyservice.ParseKeys(map[string][]byte{"a.agekey": []byte(id.String())})
	must.Succeed(t, err)
	parts, err := shamir.Split(dataKey(), 3, 2)
	must.Succeed(t, err)
	aws := w.awsKey(tenantA)
	type group = masterkey.Group
	denied := w.sealAWS(w.awsKey(tenantB), nil, dataKey())
	deniedPart := w.sealGCP(tenantB, parts[2])
	for name, c := range map[string]struct {
		groups []group
		// journal has the verdicts of all decryptions: a key service, and a minus for a refusal.
		journal string
		says    string
	}{
		"two of three groups":       {groups: []group{{w.sealAWS(aws, nil, parts[0])}, {w.sealAzure(tenantA, parts[1])}, {w.sealGCP(tenantA, parts[2])}}, journal: "kms key-vault"},
		"a group without success":   {groups: []group{{w.sealAWS(w.awsKey(tenantB), nil, parts[0])}, {w.sealAzure(tenantA, parts[1])}, {w.sealGCP(tenantA, parts[2])}}, journal: "-kms key-vault cloudkms"},
		"the second key of a group": {groups: []group{{denied, w.sealGCP(tenantA, dataKey()), w.sealAzure(tenantA, dataKey())}}, journal: "-kms cloudkms"},
		"age before a cloud":        {groups: []group{{w.sealGCP(tenantA, dataKey()), forAge(t, id.Recipient(), dataKey())}}},
		"another's age key":         {groups: []group{{w.sealGCP(tenantA, dataKey()), forAge(t, identity(t).Recipient(), dataKey())}}, journal: "cloudkms"},
		"age and a cloud":           {groups: []group{{w.sealGCP(tenantA, parts[0])}, {forAge(t, id.Recipient(), parts[1])}}, journal: "cloudkms"},
		"too few groups": {
			groups:  []group{{w.sealAWS(aws, nil, parts[0])}, {deniedPart, denied}, {forAge(t, identity(t).Recipient(), parts[1])}},
			journal: "kms -cloudkms -kms", says: "age recipient",
		},
		"one part twice":         {groups: []group{{w.sealAWS(aws, nil, parts[0])}, {w.sealGCP(tenantA, parts[0])}}, journal: "kms cloudkms", says: "no parts of one data key"},
		"a data key as a part":   {groups: []group{{w.sealAWS(aws, nil, dataKey())}, {w.sealGCP(tenantA, parts[0])}}, journal: "kms cloudkms", says: "no data key"},
		"a part as the data key": {groups: []group{{w.sealAWS(aws, nil, parts[0])}}, journal: "kms", says: "no data key"},
	} {
		after := w.cloud.Journal().Last()
		caller := w.caller(tenantA)
		caller.Keys = keys
		file := masterkey.File{Name: "a.yaml", Groups: c.groups}
		if len(c.groups) > 1 {
			file.Threshold = 2
		}
		got, err := w.service.DataKeys(t.Context(), []masterkey.File{file}, caller)
		var journal []string
		for _, call := range w.since(after) {
			switch {
			case call.Operation != "Decrypt" || call.Principal == "":
			case call.Granted():
				journal = append(journal, call.Service)
			default:
				journal = append(journal, "-"+call.Service)
			}
		}
		if strings.Join(journal, " ") != c.journal {
			t.Errorf("%s: %q, want %q", name, journal, c.journal)
		}
		if c.says != "" {
			refusal(t, name, got, err, c.says)
		} else if err != nil || !bytes.Equal(got["a.yaml"], dataKey()) {
			t.Errorf("%s: %q, %v", name, got, err)
		}
		if name == "too few groups" && (len(keyErrors(err)) != 3 || !says(err, deniedPart.String(), denied.String())) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestOracleOfClouds tries to decrypt what is no data key. Nothing of it comes back.
func TestOracleOfClouds(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.useProxy()
	for _, p := range places() {
		longest := map[string]int{"aws": 4096, "azure": 190, "gcp": 64 << 10}[p.name]
		for _, size := range []int{1, 16, 31, 33, 64, longest} {
			plain := bytes.Repeat([]byte("swordfish"), size/9+1)[:size]
			got, calls, err := w.decrypt(t.Context(), tenantA, only(p.seal(w, tenantA, plain)))
			name := fmt.Sprintf("%s, %d bytes", p.name, size)
			if granted, _ := calls.at(p.service); granted != 1 {
				t.Errorf("%s: %d decryptions", name, granted)
			}
			refused, ok := errors.AsType[*keyservice.Error](err)
			if !ok || len(got) > 0 || (size < 1<<10 && refused.Temporary()) {
				t.Errorf("%s: %q, %v", name, got, err)
			}
			if size > 9 && (says(err, "swordfish") || says(err, base64.StdEncoding.EncodeToString([]byte("swordfish")))) {
				t.Errorf("%s: the error has the text: %v", name, err)
			}
		}
	}
}

// TestFaults makes key services fail. The error says that another attempt may succeed, and another
// attempt succeeds.
func TestFaults(t *testing.T) {
	t.Parallel()
	for _, p := range places() {
		for name, f := range map[string]fault.Fault{
			"throttled":        {Service: p.service, Kind: fault.Throttle},
			"throttled softly": {Service: p.service, Kind: fault.Throttle, RetryAfter: 5 * time.Second},
			"failing":          {Service: p.service, Kind: fault.InternalFailure},
			"down":             {Service: p.service, Kind: fault.Unavailable},
			"silent":           {Service: p.service, Kind: fault.Drop},
			"no tokens": {
				Service: map[string]string{"aws": cloudaws.ServiceSTS, "azure": cloudazure.ServiceEntra, "gcp": cloudgcp.ServiceSTS}[p.name], Kind: fault.Unavailable,
			},
		} {
			t.Run(p.name+"/"+name, func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					w := newWorld(t)
					key := p.seal(w, tenantA, dataKey())
					id, err := w.cloud.Faults().Add(f)
					must.Succeed(t, err)
					began := time.Now()
					got, _, err := w.decrypt(t.Context(), tenantA, only(key))
					if refused, ok := errors.AsType[*keyservice.Error](err); !ok || !refused.Temporary() || len(got) > 0 {
						t.Errorf("%q, %v", got, err)
					}
					if took := time.Since(began); took > time.Minute {
						t.Errorf("it took %s", took)
					}
					w.cloud.Faults().Remove(id)
					time.Sleep(2 * time.Minute) // failures of token exchanges are remembered
					if got, _, err := w.decrypt(t.Context(), tenantA, only(key)); err != nil || !bytes.Equal(got["a.yaml"], dataKey()) {
						t.Errorf("afterwards: %q, %v", got, err)
					}
				})
			})
		}
	}
}

// TestDeadline ends the context while a cloud is slow.
func TestDeadline(t *testing.T) {
	t.Parallel()
	over := errors.New("the time is over")
	for _, p := range places() {
		for what, service := range map[string]string{"keys": p.service, "tokens": map[string]string{"aws": cloudaws.ServiceSTS, "azure": cloudazure.ServiceEntra, "gcp": cloudgcp.ServiceSTS}[p.name]} {
			t.Run(p.name+"/"+what, func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					w := newWorld(t)
					key := p.seal(w, tenantA, dataKey())
					_, err := w.cloud.Faults().Add(fault.Fault{Service: service, Kind: fault.Latency, Delay: time.Hour})
					must.Succeed(t, err)
					ctx, cancel := context.WithTimeoutCause(t.Context(), 3*time.Second, over)
					defer cancel()
					defer time.Sleep(2 * time.Hour) // until the cloud has ended its calls
					began := time.Now()
					got, _, err := w.decrypt(ctx, tenantA, only(key))
					if took := time.Since(began); !errors.Is(err, over) || len(got) > 0 || took > 4*time.Second {
						t.Errorf("%q, %v, after %s", got, err, took)
					}
				})
			})
		}
	}
}

// TestManyFiles decrypts many files at once. The tenant gets one token at each cloud.
func TestManyFiles(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		var files []masterkey.File
		want := map[string][]byte{}
		for i := range 20 {
			p := places()[i%3]
			name := fmt.Sprintf("%d.yaml", i)
			want[name] = bytes.Repeat([]byte{byte(i)}, masterkey.DataKeySize)
			files = append(files, masterkey.File{Name: name, Groups: []masterkey.Group{{p.seal(w, tenantA, want[name])}}})
		}
		got, calls, err := w.decrypt(t.Context(), tenantA, files)
		if err != nil || len(got) != len(want) {
			t.Fatalf("%d keys, %v", len(got), err)
		}
		for name, key := range want {
			if !bytes.Equal(got[name], key) {
				t.Errorf("%s: %q", name, got[name])
			}
		}
		count := map[string]int{}
		for _, call := range calls {
			if call.Operation != "Decrypt" || call.Principal != "" {
				count[call.Service+" "+call.Operation]++
			}
		}
		for what, n := range map[string]int{
			"kms Decrypt": 7, "key-vault Decrypt": 7, "cloudkms Decrypt": 6,
			"sts AssumeRoleWithWebIdentity": 1, "entra Token": 1, "gcp-sts ExchangeToken": 1, "iamcredentials GenerateAccessToken": 1,
		} {
			if count[what] != n {
				t.Errorf("%d times %s, want %d", count[what], what, n)
			}
		}

		_, err = w.cloud.Faults().Add(fault.Fault{Operation: "Decrypt", Kind: fault.Latency, Delay: time.Second})
		must.Succeed(t, err)
		over := errors.New("the time is over")
		ctx, cancel := context.WithTimeoutCause(t.Context(), 2500*time.Millisecond, over)
		defer cancel()
		defer time.Sleep(time.Minute) // until the cloud has ended its calls
		got, calls, err = w.decrypt(ctx, tenantA, files)
		if granted, _ := calls.at(cloudaws.ServiceKMS); !errors.Is(err, over) || got != nil || granted == 0 || granted == 7 {
			t.Errorf("the context ended: %q, %v, after %d decryptions", got, err, granted)
		}
	})
}

// TestHostileServices answers as no key service would. Nothing is decrypted, nobody else is asked,
// and no token is for anything else.
func TestHostileServices(t *testing.T) {
	t.Parallel()
	key := base64.StdEncoding.EncodeToString(dataKey())
	for name, answer := range map[string]func(http.ResponseWriter, *http.Request){
		"a long answer": func(rw http.ResponseWriter, _ *http.Request) {
			fmt.Fprintf(rw, `{"Plaintext":%q,"value":%q,"plaintext":%q,"x":"%s"}`, key, strings.TrimRight(key, "="), key, strings.Repeat("x", 1<<20))
		},
		"a redirect": func(rw http.ResponseWriter, _ *http.Request) {
			rw.Header().Set("Location", "https://evil.example/")
			rw.WriteHeader(http.StatusTemporaryRedirect)
		},
		"a challenge for more": func(rw http.ResponseWriter, _ *http.Request) {
			rw.Header().Set("WWW-Authenticate", `Bearer authorization="https://login.microsoftonline.com/`+directory+`", resource="https://azure.net"`)
			rw.WriteHeader(http.StatusUnauthorized)
		},
		"an answer without an end": func(rw http.ResponseWriter, r *http.Request) {
			_, _ = rw.Write([]byte("{"))
			_ = http.NewResponseController(rw).Flush()
			<-r.Context().Done()
		},
	} {
		for _, p := range places() {
			t.Run(p.name+"/"+name, func(t *testing.T) {
				t.Parallel()
				w := newWorld(t)
				sealed := p.seal(w, tenantA, dataKey())
				others := w.impersonate(t, http.HandlerFunc(answer))
				ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
				if name == "an answer without an end" {
					ctx, cancel = context.WithTimeout(t.Context(), time.Second)
				}
				defer cancel()
				got, calls, err := w.decrypt(ctx, tenantA, only(sealed))
				if refused, ok := errors.AsType[*keyservice.Error](err); !ok || len(got) > 0 || says(err, key) || others() > 0 {
					t.Errorf("%q, %v, %d others asked", got, err, others())
				} else {
					t.Log(refused.Temporary(), err)
				}
				for _, call := range calls {
					if p.name == "azure" && call.Service == cloudazure.ServiceEntra {
						t.Errorf("a token was asked for: %+v", call)
					}
				}
			})
		}
	}
}
