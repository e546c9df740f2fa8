package azure_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azidentity"
	"github.com/Azure/azure-sdk-for-go/sdk/security/keyvault/azkeys"
	"github.com/google/go-cmp/cmp"

	"github.com/lanyard-dev/lanyard/cloudtest/azure"
	"github.com/lanyard-dev/lanyard/cloudtest/fault"
	"github.com/lanyard-dev/lanyard/cloudtest/internal/must"
	"github.com/lanyard-dev/lanyard/cloudtest/internal/rig"
	"github.com/lanyard-dev/lanyard/cloudtest/journal"
	"github.com/lanyard-dev/lanyard/cloudtest/oidc"
)

const (
	tenantKeys     = "tenant-keys.vault.azure.net"
	vaultResource  = "https://vault.azure.net"
	vaultChallenge = `Bearer authorization="https://login.microsoftonline.com/` + directory + `", resource="https://vault.azure.net"`
	keyA           = tenantKeys + "/keys/tenant-a"
	keyB           = tenantKeys + "/keys/tenant-b"
)

// vaultAnswer is the part of an answer that the tests compare.
type vaultAnswer struct {
	Status      int
	Code, Inner string
}

// vault calls a key vault with a query of the SDK's version, unless the target has a query.
func (w *world) vault(t *testing.T, client *http.Client, method, target, token, body string) (vaultAnswer, string, http.Header) {
	t.Helper()
	if !strings.Contains(target, "?") {
		target += "?api-version=2025-07-01"
	}
	contentType := ""
	if body != "" {
		contentType = "application/json"
	}
	r := rig.NewRequest(t, method, "https://"+target, contentType, body)
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	res, err := client.Do(r)
	must.Succeed(t, err)
	text := rig.ReadAll(t, res)
	var parsed struct {
		Error struct {
			Code, Message string
			Inner         struct{ Code string } `json:"innererror"`
		}
	}
	if err := json.Unmarshal([]byte(text), &parsed); err != nil {
		t.Errorf("%s %s: %v in %q", method, target, err, text)
	}
	if message := parsed.Error.Message; message != "" {
		text = message
	}
	return vaultAnswer{res.StatusCode, parsed.Error.Code, parsed.Error.Inner.Code}, text, res.Header
}

// block is the body of a request to encrypt or to decrypt.
func block(algorithm, value string) string {
	return `{"alg":"` + algorithm + `","value":"` + value + `"}`
}

// seal encrypts "data key" with a key's current version.
func (w *world) seal(t *testing.T, client *http.Client, key, token string) string {
	t.Helper()
	answer, body, _ := w.vault(t, client, http.MethodPost, key+"//encrypt", token, block("RSA-OAEP-256", base64.RawURLEncoding.EncodeToString([]byte("data key"))))
	var sealed struct{ Value string }
	if err := json.Unmarshal([]byte(body), &sealed); err != nil || answer.Status != http.StatusOK {
		t.Fatalf("%+v %s", answer, body)
	}
	return sealed.Value
}

