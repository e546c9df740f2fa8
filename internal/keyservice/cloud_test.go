package keyservice_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
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

	"github.com/lanyard-dev/lanyard/cloudtest/fault"
	"github.com/lanyard-dev/lanyard/internal/encryptedfile/masterkey"
	"github.com/lanyard-dev/lanyard/internal/keyservice"
	"github.com/lanyard-dev/lanyard/internal/must"
)

// TestMain sets variables that decide whose credentials many clients use, and where they send them.
// No test depends on them.
func TestMain(m *testing.M) {
	for name := range strings.FieldsSeq(`AWS_PROFILE AWS_ACCESS_KEY_ID AWS_SECRET_ACCESS_KEY AWS_SESSION_TOKEN AWS_REGION AZURE_TENANT_ID
		AZURE_CLIENT_ID AZURE_CLIENT_SECRET AZURE_AUTHORITY_HOST GOOGLE_APPLICATION_CREDENTIALS GOOGLE_CLOUD_UNIVERSE_DOMAIN GOOGLE_CLOUD_QUOTA_PROJECT`) {
		_ = os.Setenv(name, "evil.example")
	}
	_ = os.Setenv("AWS_ENDPOINT_URL", "https://evil.example")
	_ = os.Setenv("AWS_ENDPOINT_URL_KMS", "https://evil.example")
	os.Exit(m.Run())
}

type group = masterkey.Group

// place is a cloud, with its key service and token service in the journal.
type place struct {
	name, keys, tokens string
	// seal encrypts for a tenant's key.
	seal func(w *world, tenant string, plain []byte) masterkey.Key
	// principal begins tenant A's name in the journal. The others begin what tenant B is told.
	principal, denied, untrusted string
}

func places() []place {
	sealAWS := func(w *world, tenant string, plain []byte) masterkey.Key {
		return w.sealAWS(w.awsKey(tenant), nil, plain)
	}
	return []place{
		{
			"aws", "kms", "sts", sealAWS, "arn:aws:sts::" + account + ":assumed-role/tenant-a/",
			"AWS KMS answered AccessDeniedException: User: arn:aws:sts::" + account + ":assumed-role/tenant-b/",
			"exchange: AWS STS",
		},
		{
			"azure", "key-vault", "entra", (*world).sealAzure, clientOf(tenantA) + "@" + directory,
			"Azure Key Vault answered Forbidden: Caller is not authorized to perform action on resource. If role assignments",
			"exchange: Microsoft Entra",
		},
		{
			"gcp", "cloudkms", "gcp-sts", (*world).sealGCP, "serviceAccount:" + emailOf(tenantA),
			"Google Cloud KMS answered with status 403: Permission 'cloudkms.cryptoKeyVersions.useToDecrypt' denied on resource", "impersonation: iamcredentials",
		},
	}
}

// TestClouds decrypts as two tenants. Each tenant can use its own key, and no other.
func TestClouds(t *testing.T) {
	t.Parallel()
	for _, p := range places() {
		t.Run(p.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			ofA, ofB := p.seal(w, tenantA, dataKey()), p.seal(w, tenantB, dataKey())
			for range 2 {
				calls, _ := w.ask("tenant A", tenantA, "", p.keys, group{ofA})
				if who := calls[len(calls)-1].Principal; !strings.HasPrefix(who, p.principal) {
					t.Errorf("tenant A is %s, want %s", who, p.principal)
				}
			}
			asked := ofA.String() + ", asked by " + subjectOf(tenantB) + ": "
			w.ask("tenant B", tenantB, "", p.keys, group{ofB})
			w.ask("tenant B with A's key", tenantB, asked+p.denied, "-"+p.keys, group{ofA})
			w.accounts.posing = tenantB
			w.ask("tenant B with A's identity", tenantB, asked+p.untrusted, "", group{ofA})
		})
	}
}