// TestVaultVerdicts judges requests that are right except for one thing.
func TestVaultVerdicts(t *testing.T) {
	w := newWorld(t)
	client := w.client()
	a, b, officer := w.entra(t, clientA, subjectA, vaultResource), w.entra(t, clientB, subjectB, vaultResource), w.entra(t, pusher, subjectPusher, vaultResource)
	admin, service := w.entra(t, administrator, subjectAdmin, vaultResource), w.entra(t, manager, subjectAdmin, vaultResource)
	other, err := assert(t.Context(), w.Transport(), "https://login.microsoftonline.com/", otherDirectory, clientA, w.mint(t, subjectA, audience), vaultResource+"/.default")
	must.Succeed(t, err)
	external, err := w.issuer.Mint(oidc.Claims{"iss": "https://sts.windows.net/" + directory + "/", "aud": vaultResource, "sub": "x", "tid": directory, "appid": clientA})
	must.Succeed(t, err)
	for name, body := range map[string]string{"disabled": `{"kty":"RSA","attributes":{"enabled":false}}`, "signing": `{"kty":"RSA","key_ops":["sign"]}`, "deleted": `{"kty":"RSA"}`} {
		if got, text, _ := w.vault(t, client, http.MethodPost, tenantKeys+"/keys/"+name+"/create", officer, body); got.Status != http.StatusOK {
			t.Fatalf("%s: %+v %s", name, got, text)
		}
	}
	sealed := w.seal(t, client, keyA, a)
	good := block("RSA-OAEP-256", sealed)
	plain := block("RSA-OAEP", "c29wcw")
	ok := vaultAnswer{Status: http.StatusOK}
	unknown, bad := vaultAnswer{401, "Unauthorized", ""}, vaultAnswer{400, "BadParameter", ""}
	forbidden, missing := vaultAnswer{403, "Forbidden", "ForbiddenByRbac"}, vaultAnswer{404, "KeyNotFound", ""}
	const versionOfNone = "/0123456789abcdef0123456789abcdef"
	for _, tt := range []struct {
		name, method, target, token, body string
		want                              vaultAnswer
		says                              string // in the message
	}{
		{"good", "POST", keyA + "/decrypt", a, good, ok, ""},
		{"good, empty version", "POST", keyA + "//decrypt", a, good, ok, ""},
		{"good, other case", "POST", tenantKeys + "/keys/TENANT-A/decrypt", a, good, ok, ""},
		{"good, older version", "POST", keyA + "/decrypt?api-version=7.4", a, good, ok, ""},
		{"good, 7.5", "POST", keyA + "/decrypt?api-version=7.5", a, good, ok, ""},
		{"good, 7.6", "POST", keyA + "/decrypt?api-version=7.6", a, good, ok, ""},
		{"by the vault's administrator", "POST", keyA + "/decrypt", admin, good, ok, ""},
		{"SHA-1", "POST", keyB + "/encrypt", b, plain, ok, ""},

		{"no token", "POST", keyA + "/decrypt", "", "", unknown, "AKV10000: Request is missing a Bearer or PoP token."},
		{"no JWT", "POST", keyA + "/decrypt", "hello", good, unknown, "AKV10046: "},
		{"external token", "POST", keyA + "/decrypt", w.mint(t, subjectA, vaultResource), good, unknown, "AKV10046: "},
		{"external token that says to be Entra's", "POST", keyA + "/decrypt", external, good, unknown, "AKV10046: "},
		{"other audience", "POST", keyA + "/decrypt", w.entra(t, clientA, subjectA, armResource), good, unknown, "AKV10022: Invalid audience. Expected https://vault.azure.net, found: https://management.azure.com."},
		{"audience with a slash", "POST", keyA + "/decrypt", w.entra(t, clientA, subjectA, vaultResource+"/"), good, unknown, "AKV10022: "},
		{"other tenant", "POST", keyA + "/decrypt", other.Token, good, unknown, "AKV10032: Invalid issuer. Expected one of https://sts.windows.net/" + directory + "/, found https://sts.windows.net/" + otherDirectory + "/."},

		{"other principal", "POST", keyA + "/decrypt", b, good, forbidden, "Action: 'Microsoft.KeyVault/vaults/keys/decrypt/action'"},
		{"other principal, key and version", "POST", keyA + versionOfNone + "/decrypt", b, good, forbidden, "Resource: '/subscriptions/" + subscriptionID +
			"/resourcegroups/tenants/providers/microsoft.keyvault/vaults/tenant-keys/keys/tenant-a" + versionOfNone + "'\r\nAssignment: (not found)"},
		{"own ciphertext with the other key", "POST", keyB + "/decrypt", b, good, bad, "Error occurred while decoding OAEP padding."},
		{"role without decrypt", "POST", keyA + "/decrypt", service, good, forbidden, "appid=" + manager + ";oid="},
		{"role with read", "GET", keyA, service, "", ok, ""},
		{"read of the other key", "GET", keyB, a, "", forbidden, "Action: 'Microsoft.KeyVault/vaults/keys/read'"},
		{"read of no key, without a role", "GET", tenantKeys + "/keys/none", a, "", forbidden, ""},
		{"creation with a user's role", "POST", keyA + "/create", a, `{"kty":"RSA"}`, forbidden, "keys/create/action"},
		{"deletion with a user's role", "DELETE", keyA, a, "", forbidden, "keys/delete"},

		{"disabled", "POST", tenantKeys + "/keys/disabled/decrypt", officer, good, vaultAnswer{403, "Forbidden", "KeyDisabled"}, "Operation decrypt is not allowed on a disabled key."},
		{"encryption with a disabled key", "POST", tenantKeys + "/keys/disabled/encrypt", officer, plain, vaultAnswer{403, "Forbidden", "KeyDisabled"}, "Operation encrypt is not allowed on a disabled key."},
		{"disabled, its public part", "GET", tenantKeys + "/keys/disabled", officer, "", ok, ""},
		{"enabled again", "PATCH", tenantKeys + "/keys/disabled", officer, `{"attributes":{"enabled":true}}`, ok, ""},
		{"encryption with an enabled key", "POST", tenantKeys + "/keys/disabled/encrypt", officer, plain, ok, ""},
		{"key for signatures", "POST", tenantKeys + "/keys/signing/decrypt", officer, good, vaultAnswer{403, "Forbidden", "KeyOperationForbidden"}, "Operation decrypt is not permitted on this key."},
		{"for encryption too", "PATCH", tenantKeys + "/keys/signing", officer, `{"key_ops":["sign","encrypt"]}`, ok, ""},
		{"encryption with a key for signatures", "POST", tenantKeys + "/keys/signing/encrypt", officer, plain, ok, ""},
		{"deletion", "DELETE", tenantKeys + "/keys/deleted", officer, "", ok, ""},
		{"deleted", "POST", tenantKeys + "/keys/deleted/decrypt", officer, good, missing, "A key with (name/id) deleted was not found in this key vault. If you recently deleted"},
		{"deleted, its public part", "GET", tenantKeys + "/keys/deleted/", officer, "", missing, ""},
		{"deleted twice", "DELETE", tenantKeys + "/keys/deleted", officer, "", missing, ""},
		{"creation of a deleted key", "POST", tenantKeys + "/keys/deleted/create", officer, `{"kty":"RSA"}`, vaultAnswer{409, "Conflict", "ObjectIsDeletedButRecoverable"}, "Key deleted is currently in a deleted"},
		{"no key", "PATCH", tenantKeys + "/keys/none", officer, `{}`, missing, "A key with (name/id) none was not found"},
		{"no version", "POST", keyA + versionOfNone + "/decrypt", a, good, missing, "A key with (name/id) tenant-a" + versionOfNone + " was not found"},

		{"RSA1_5", "POST", keyA + "/decrypt", a, block("RSA1_5", sealed), bad, "Property has invalid value"},
		{"no algorithm", "POST", keyA + "/decrypt", a, block("", sealed), bad, "Property has invalid value"},
		{"other hash", "POST", keyA + "/decrypt", a, block("RSA-OAEP", sealed), bad, "OAEP"},
		{"padded value", "POST", keyA + "/decrypt", a, block("RSA-OAEP-256", sealed+"=="), bad, "Content of 'value' is not base64url.\r\nProperty 'value' is required.\r\n"},
		{"value in the other base64", "POST", keyA + "/decrypt", a, block("RSA-OAEP-256", "+/+/"), bad, "Content of 'value' is not base64url."},
		{"no value", "POST", keyA + "/decrypt", a, block("RSA-OAEP-256", ""), bad, "Property 'value' is required."},
		{"short ciphertext", "POST", keyA + "/decrypt", a, block("RSA-OAEP-256", "AAAA"), bad, "OAEP"},
		{"long text", "POST", keyA + "/encrypt", a, block("RSA-OAEP-256", strings.Repeat("AAAA", 64)), bad, "Property has invalid value"},
		{"no body", "POST", keyA + "/decrypt", a, "", bad, ""},
		{"unknown field", "POST", keyA + "/decrypt", a, `{"alg":"RSA-OAEP","value":"AAAA","iv":"AAAA"}`, bad, ""},
		{"no api-version", "POST", keyA + "/decrypt?", a, good, bad, "The specified version () is not recognized."},
		{"wrong api-version", "POST", keyA + "/decrypt?api-version=7.9", a, good, bad, "The specified version (7.9) is not recognized."},
		{"unknown parameter", "POST", keyA + "/decrypt?api-version=7.4&x=y", a, good, bad, ""},
		{"bad name", "GET", tenantKeys + "/keys/tenant_a", officer, "", bad, "The request URI contains an invalid name: tenant_a"},
		{"elliptic key", "POST", tenantKeys + "/keys/new/create", officer, `{"kty":"EC"}`, bad, "Property has invalid value"},
		{"short key", "POST", tenantKeys + "/keys/new/create", officer, `{"kty":"RSA","key_size":1024}`, bad, "Property has invalid value"},
		{"key for everything", "POST", tenantKeys + "/keys/new/create", officer, `{"kty":"RSA","key_ops":["*"]}`, bad, "Property has invalid value"},
		{"operation twice", "PATCH", keyA, officer, `{"key_ops":["sign","sign"]}`, bad, "Property has invalid value"},
		{"attributes of another type", "PATCH", keyA, officer, `{"attributes":{"enabled":"no"}}`, bad, "Property has invalid value"},
		{"key with tags", "POST", tenantKeys + "/keys/new/create", officer, `{"kty":"RSA","tags":{}}`, bad, "Property has invalid value"},
	} {
		got, text, header := w.vault(t, client, tt.method, tt.target, tt.token, tt.body)
		if got != tt.want || !strings.Contains(text, tt.says) {
			t.Errorf("%s: %+v %q, want %+v %q", tt.name, got, text, tt.want, tt.says)
		}
		if challenge := header.Get("Www-Authenticate"); (challenge == vaultChallenge) != (tt.want.Status == 401) {
			t.Errorf("%s: challenge %q", tt.name, challenge)
		}
		call := w.last(t)
		if call.Service != azure.ServiceKeyVault || call.Operation == "" || call.Code != tt.want.Code || call.Granted() != (tt.want == ok) ||
			(call.Principal == "") != (tt.want.Status == 401) || !strings.HasPrefix(call.Resource, tenantKeys+"/keys/") {
			t.Errorf("%s: journal %+v", tt.name, call)
		}
	}
	for _, tt := range []struct{ method, path string }{
		{"GET", "/keys"},
		{"GET", "/keys/"},
		{"GET", "/secrets/tenant-a"},
		{"PUT", "/keys/tenant-a"},
		{"POST", "/keys/decrypt"},
		{"POST", "/keys/tenant-a/sign"},
		{"POST", "/keys/tenant-a/x/create"},
		{"DELETE", "/keys/tenant-a/x"},
		{"POST", "/keys/tenant-a/x/y/decrypt"},
		{"GET", "/keys/tenant-a/x/y"},
		{"GET", "/"},
	} {
		if got, _, _ := w.vault(t, client, tt.method, tenantKeys+tt.path, officer, ""); got != (vaultAnswer{405, "MethodNotAllowed", ""}) || w.last(t).Operation != "" {
			t.Errorf("%s %s: %+v, %+v", tt.method, tt.path, got, w.last(t))
		}
	}
	calls := w.Journal().Calls(journal.Filter{Service: azure.ServiceKeyVault, Operation: "Decrypt", Resource: keyA, Principal: clientA + "@" + directory, Verdict: journal.Granted})
	if len(calls) != 6 || calls[0].Audience != vaultResource {
		t.Errorf("%d decryptions of tenant A: %+v", len(calls), calls)
	}
}