// TestNobodyIsAsked has keys that are refused before anybody gets a token or a request.
func TestNobodyIsAsked(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	const id = ":" + account + ":key/0af1c2d3-1111-2222-3333-444455556666"
	const arn, googleKey = "arn:aws:kms:eu-west-1" + id, keyRing + "/cryptoKeys/tenant-a"
	aws := func(arn string) masterkey.Key { return masterkey.Key{AWS: &masterkey.AWS{ARN: arn}, Encrypted: "AAAA"} }
	vault := func(url, name, version string) masterkey.Key {
		return masterkey.Key{Azure: &masterkey.Azure{VaultURL: url, Name: name, Version: version}, Encrypted: "AAAA"}
	}
	google := func(name string) masterkey.Key {
		return masterkey.Key{GCP: &masterkey.GCP{ResourceID: name}, Encrypted: "AAAA"}
	}
	damaged := func(key masterkey.Key) masterkey.Key {
		key.Encrypted = "%"
		return key
	}
	for name, c := range map[string]struct {
		key  masterkey.Key
		says string
	}{
		"a role":                        {masterkey.Key{AWS: &masterkey.AWS{ARN: arn, Role: "arn:aws:iam::" + account + ":role/admin"}}, "the file names the role"},
		"a profile":                     {masterkey.Key{AWS: &masterkey.AWS{ARN: arn, Profile: "admin"}}, "the file names the profile"},
		"a region that is a host":       {aws("arn:aws:kms:eu-west-1.evil.example/" + id), "the region"},
		"a region with a fragment":      {aws("arn:aws:kms:evil.example#" + id), "the region"},
		"a region of another partition": {aws("arn:aws:kms:cn-north-1" + id), "belongs to the partition aws-cn"},
		"a partition of another region": {aws("arn:aws-cn:kms:eu-west-1" + id), "belongs to the partition aws,"},
		"another partition":             {aws("arn:aws-cn:kms:cn-north-1" + id), "partition"},
		"another service":               {aws("arn:aws:iam:eu-west-1:" + account + ":role/x"), "not kms"},
		"a path in an ID":               {aws(arn + "/../x"), "UUID"},
		"a vault that looks alike":      {vault("https://a.vault.azure.net.evil.example", tenantA, ""), "evil.example"},
		"a vault without TLS":           {vault("http://contoso-keys.vault.azure.net", tenantA, ""), "https"},
		"a vault at another port":       {vault(vaultURL+":8443", tenantA, ""), "port"},
		"a vault with a path":           {vault(vaultURL+"/x", tenantA, ""), "path"},
		"a vault with a password":       {vault("https://a:b@contoso-keys.vault.azure.net", tenantA, ""), "user"},
		"a vault of another Azure":      {vault("https://contoso-keys.vault.azure.cn", tenantA, ""), "AzureChinaCloud"},
		"a path in a key's name":        {vault(vaultURL, "../secrets/x", ""), "name"},
		"a path in a key's version":     {vault(vaultURL, tenantA, "../../secrets/x"), "version"},
		"a version of Google's key":     {google(googleKey + "/cryptoKeyVersions/1"), "version"},
		"a path that leaves the ring":   {google(keyRing + "/cryptoKeys/../x"), "not the name of a key"},
		"a key that is two dots":        {google(keyRing + "/cryptoKeys/.."), `the key ".."`},
		"a project that is two dots":    {google(strings.Replace(googleKey, project, "..", 1)), `the project ".."`},
		"another method":                {google(googleKey + ":encrypt"), "letters, digits"},
		"a query":                       {google(googleKey + "?alt=media"), "letters, digits"},
		"AWS, no base64":                {damaged(aws(arn)), "not base64"},
		"Azure, no base64":              {damaged(vault(vaultURL, tenantA, "")), "not base64"},
		"Google, no base64":             {damaged(google(googleKey)), "not base64"},
		"a key of Vault":                {masterkey.Key{Vault: &masterkey.Vault{Address: "https://evil.example"}}, "not supported"},
		"a key of Huawei Cloud":         {masterkey.Key{HuaweiKMS: &masterkey.HuaweiKMS{ID: "x"}}, "not supported"},
		"a key of two types":            {masterkey.Key{AWS: &masterkey.AWS{ARN: arn}, GCP: &masterkey.GCP{ResourceID: googleKey}}, "2 types"},
	} {
		if calls, _ := w.ask(name, tenantA, c.says, "", group{c.key}); len(calls) > 0 {
			t.Errorf("%s: %+v", name, calls)
		}
	}
}

// TestKeys asks for keys in all states. A refusal has the key service's own words.
func TestKeys(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ask := func(name string, key masterkey.Key, says, decryptions string) {
		t.Helper()
		w.ask(name, tenantA, says, decryptions, group{key})
	}
	text := map[string]string{"app": "shop", "stage": "live"}
	arn, disabled, deleted := w.awsKey(tenantA), w.awsKey(tenantA), w.awsKey(tenantA)
	sealed, offKey, goneKey := w.sealAWS(arn, text, dataKey()), w.sealAWS(disabled, nil, dataKey()), w.sealAWS(deleted, nil, dataKey())
	aws := func(arn string, text map[string]string) masterkey.Key {
		return masterkey.Key{AWS: &masterkey.AWS{ARN: arn, Context: text}, Encrypted: sealed.Encrypted}
	}
	_, err := w.kms().DisableKey(t.Context(), &kms.DisableKeyInput{KeyId: &disabled})
	must.Succeed(t, err)
	_, err = w.kms().ScheduleKeyDeletion(t.Context(), &kms.ScheduleKeyDeletionInput{KeyId: &deleted})
	must.Succeed(t, err)
	ask("the encryption context", sealed, "", "kms")
	ask("another context", aws(arn, map[string]string{"app": "shop", "stage": "test"}), "InvalidCiphertextException", "-kms")
	ask("no context", aws(arn, nil), "InvalidCiphertextException", "-kms")
	ask("another key", aws(w.awsKey(tenantA), text), "IncorrectKeyException", "-kms")
	ask("another region", aws(strings.Replace(arn, region, "us-east-1", 1), text), "IncorrectKeyException", "-kms")
	ask("an alias", aws("arn:aws:kms:"+region+":"+account+":alias/a", text), "NotFoundException: Alias", "-kms")
	ask("a disabled key", offKey, "DisabledException", "-kms")
	ask("a key that is pending deletion", goneKey, "KMSInvalidStateException", "-kms")

	sealed = w.sealAzure(tenantA, dataKey())
	version := sealed.Azure.Version
	azure := func(vault, version, encrypted string) masterkey.Key {
		return masterkey.Key{Azure: &masterkey.Azure{VaultURL: vault, Name: tenantA, Version: version}, Encrypted: encrypted}
	}
	ask("the version", sealed, "", "key-vault")
	ask("an old file without a version", azure(vaultURL+"/", "", sealed.Encrypted), "", "key-vault")
	ask("another version", azure(vaultURL, strings.Repeat("0", 32), sealed.Encrypted), "KeyNotFound", "-key-vault")
	ask("another ciphertext", azure(vaultURL, version, "AAAA"), "BadParameter", "-key-vault")
	// This vault asks for a token of its own directory, and gets none.
	ask("a vault of strangers", azure("https://fabrikam-keys.vault.azure.net", "", sealed.Encrypted), stranger, "")
	off := azkeys.UpdateKeyParameters{KeyAttributes: &azkeys.KeyAttributes{Enabled: new(false)}}
	_, err = w.vault().UpdateKey(t.Context(), tenantA, version, off, nil)
	must.Succeed(t, err)
	ask("a disabled key of Azure", sealed, "Operation decrypt is not allowed on a disabled key", "-key-vault")

	sealed = w.sealGCP(tenantA, dataKey())
	name, versions := sealed.GCP.ResourceID, w.cloudKMS().CryptoKeyVersions
	google := func(name, encrypted string) masterkey.Key {
		return masterkey.Key{GCP: &masterkey.GCP{ResourceID: name}, Encrypted: encrypted}
	}
	ask("a key of Google", sealed, "", "cloudkms")
	ask("another key's ciphertext", google(name, w.sealGCP(tenantB, dataKey()).Encrypted), "verify that 'name' refers to the correct CryptoKey", "-cloudkms")
	ask("no such key", google(name+"x", sealed.Encrypted), "status 403: Permission", "-cloudkms")
	for _, state := range []string{"DISABLED", "ENABLED"} {
		_, err = versions.Patch(name+"/cryptoKeyVersions/1", &cloudkms.CryptoKeyVersion{State: state}).UpdateMask("state").Do()
		must.Succeed(t, err)
		if state == "DISABLED" {
			ask("a disabled version", sealed, "not enabled, current state is: DISABLED", "-cloudkms")
		}
	}
	_, err = versions.Destroy(name+"/cryptoKeyVersions/1", &cloudkms.DestroyCryptoKeyVersionRequest{}).Do()
	must.Succeed(t, err)
	ask("a destroyed version", sealed, "current state is: DESTROY_SCHEDULED", "-cloudkms")
}