// TestVaultChanges checks that changed role assignments are in force at once, and that the keys
// stay.
func TestVaultChanges(t *testing.T) {
	w := newWorld(t)
	client := w.client()
	a, b := w.entra(t, clientA, subjectA, vaultResource), w.entra(t, clientB, subjectB, vaultResource)
	sealed := w.seal(t, client, keyA, a)
	decrypt := func(token string) string {
		got, _, _ := w.vault(t, client, http.MethodPost, keyA+"/decrypt", token, block("RSA-OAEP-256", sealed))
		return fmt.Sprint(got.Status, " ", got.Inner)
	}
	vault := azure.KeyVaultConfig{Name: "tenant-keys", Keys: []string{"tenant-a"}}
	must.Succeed(t, w.Azure().PutKeyVault(directory, vault))
	got := []string{decrypt(a), decrypt(b)}
	vault.RoleAssignments = []azure.KeyVaultRole{{ClientID: clientB, Role: "Key Vault Crypto User", Key: "tenant-a"}}
	must.Succeed(t, w.Azure().PutKeyVault(directory, vault))
	got = append(got, decrypt(a), decrypt(b))
	must.Succeed(t, w.Azure().DeleteApplication(directory, clientB))
	got = append(got, decrypt(b))
	if diff := cmp.Diff([]string{"403 ForbiddenByRbac", "403 ForbiddenByRbac", "403 ForbiddenByRbac", "200 ", "403 ForbiddenByRbac"}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if call := w.last(t); call.Principal != "" || !strings.HasPrefix(call.Reason, "no role assignment lets oid=") {
		t.Errorf("journal %+v", call)
	}
	// A vault that is made again has other keys.
	must.Succeed(t, w.Azure().DeleteKeyVault(directory, "tenant-keys"))
	vault.RoleAssignments[0].ClientID = clientA
	must.Succeed(t, w.Azure().PutKeyVault(directory, vault))
	if got := decrypt(a); got != "400 " {
		t.Errorf("with the key of the new vault: %s", got)
	}
	if err := w.Azure().PutKeyVault(otherDirectory, vault); err == nil {
		t.Error("a vault has two tenants")
	}
	if err := w.Azure().DeleteKeyVault(otherDirectory, "tenant-keys"); err == nil {
		t.Error("a tenant deleted the vault of another")
	}
}

// keys returns the unmodified SDK's client of a key vault, for an application that a ServiceAccount
// can act as.
func (w *world) keys(t *testing.T, host, authority, tenant, client, subject string) *azkeys.Client {
	t.Helper()
	options := once(w.Transport(), authority)
	credential, err := azidentity.NewClientAssertionCredential(tenant, client,
		func(context.Context) (string, error) { return w.mint(t, subject, audience), nil },
		&azidentity.ClientAssertionCredentialOptions{ClientOptions: options, DisableInstanceDiscovery: strings.Contains(authority, "example")})
	must.Succeed(t, err)
	keys, err := azkeys.NewClient("https://"+host+"/", credential, &azkeys.ClientOptions{ClientOptions: options})
	must.Succeed(t, err)
	return keys
}

func rsaBlock(algorithm azkeys.EncryptionAlgorithm, value []byte) azkeys.KeyOperationParameters {
	return azkeys.KeyOperationParameters{Algorithm: &algorithm, Value: value}
}

// vaultOutcome returns the status and the code of the SDK's error, or "".
func vaultOutcome(err error) string {
	if failed, ok := errors.AsType[*azcore.ResponseError](err); ok {
		return fmt.Sprint(failed.StatusCode, " ", failed.ErrorCode)
	}
	if err != nil {
		return err.Error()
	}
	return ""
}

// TestVaultSDK encrypts and decrypts with the SDK, as the program sops does, while the key changes.
func TestVaultSDK(t *testing.T) {
	ctx := t.Context()
	w := newWorld(t)
	const authority = "https://login.microsoftonline.com/"
	user := w.keys(t, tenantKeys, authority, directory, clientA, subjectA)
	officer := w.keys(t, tenantKeys, authority, directory, pusher, subjectPusher)
	const oaep = azkeys.EncryptionAlgorithmRSAOAEP256

	first, err := user.GetKey(ctx, "tenant-a", "", nil)
	must.Succeed(t, err)
	if key := first.Key; key.KID.Name() != "tenant-a" || len(key.KID.Version()) != 32 || *key.Kty != azkeys.KeyTypeRSA || len(key.N) != 256 || !*first.Attributes.Enabled {
		t.Fatalf("%+v", first)
	}
	challenged := w.Journal().Calls(journal.Filter{Service: azure.ServiceKeyVault})
	if len(challenged) != 2 || challenged[0].Status != 401 || challenged[0].Audience != "" || !challenged[1].Granted() || challenged[1].Operation != "GetKey" || challenged[1].Resource != keyA {
		t.Errorf("the challenge: %+v", challenged)
	}
	sealed, err := user.Encrypt(ctx, "tenant-a", first.Key.KID.Version(), rsaBlock(oaep, []byte("data key")), nil)
	must.Succeed(t, err)
	if *sealed.KID != *first.Key.KID || len(sealed.Result) != 256 {
		t.Errorf("%+v", sealed)
	}
	decrypt := func(version string) string {
		plain, err := user.Decrypt(ctx, "tenant-a", version, rsaBlock(oaep, sealed.Result), nil)
		if err == nil && string(plain.Result) != "data key" {
			return fmt.Sprintf("wrong text %q", plain.Result)
		}
		return vaultOutcome(err)
	}
	old, enabled := first.Key.KID.Version(), true
	got := []string{decrypt(old), decrypt("")}
	kty, size := azkeys.KeyTypeRSA, int32(3072)
	second, err := officer.CreateKey(ctx, "Tenant-A", azkeys.CreateKeyParameters{Kty: &kty, KeySize: &size, KeyAttributes: &azkeys.KeyAttributes{Enabled: &enabled}}, nil)
	must.Succeed(t, err)
	if second.Key.KID.Name() != "tenant-a" || second.Key.KID.Version() == old || len(second.Key.N) != 384 {
		t.Errorf("%+v", second.Key)
	}
	got = append(got, decrypt(old), decrypt(""))
	enabled = false
	_, err = officer.UpdateKey(ctx, "tenant-a", old, azkeys.UpdateKeyParameters{KeyAttributes: &azkeys.KeyAttributes{Enabled: &enabled}}, nil)
	must.Succeed(t, err)
	got = append(got, decrypt(old))
	_, err = user.Encrypt(ctx, "tenant-a", "", rsaBlock(oaep, []byte("x")), nil)
	got = append(got, vaultOutcome(err))
	_, err = user.Encrypt(ctx, "tenant-b", "", rsaBlock(oaep, []byte("x")), nil)
	got = append(got, vaultOutcome(err))
	deleted, err := officer.DeleteKey(ctx, "tenant-a", nil)
	must.Succeed(t, err)
	if *deleted.RecoveryID != "https://"+tenantKeys+"/deletedkeys/tenant-a" || deleted.ScheduledPurgeDate.Sub(*deleted.DeletedDate) < 89*24*time.Hour {
		t.Errorf("%+v", deleted.DeletedKey)
	}
	got = append(got, decrypt(old))
	if _, err := w.Faults().Add(fault.Fault{Service: azure.ServiceKeyVault, Operation: "Decrypt", Kind: fault.Throttle, Count: 1}); err != nil {
		t.Fatal(err)
	}
	got = append(got, decrypt(old))
	if diff := cmp.Diff([]string{"", "", "", "400 BadParameter", "403 Forbidden", "", "403 Forbidden", "404 KeyNotFound", "429 Throttled"}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestVaultClouds uses a vault of each cloud with the SDK. Each cloud has its own hosts, audience
// and challenge.
func TestVaultClouds(t *testing.T) {
	w := newWorld(t)
	for tenant, hosts := range map[string][2]string{
		usDirectory:    {"tenant-keys.vault.usgovcloudapi.net", "login.microsoftonline.us"},
		chinaDirectory: {"tenant-keys.vault.azure.cn", "login.partner.microsoftonline.cn"},
		ownDirectory:   {"tenant-keys.vault.azure.example", "login.azure.example"},
	} {
		host := hosts[0]
		must.Succeed(t, w.Azure().PutApplication(tenant, azure.Application{ClientID: clientA, FederatedCredentials: []azure.FederatedCredential{
			{Name: "cluster", Issuer: issuerURL, Subject: subjectA, Audience: audience},
		}}))
		keys := w.keys(t, host, "https://"+hosts[1]+"/", tenant, clientA, subjectA)
		sealed, err := keys.Encrypt(t.Context(), "tenant-a", "", rsaBlock(azkeys.EncryptionAlgorithmRSAOAEP, []byte("data key")), nil)
		must.Succeed(t, err)
		if sealed.KID.Name() != "tenant-a" || !strings.HasPrefix(string(*sealed.KID), "https://"+host+"/keys/") {
			t.Errorf("%s: %s", host, *sealed.KID)
		}
		answer, text, header := w.vault(t, w.client(), http.MethodGet, host+"/keys/tenant-a", w.entra(t, clientA, subjectA, vaultResource), "")
		want := `Bearer authorization="https://` + hosts[1] + "/" + tenant + `", resource="https://` + strings.TrimPrefix(host, "tenant-keys.") + `"`
		if answer.Status != 401 || !strings.Contains(text, "AKV10032") || header.Get("Www-Authenticate") != want {
			t.Errorf("%s: %+v %s %v", host, answer, text, header)
		}
	}
}

// TestVaultTimes: an access token ends. A key encrypts in its time only, but decrypts at any time.
func TestVaultTimes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		client := w.client()
		defer client.CloseIdleConnections()
		transport := w.Transport()
		defer transport.CloseIdleConnections()
		token := func(id, subject string) string {
			got, err := assert(t.Context(), transport, "https://login.microsoftonline.com/", directory, id, w.mint(t, subject, audience), vaultResource+"/.default")
			must.Succeed(t, err)
			return got.Token
		}
		officer := token(pusher, subjectPusher)
		sealed := w.seal(t, client, keyA, officer)
		start := time.Now()
		attributes := fmt.Sprintf(`{"attributes":{"nbf":%d,"exp":%d}}`, start.Add(time.Minute).Unix(), start.Add(2*time.Minute).Unix())
		if got, text, _ := w.vault(t, client, http.MethodPatch, keyA, officer, attributes); got.Status != http.StatusOK {
			t.Fatalf("%+v %s", got, text)
		}
		var got []string
		for _, at := range []time.Duration{0, time.Minute, 2 * time.Minute, 65*time.Minute - time.Second, 65 * time.Minute} {
			time.Sleep(time.Until(start.Add(at)))
			encrypted, _, _ := w.vault(t, client, http.MethodPost, keyA+"/encrypt", officer, block("RSA-OAEP", "AAAA"))
			decrypted, text, _ := w.vault(t, client, http.MethodPost, keyA+"/decrypt", officer, block("RSA-OAEP-256", sealed))
			if decrypted.Status == http.StatusOK {
				text = ""
			}
			got = append(got, fmt.Sprint(encrypted.Status, " ", encrypted.Inner, ", ", decrypted.Status, " ", text))
		}
		const ended = "[TokenExpired] Error validating token: 'S2S12086'."
		if diff := cmp.Diff([]string{"403 KeyNotYetValid, 200 ", "200 , 200 ", "403 KeyExpired, 200 ", "403 KeyExpired, 200 ", "401 , 401 " + ended}, got); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
		if _, err := w.Faults().Add(fault.Fault{Service: azure.ServiceKeyVault, Kind: fault.Skew, Skew: -2 * time.Hour, Count: 1}); err != nil {
			t.Fatal(err)
		}
		if got, text, _ := w.vault(t, client, http.MethodGet, keyA, token(pusher, subjectPusher), ""); got.Status != 401 || text != "Error validating token: IDX10222" {
			t.Errorf("with a slow clock: %+v %s", got, text)
		}
	})
}