// TestGroups checks which keys are tried, in which order, and what several groups decrypt.
func TestGroups(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	id, other := identity(t), identity(t)
	var err error
	w.keys, err = keyservice.ParseKeys(map[string][]byte{"a.agekey": []byte(id.String())})
	must.Succeed(t, err)
	parts, err := shamir.Split(dataKey(), 3, 2)
	must.Succeed(t, err)
	aws, azure, google := group{w.sealAWS(w.awsKey(tenantA), nil, parts[0])}, group{w.sealAzure(tenantA, parts[1])}, group{w.sealGCP(tenantA, parts[2])}
	ofB, wholeOfB := w.sealAWS(w.awsKey(tenantB), nil, parts[0]), w.sealGCP(tenantB, dataKey())
	whole := w.sealGCP(tenantA, dataKey())
	for name, c := range map[string]struct {
		groups            []group
		says, decryptions string
	}{
		"two of three groups":       {[]group{aws, azure, google}, "", "kms key-vault"},
		"a group without success":   {[]group{{ofB}, azure, google}, "", "-kms key-vault cloudkms"},
		"the second key of a group": {[]group{{wholeOfB, whole, azure[0]}}, "", "-cloudkms cloudkms"},
		"age before a cloud":        {[]group{{whole, forAge(t, id.Recipient(), dataKey())}}, "", ""},
		"age of somebody else":      {[]group{{whole, forAge(t, other.Recipient(), dataKey())}}, "", "cloudkms"},
		"age and a cloud":           {[]group{google, {forAge(t, id.Recipient(), parts[1])}, aws}, "", "cloudkms"},
		"too few groups, one": {
			[]group{aws, {wholeOfB, ofB}, {forAge(t, other.Recipient(), parts[1])}},
			"a.yaml: no key decrypts it: " + wholeOfB.String() + ", asked by " + subjectOf(tenantA), "kms -cloudkms -kms",
		},
		"too few groups, two":    {[]group{aws, {ofB}}, ofB.String() + ", asked by ", "kms -kms"},
		"one part twice":         {[]group{aws, {w.sealGCP(tenantA, parts[0])}}, "no parts of one data key", "kms cloudkms"},
		"a data key as a part":   {[]group{aws, {whole}}, "no data key", "kms cloudkms"},
		"a part as the data key": {[]group{google}, "no data key", "cloudkms"},
	} {
		_, refusal := w.ask(name, tenantA, c.says, c.decryptions, c.groups...)
		if name == "too few groups, one" && (refusal == nil || len(refusal.Keys) != 3) {
			t.Errorf("%s: %v, want three keys", name, refusal)
		}
	}
}

// TestOracleOfClouds tries to decrypt what is no data key. Nothing of it comes back.
func TestOracleOfClouds(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	// AWS's client loses a long answer that comes before the client has ended its request.
	_, err := w.cloud.Faults().Add(fault.Fault{Service: "kms", Kind: fault.Latency, Delay: 20 * time.Millisecond})
	must.Succeed(t, err)
	for _, p := range places() {
		longest := map[string]int{"aws": 4096, "azure": 190, "gcp": 40 << 10}[p.name] // to encrypt, or in a file
		for _, size := range []int{1, 16, 31, 33, 64, longest} {
			name, key := fmt.Sprintf("%s, %d bytes", p.name, size), p.seal(w, tenantA, bytes.Repeat([]byte("yyy"), size/3+1)[:size])
			_, refusal := w.ask(name, tenantA, "what it decrypts is no data key", p.keys, group{key})
			if refusal == nil || strings.Contains(refusal.Error(), "yyy") || strings.Contains(refusal.Error(), base64.StdEncoding.EncodeToString([]byte("yyy"))) {
				t.Errorf("%s: %v", name, refusal)
			}
		}
	}
}

// errOver is why contexts end.
var errOver = errors.New("the time is over")

// TestFaults makes key services and token services fail. The error says that another attempt may
// succeed, and it does. A short failure is not noticed at all.
func TestFaults(t *testing.T) {
	t.Parallel()
	for _, p := range places() {
		for name, f := range map[string]fault.Fault{
			"throttled":           {Service: p.keys, Kind: fault.Throttle},
			"throttled, politely": {Service: p.keys, Kind: fault.Throttle, RetryAfter: 5 * time.Second},
			"throttled, shortly":  {Service: p.keys, Kind: fault.Throttle, Count: 2},
			"failing":             {Service: p.keys, Kind: fault.InternalFailure},
			"down":                {Service: p.keys, Kind: fault.Unavailable},
			"down, shortly":       {Service: p.keys, Kind: fault.Unavailable, Count: 2},
			"cut off":             {Service: p.keys, Kind: fault.Malformed},
			"silent":              {Service: p.keys, Kind: fault.Drop},
			"slow":                {Service: p.keys, Kind: fault.Latency, Delay: time.Hour},
			"no tokens":           {Service: p.tokens, Kind: fault.Unavailable},
			"slow tokens":         {Service: p.tokens, Kind: fault.Latency, Delay: time.Hour},
		} {
			t.Run(p.name+"/"+name, func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					w := newWorld(t)
					key := p.seal(w, tenantA, dataKey())
					id, err := w.cloud.Faults().Add(f)
					must.Succeed(t, err)
					if f.Count > 0 {
						w.ask(name, tenantA, "", p.keys, group{key})
						return
					}
					ctx, cancel := context.WithTimeoutCause(t.Context(), 20*time.Second, errOver) // the cache gives up after 30 seconds
					defer cancel()
					began := time.Now()
					got, _, err := w.decrypt(ctx, tenantA, only(key)...)
					refusal, refused := errors.AsType[*keyservice.Error](err)
					if over := errors.Is(err, errOver); !refused || !refusal.Temporary() || len(got) > 0 || over != (f.Kind == fault.Latency) || time.Since(began) > 21*time.Second {
						t.Errorf("%q, %v, after %s", got, err, time.Since(began))
					}
					w.cloud.Faults().Remove(id)
					time.Sleep(2 * time.Hour) // until the cloud has ended its calls
					w.ask("afterwards", tenantA, "", p.keys, group{key})
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
			name, plain := fmt.Sprintf("%d.yaml", i), bytes.Repeat([]byte{byte(i)}, masterkey.DataKeySize)
			want[name] = plain
			files = append(files, masterkey.File{Name: name, Groups: []masterkey.Group{{places()[i%3].seal(w, tenantA, plain)}}})
		}
		got, calls, err := w.decrypt(t.Context(), tenantA, files...)
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("%v, %v", got, err)
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
		ctx, cancel := context.WithTimeoutCause(t.Context(), 2500*time.Millisecond, errOver)
		defer cancel()
		got, calls, err = w.decrypt(ctx, tenantA, files...)
		if !errors.Is(err, errOver) || len(got) > 0 || calls.decryptions() == "" {
			t.Errorf("the context ended: %q, %v, after %q", got, err, calls.decryptions())
		}
		time.Sleep(time.Minute) // until the cloud has ended its calls
	})
}

// TestHostileServices has key services that answer as none would. Nothing is decrypted, nobody else
// is asked, and no token is for anything else.
func TestHostileServices(t *testing.T) {
	t.Parallel()
	key := base64.StdEncoding.EncodeToString(dataKey())
	challenge := func(resource string) http.HandlerFunc {
		return func(answer http.ResponseWriter, _ *http.Request) {
			answer.Header().Set("WWW-Authenticate", `Bearer authorization="https://login.microsoftonline.com/`+directory+`", resource="`+resource+`"`)
			answer.WriteHeader(http.StatusUnauthorized)
		}
	}
	for name, handler := range map[string]http.HandlerFunc{
		"a long answer": func(answer http.ResponseWriter, _ *http.Request) {
			_, _ = fmt.Fprintf(answer, `{"Plaintext":%q,"value":%q,"plaintext":%q,"x":"%s"}`, key, strings.TrimRight(key, "="), key, strings.Repeat("x", 1<<20))
		},
		"a redirect": func(answer http.ResponseWriter, r *http.Request) {
			http.Redirect(answer, r, "https://evil.example/", http.StatusTemporaryRedirect)
		},
		"an answer without an end": func(answer http.ResponseWriter, r *http.Request) {
			_, _ = io.WriteString(answer, "{")
			_ = http.NewResponseController(answer).Flush()
			<-r.Context().Done()
		},
		"a token for more":          challenge("https://azure.net"),
		"a token for somebody else": challenge("https://management.azure.com"),
	} {
		for _, p := range places() {
			t.Run(p.name+"/"+name, func(t *testing.T) {
				t.Parallel()
				w := newWorld(t)
				sealed := p.seal(w, tenantA, dataKey())
				others := w.impersonate(func(answer http.ResponseWriter, r *http.Request) {
					_, _ = io.Copy(io.Discard, r.Body)
					time.Sleep(20 * time.Millisecond) // until the client has ended its request
					handler(answer, r)
				})
				patience := 10 * time.Second
				if name == "a redirect" || name == "an answer without an end" { // Azure's client repeats the first
					patience = time.Second / 2
				}
				ctx, cancel := context.WithTimeoutCause(t.Context(), patience, errOver)
				defer cancel()
				got, calls, err := w.decrypt(ctx, tenantA, only(sealed)...)
				refusal, ok := errors.AsType[*keyservice.Error](err)
				if !ok || len(got) > 0 || others() > 0 || strings.Contains(err.Error(), key) || (name == "a token for more" && refusal.Temporary()) {
					t.Errorf("%q, %v, %d others asked", got, err, others())
				}
				if p.name == "azure" && len(calls) > 0 {
					t.Errorf("a token was asked for: %+v", calls)
				}
				if name == "an answer without an end" && !errors.Is(err, errOver) {
					t.Errorf("%v", err)
				}
			})
		}
	}
}
