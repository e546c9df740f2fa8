package gcp_test

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"hash/crc32"
	"net/http"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"cloud.google.com/go/iam/apiv1/iampb"
	kms "cloud.google.com/go/kms/apiv1"
	"cloud.google.com/go/kms/apiv1/kmspb"
	"github.com/googleapis/gax-go/v2/apierror"
	"golang.org/x/oauth2"
	"google.golang.org/api/option"
	"google.golang.org/protobuf/types/known/fieldmaskpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/lanyard-dev/lanyard/cloudtest/gcp"
	"github.com/lanyard-dev/lanyard/cloudtest/internal/must"
	"github.com/lanyard-dev/lanyard/cloudtest/internal/rig"
	"github.com/lanyard-dev/lanyard/cloudtest/journal"
)

const (
	ringName = "projects/" + projectID + "/locations/europe-west1/keyRings/tenants"
	keyA     = ringName + "/cryptoKeys/tenant-a"
	keyB     = ringName + "/cryptoKeys/tenant-b"
	kmsAPI   = "https://cloudkms.googleapis.com/v1/"

	roleCrypt   = "roles/cloudkms.cryptoKeyEncrypterDecrypter"
	roleDecrypt = "roles/cloudkms.cryptoKeyDecrypter"
)

// putKeys makes a key ring with a key for each tenant. Each tenant's service account may use the
// tenant's key only.
func (w *world) putKeys(t *testing.T, bindings ...gcp.Binding) {
	t.Helper()
	must.Succeed(t, w.GCP().PutKeyRing(projectID, gcp.KeyRing{
		Location: "europe-west1", Name: "tenants", Bindings: bindings,
		Keys: []gcp.CryptoKey{
			{Name: "tenant-a", Bindings: bind(roleCrypt, "serviceAccount:"+accountA)},
			{Name: "tenant-b", Bindings: bind(roleCrypt, "serviceAccount:"+accountB)},
		},
	}))
}

// seal encrypts a text with a key, and returns the ciphertext in base64.
func (w *world) seal(t *testing.T, token, key, text, data string) string {
	t.Helper()
	body, err := json.Marshal(map[string][]byte{"plaintext": []byte(text), "additionalAuthenticatedData": []byte(data)})
	must.Succeed(t, err)
	a := w.do(t, managementRequest(t, token, kmsAPI+key+":encrypt", string(body)))
	if a.status != http.StatusOK {
		t.Fatalf("HTTP %d %s", a.status, a.body)
	}
	return a.text(t, "ciphertext")
}

// narrowToken returns an access token of accountA with another scope than cloud-platform.
func (w *world) narrowToken(t *testing.T, scope, lifetime string) string {
	t.Helper()
	return w.impersonate(t, w.federated(t, ksaA), accountA, `{"scope":["`+scope+`"],"lifetime":"`+lifetime+`"}`).text(t, "accessToken")
}

func sumOf(text string) int64 {
	return int64(crc32.Checksum([]byte(text), crc32.MakeTable(crc32.Castagnoli)))
}

// TestKMSVerdicts decrypts one ciphertext with right and wrong tokens, names, data and checksums.
func TestKMSVerdicts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		defer w.client.CloseIdleConnections()
		w.putKeys(t)
		must.Succeed(t, w.GCP().PutServiceAccount(projectID, gcp.ServiceAccount{
			Email: controller, Bindings: bind("roles/iam.workloadIdentityUser", principalOf("operators", "administrator")),
		}))
		tenant, other, admin := w.accountToken(t, ksaA, accountA), w.accountToken(t, ksaB, accountB), w.administer(t, "roles/cloudkms.admin")
		const scopeKMS = "https://www.googleapis.com/auth/cloudkms"
		old := w.narrowToken(t, scopeAll, "1s")
		time.Sleep(2 * time.Second)
		sealed, sealedB := w.seal(t, tenant, keyA, "secret", "data"), w.seal(t, other, keyB, "secret", "data")
		raw, err := base64.StdEncoding.DecodeString(sealed)
		must.Succeed(t, err)
		raw[len(raw)-1] ^= 1
		changed := base64.StdEncoding.EncodeToString(raw)
		raw[len(raw)-1] ^= 1
		body := func(change ...string) string {
			fields := map[string]string{"ciphertext": sealed, "additionalAuthenticatedData": base64.StdEncoding.EncodeToString([]byte("data"))}
			for i := 0; i < len(change); i += 2 {
				fields[change[i]] = change[i+1]
			}
			text, err := json.Marshal(fields)
			must.Succeed(t, err)
			return string(text)
		}
		const denied = "Permission 'cloudkms.cryptoKeyVersions.useToDecrypt' denied on resource '"
		for _, tt := range []struct {
			name, token, key, body string
			status                 int
			code, text             string
		}{
			{"good", tenant, keyA, body(), 200, "", `"plaintext": "c2VjcmV0"`},
			{"project number", tenant, strings.Replace(keyA, projectID, projectNumber, 1), body(), 200, "", `"usedPrimary": true`},
			{"scope of Cloud KMS", w.narrowToken(t, scopeKMS, "60s"), keyA, body(), 200, "", ""},
			{"alphabet of URLs", tenant, keyA, body("ciphertext", base64.RawURLEncoding.EncodeToString(raw)), 200, "", ""},
			{"checksums", tenant, keyA, body("ciphertextCrc32c", strconv.FormatInt(sumOf(string(raw)), 10), "additionalAuthenticatedDataCrc32c", strconv.FormatInt(sumOf("data"), 10)), 200, "", `"plaintextCrc32c": "` + strconv.FormatInt(sumOf("secret"), 10) + `"`},
			{"checksum as a number", tenant, keyA, strings.Replace(body(), "{", `{"additionalAuthenticatedDataCrc32c":`+strconv.FormatInt(sumOf("data"), 10)+",", 1), 200, "", ""},
			{"name in the body", tenant, keyA, body("name", keyA), 200, "", ""},
			{"other principal", other, keyA, body(), 403, "PERMISSION_DENIED", denied + keyA + "' (or it may not exist)."},
			{"federated principal", w.federated(t, ksaA), keyA, body(), 403, "PERMISSION_DENIED", denied},
			{"administrator of keys", admin, keyA, body(), 403, "PERMISSION_DENIED", denied},
			{"no token", "", keyA, body(), 401, "UNAUTHENTICATED", "missing required authentication credential"},
			{"bad token", "ya29.x", keyA, body(), 401, "UNAUTHENTICATED", "invalid authentication credentials"},
			{"expired token", old, keyA, body(), 401, "UNAUTHENTICATED", "ACCESS_TOKEN_EXPIRED"},
			{"wrong scope", w.narrowToken(t, "https://www.googleapis.com/auth/devstorage.read_only", "60s"), keyA, body(), 403, "PERMISSION_DENIED", "ACCESS_TOKEN_SCOPE_INSUFFICIENT"},
			{"other key", tenant, keyB, body(), 403, "PERMISSION_DENIED", denied + keyB},
			{"ciphertext of another key", tenant, keyA, body("ciphertext", sealedB), 400, "INVALID_ARGUMENT", "verify that 'name' refers to the correct CryptoKey."},
			{"wrong bytes", tenant, keyA, body("ciphertext", "c2VjcmV0"), 400, "INVALID_ARGUMENT", "verify that 'name' refers to the correct CryptoKey."},
			{"no ciphertext", tenant, keyA, "{}", 400, "INVALID_ARGUMENT", "verify that 'name'"},
			{"changed ciphertext", tenant, keyA, body("ciphertext", changed), 400, "INVALID_ARGUMENT", "the ciphertext is invalid."},
			{"short ciphertext", tenant, keyA, body("ciphertext", base64.StdEncoding.EncodeToString(raw[:40])), 400, "INVALID_ARGUMENT", "the ciphertext is invalid."},
			{"wrong data", tenant, keyA, body("additionalAuthenticatedData", "eA=="), 400, "INVALID_ARGUMENT", "the ciphertext is invalid."},
			{"wrong checksum", tenant, keyA, body("ciphertextCrc32c", "1"), 400, "INVALID_ARGUMENT", "The checksum in field ciphertext_crc32c did not match the data in field ciphertext."},
			{"wrong checksum of data", tenant, keyA, body("additionalAuthenticatedDataCrc32c", "1"), 400, "INVALID_ARGUMENT", "additional_authenticated_data_crc32c did not match"},
			{"malformed base64", tenant, keyA, body("ciphertext", "%"), 400, "INVALID_ARGUMENT", `Invalid value at 'ciphertext' (TYPE_BYTES), Base64 decoding failed for \"%\"`},
			{"malformed JSON", tenant, keyA, "{", 400, "INVALID_ARGUMENT", "Invalid JSON payload"},
			{"long data", tenant, keyA, body("additionalAuthenticatedData", strings.Repeat("AAAA", 21846)), 400, "INVALID_ARGUMENT", "Request field additional_authenticated_data must have length of at least 0, but not more than 65536. Provided value had length 65538."},
			{"unknown key", tenant, keyA + "-none", body(), 403, "PERMISSION_DENIED", denied + keyA + "-none'"},
			{"unknown project", tenant, strings.Replace(keyA, projectID, "no-such-project", 1), body(), 403, "PERMISSION_DENIED", denied},
		} {
			before := w.Journal().Last()
			a := w.do(t, managementRequest(t, tt.token, kmsAPI+tt.key+":decrypt", tt.body))
			var refused struct{ Error struct{ Status string } }
			must.Succeed(t, json.Unmarshal([]byte(a.body), &refused))
			if a.status != tt.status || refused.Error.Status != tt.code || !strings.Contains(a.body, tt.text) {
				t.Errorf("%s: HTTP %d %s", tt.name, a.status, a.body)
			}
			calls := w.Journal().Calls(journal.Filter{After: before, Service: gcp.ServiceKMS, Operation: "Decrypt"})
			if len(calls) != 1 || calls[0].Resource != tt.key || calls[0].Granted() != (tt.status == 200) {
				t.Errorf("%s: journal has %+v", tt.name, calls)
			}
		}
		// A binding on the key ring or the project gives the permission for all keys, also for
		// keys that do not exist: then the caller may learn this.
		for level, grant := range map[string]func(...gcp.Binding){
			"key ring": func(b ...gcp.Binding) { w.putKeys(t, b...) },
			"project":  func(b ...gcp.Binding) { must.Succeed(t, w.GCP().PutBindings(projectID, b)) },
		} {
			grant(bind(roleDecrypt, "serviceAccount:"+accountB)...)
			if a := w.do(t, managementRequest(t, other, kmsAPI+keyA+":decrypt", body())); a.status != http.StatusOK {
				t.Errorf("granted on the %s: HTTP %d %s", level, a.status, a.body)
			}
			if a := w.do(t, managementRequest(t, other, kmsAPI+keyA+":encrypt", `{}`)); a.status != http.StatusForbidden {
				t.Errorf("another permission, on the %s: HTTP %d %s", level, a.status, a.body)
			}
			if a := w.do(t, managementRequest(t, other, kmsAPI+keyA+"-none:decrypt", body())); a.status != http.StatusNotFound || !strings.Contains(a.body, "CryptoKey "+keyA+"-none not found.") {
				t.Errorf("unknown key, granted on the %s: HTTP %d %s", level, a.status, a.body)
			}
			grant()
			if a := w.do(t, managementRequest(t, other, kmsAPI+keyA+":decrypt", body())); a.status != http.StatusForbidden {
				t.Errorf("taken away from the %s: HTTP %d %s", level, a.status, a.body)
			}
		}
		must.Succeed(t, w.GCP().DeleteServiceAccount(projectID, accountA))
		must.Succeed(t, w.GCP().PutServiceAccount(projectID, gcp.ServiceAccount{Email: accountA, Bindings: bind("roles/iam.workloadIdentityUser", principalOf("tenant-a", "tenant-a-bucket-sa"))}))
		if a := w.do(t, managementRequest(t, w.accountToken(t, ksaA, accountA), kmsAPI+keyA+":decrypt", body())); a.status != http.StatusForbidden {
			t.Errorf("a later account of the same address: HTTP %d %s", a.status, a.body)
		}
	})
}

// TestKMSAnswers makes a key ring and a key, as an administrator does, changes the key's versions,
// and uses them. The test compares every answer, byte for byte, with golden files.
func TestKMSAnswers(t *testing.T) {
	const (
		rings   = kmsAPI + "projects/" + projectID + "/locations/global/keyRings"
		keys    = rings + "/made/cryptoKeys"
		key     = keys + "/sops"
		version = key + "/cryptoKeyVersions/"
		create  = "?cryptoKeyId=sops"
		crypt   = `{"purpose":"ENCRYPT_DECRYPT"}`
		grant   = `{"policy":{"bindings":[{"role":"` + roleCrypt + `","members":["serviceAccount:` + accountA + `"]}]}}`
	)
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		defer w.client.CloseIdleConnections()
		tenant, admin := w.accountToken(t, ksaA, accountA), w.administer(t, "roles/cloudkms.admin")
		files := rig.Golden{Dir: filepath.Join("testdata", "kms"), Update: *update, Mask: func(s string) string {
			return regexp.MustCompile(`("ciphertext(?:Crc32c)?": ")[^"]*`).ReplaceAllString(s, "$1…")
		}}
		var sealed string
		for _, step := range []struct{ name, token, verb, target, body string }{
			{"ring-no-token", "", "POST", rings + "?keyRingId=made", "{}"},
			{"ring-denied", tenant, "POST", rings + "?keyRingId=made", "{}"},
			{"ring-bad-id", admin, "POST", rings + "?keyRingId=a/b", "{}"},
			{"ring-missing", admin, "GET", rings + "/made", ""},
			{"ring", admin, "POST", rings + "?keyRingId=made", "{}"},
			{"ring-exists", admin, "POST", rings + "?keyRingId=made", "{}"},
			{"ring-get", admin, "GET", rings + "/made?alt=json&prettyPrint=false", ""},
			{"ring-policy-set", admin, "POST", rings + "/made:setIamPolicy", `{"policy":{"bindings":[{"role":"roles/cloudkms.admin","members":["serviceAccount:` + accountB + `"]}]}}`},
			{"ring-policy", admin, "GET", rings + "/made:getIamPolicy?options.requestedPolicyVersion=3", ""},
			{"ring-policy-denied", tenant, "GET", rings + "/made:getIamPolicy", ""},

			{"key-denied", tenant, "POST", keys + create, crypt},
			{"key-bad-id", admin, "POST", keys + "?cryptoKeyId=a.b", crypt},
			{"key-no-ring", admin, "POST", rings + "/none/cryptoKeys" + create, crypt},
			{"key-other-purpose", admin, "POST", keys + create, `{"purpose":"ASYMMETRIC_SIGN"}`},
			{"key-hardware", admin, "POST", keys + create, `{"purpose":1,"versionTemplate":{"protectionLevel":"HSM"}}`},
			{"key-field", admin, "POST", keys + create, `{"purpose":1,"rotationPeriod":"86400s"}`},
			{"key", admin, "POST", keys + create, crypt},
			{"key-exists", admin, "POST", keys + create, crypt},
			{"key-missing", admin, "GET", keys + "/none", ""},
			{"key-get-denied", tenant, "GET", key, ""},
			{"key-policy-role", admin, "POST", key + ":setIamPolicy", strings.Replace(grant, roleCrypt, "roles/storage.admin", 1)},
			{"key-policy-set", admin, "POST", key + ":setIamPolicy", grant},
			{"key-policy-version", admin, "GET", key + ":getIamPolicy?options.requestedPolicyVersion=2", ""},

			{"encrypt", tenant, "POST", key + ":encrypt?$alt=json%3Benum-encoding%3Dint", `{"plaintext":"c2VjcmV0","plaintextCrc32c":"` + strconv.FormatInt(sumOf("secret"), 10) + `"}`},
			{"encrypt-denied", admin, "POST", key + ":encrypt", `{"plaintext":"c2VjcmV0"}`},
			{"encrypt-long", tenant, "POST", key + ":encrypt", `{"plaintext":"` + strings.Repeat("AAAA", 21846) + `"}`},
			{"encrypt-checksum", tenant, "POST", key + ":encrypt", `{"plaintext":"c2VjcmV0","plaintextCrc32c":"1"}`},
			{"encrypt-field", tenant, "POST", key + ":encrypt", `{"text":"c2VjcmV0"}`},
			{"decrypt", tenant, "POST", key + ":decrypt", "SEALED"},
			{"decrypt-denied", admin, "POST", key + ":decrypt", "SEALED"},
			{"decrypt-no-token", "", "POST", key + ":decrypt", "SEALED"},
			{"decrypt-wrong-bytes", tenant, "POST", key + ":decrypt", `{"ciphertext":"c2VjcmV0"}`},

			{"version", admin, "POST", key + "/cryptoKeyVersions", "{}"},
			{"version-get", admin, "GET", version + "2", ""},
			{"version-missing", admin, "GET", version + "3", ""},
			{"version-missing-denied", tenant, "GET", version + "3", ""},
			{"primary-missing", admin, "POST", key + ":updatePrimaryVersion", `{"cryptoKeyVersionId":"3"}`},
			{"primary", admin, "POST", key + ":updatePrimaryVersion", `{"cryptoKeyVersionId":"2"}`},
			{"decrypt-old-version", tenant, "POST", key + ":decrypt", "SEALED"},
			{"encrypt-version", tenant, "POST", version + "1:encrypt", `{"plaintext":"c2VjcmV0"}`},
			{"disable-no-mask", admin, "PATCH", version + "1", `{"state":"DISABLED"}`},
			{"disable-denied", tenant, "PATCH", version + "1?updateMask=state", `{"state":"DISABLED"}`},
			{"disable", admin, "PATCH", version + "1?updateMask=state", `{"state":"DISABLED"}`},
			{"decrypt-disabled", tenant, "POST", key + ":decrypt", "SEALED"},
			{"primary-disabled", admin, "POST", key + ":updatePrimaryVersion", `{"cryptoKeyVersionId":"1"}`},
			{"enable", admin, "PATCH", version + "1?updateMask=state", `{"state":1}`},
			{"destroy-denied", tenant, "POST", version + "1:destroy", "{}"},
			{"destroy", admin, "POST", version + "1:destroy", "{}"},
			{"destroy-again", admin, "POST", version + "1:destroy", "{}"},
			{"enable-destroyed", admin, "PATCH", version + "1?updateMask=state", `{"state":1}`},
			{"decrypt-scheduled", tenant, "POST", key + ":decrypt", "SEALED"},
			{"30-days-later", "", "", "", ""},
			{"decrypt-destroyed", "NEW", "POST", key + ":decrypt", "SEALED"},
			{"not-found", tenant, "POST", key + ":sign", "{}"},
		} {
			if step.verb == "" {
				time.Sleep(30 * 24 * time.Hour)
				continue
			}
			body := strings.Replace(step.body, "SEALED", `{"ciphertext":"`+sealed+`"}`, 1)
			if step.token == "NEW" {
				step.token = w.accountToken(t, ksaA, accountA)
			}
			r := rig.NewRequest(t, step.verb, step.target, "application/json", body)
			if step.token != "" {
				r.Header.Set("Authorization", "Bearer "+step.token)
			}
			res, err := w.client.Do(r)
			must.Succeed(t, err)
			files.Answer(t, step.name, res)
			if step.name == "encrypt" {
				sealed = w.seal(t, tenant, "projects/"+projectID+"/locations/global/keyRings/made/cryptoKeys/sops", "secret", "")
			}
		}
		// The project whose quota a call uses.
		must.Succeed(t, w.GCP().PutKeyRing(projectID, gcp.KeyRing{Location: "global", Name: "other", Keys: []gcp.CryptoKey{{Name: "k", Bindings: bind(roleCrypt, "serviceAccount:"+accountA)}}}))
		use := func(project string) *http.Request {
			r := managementRequest(t, w.accountToken(t, ksaA, accountA), rings+"/other/cryptoKeys/k:encrypt", `{"plaintext":"c2VjcmV0"}`)
			r.Header.Set("X-Goog-User-Project", project)
			return r
		}
		res, err := w.client.Do(use(projectID))
		must.Succeed(t, err)
		files.Answer(t, "user-project-denied", res)
		must.Succeed(t, w.GCP().PutBindings(projectID, bind("roles/serviceusage.serviceUsageConsumer", "serviceAccount:"+accountA)))
		for project, want := range map[string]int{projectID: 200, projectNumber: 200, scopedProject: 403, "no-such-project": 403} {
			if a := w.do(t, use(project)); a.status != want {
				t.Errorf("quota of %s: HTTP %d %s", project, a.status, a.body)
			}
		}
		files.Complete(t)
	})
}

// kmsClient returns Google's own REST client, as SOPS uses it.
func kmsClient(t *testing.T, w *world, token string) *kms.KeyManagementClient {
	t.Helper()
	transport := &oauth2.Transport{Source: oauth2.StaticTokenSource(&oauth2.Token{AccessToken: token}), Base: w.client.Transport}
	client, err := kms.NewKeyManagementRESTClient(t.Context(), option.WithHTTPClient(&http.Client{Transport: transport, Timeout: 30 * time.Second}))
	must.Succeed(t, err)
	t.Cleanup(func() { _ = client.Close() })
	return client
}

// TestKMSClient makes, rotates and destroys a key with Google's own client, and counts its calls.
func TestKMSClient(t *testing.T) {
	w := newWorld(t)
	ctx, admin := t.Context(), kmsClient(t, w, w.administer(t, "roles/cloudkms.admin"))
	user := kmsClient(t, w, w.accountToken(t, ksaA, accountA))
	ring, err := admin.CreateKeyRing(ctx, &kmspb.CreateKeyRingRequest{Parent: "projects/" + projectID + "/locations/global", KeyRingId: "made"})
	must.Succeed(t, err)
	key, err := admin.CreateCryptoKey(ctx, &kmspb.CreateCryptoKeyRequest{Parent: ring.GetName(), CryptoKeyId: "sops", CryptoKey: &kmspb.CryptoKey{
		Purpose: kmspb.CryptoKey_ENCRYPT_DECRYPT, VersionTemplate: &kmspb.CryptoKeyVersionTemplate{Algorithm: kmspb.CryptoKeyVersion_GOOGLE_SYMMETRIC_ENCRYPTION},
	}})
	must.Succeed(t, err)
	if key.GetPurpose() != kmspb.CryptoKey_ENCRYPT_DECRYPT || key.GetPrimary().GetState() != kmspb.CryptoKeyVersion_ENABLED || key.GetCreateTime() == nil {
		t.Errorf("%+v", key)
	}
	plain := []byte("secret")
	request := &kmspb.EncryptRequest{Name: key.GetName(), Plaintext: plain, PlaintextCrc32C: wrapperspb.Int64(sumOf("secret"))}
	if _, err := user.Encrypt(ctx, request); !refusedWith(err, 403, "useToEncrypt") {
		t.Errorf("before the binding: %v", err)
	}
	_, err = admin.SetIamPolicy(ctx, &iampb.SetIamPolicyRequest{Resource: key.GetName(), Policy: &iampb.Policy{
		Bindings: []*iampb.Binding{{Role: roleCrypt, Members: []string{"serviceAccount:" + accountA}}},
	}})
	must.Succeed(t, err)
	sealed, err := user.Encrypt(ctx, request)
	must.Succeed(t, err)
	if !sealed.GetVerifiedPlaintextCrc32C() || sealed.GetCiphertextCrc32C().GetValue() != sumOf(string(sealed.GetCiphertext())) || sealed.GetName() != key.GetName()+"/cryptoKeyVersions/1" {
		t.Errorf("%+v", sealed)
	}
	before := w.Journal().Last()
	decrypt := func() (*kmspb.DecryptResponse, error) {
		return user.Decrypt(ctx, &kmspb.DecryptRequest{
			Name: key.GetName(), Ciphertext: sealed.GetCiphertext(), CiphertextCrc32C: sealed.GetCiphertextCrc32C(),
		})
	}
	check := func(primary bool) {
		t.Helper()
		opened, err := decrypt()
		if err != nil || !bytes.Equal(opened.GetPlaintext(), plain) || opened.GetPlaintextCrc32C().GetValue() != sumOf("secret") || opened.GetUsedPrimary() != primary {
			t.Errorf("%+v %v", opened, err)
		}
	}
	check(true)
	second, err := admin.CreateCryptoKeyVersion(ctx, &kmspb.CreateCryptoKeyVersionRequest{Parent: key.GetName()})
	must.Succeed(t, err)
	_, err = admin.UpdateCryptoKeyPrimaryVersion(ctx, &kmspb.UpdateCryptoKeyPrimaryVersionRequest{Name: key.GetName(), CryptoKeyVersionId: "2"})
	must.Succeed(t, err)
	check(false)
	if again, err := user.Encrypt(ctx, request); err != nil || again.GetName() != second.GetName() {
		t.Errorf("%+v %v", again, err)
	}
	setState := func(state kmspb.CryptoKeyVersion_CryptoKeyVersionState) {
		t.Helper()
		_, err := admin.UpdateCryptoKeyVersion(ctx, &kmspb.UpdateCryptoKeyVersionRequest{
			CryptoKeyVersion: &kmspb.CryptoKeyVersion{Name: sealed.GetName(), State: state}, UpdateMask: &fieldmaskpb.FieldMask{Paths: []string{"state"}},
		})
		must.Succeed(t, err)
	}
	setState(kmspb.CryptoKeyVersion_DISABLED)
	if _, err := decrypt(); !refusedWith(err, 400, sealed.GetName()+" is not enabled, current state is: DISABLED.") {
		t.Errorf("disabled: %v", err)
	}
	setState(kmspb.CryptoKeyVersion_ENABLED)
	check(false)
	destroyed, err := admin.DestroyCryptoKeyVersion(ctx, &kmspb.DestroyCryptoKeyVersionRequest{Name: sealed.GetName()})
	if err != nil || destroyed.GetState() != kmspb.CryptoKeyVersion_DESTROY_SCHEDULED || destroyed.GetDestroyTime() == nil {
		t.Errorf("%+v %v", destroyed, err)
	}
	if _, err := decrypt(); !refusedWith(err, 400, "current state is: DESTROY_SCHEDULED.") {
		t.Errorf("destroyed: %v", err)
	}
	granted := 0
	calls := w.Journal().Calls(journal.Filter{After: before, Service: gcp.ServiceKMS, Operation: "Decrypt"})
	for _, c := range calls {
		if c.Resource != key.GetName() || c.Principal != "serviceAccount:"+accountA {
			t.Errorf("journal has %+v", c)
		}
		if c.Granted() {
			granted++
		}
	}
	if len(calls) != 5 || granted != 3 {
		t.Errorf("%d of %d calls were granted", granted, len(calls))
	}
}

// refusedWith reports whether an error of Google's client has an HTTP status and a text.
func refusedWith(err error, status int, text string) bool {
	var refused *apierror.APIError
	return errors.As(err, &refused) && refused.HTTPCode() == status && strings.Contains(refused.Error(), text)
}

// TestKMSUniverse: another universe has its own host, keys and tokens.
func TestKMSUniverse(t *testing.T) {
	w := newWorld(t)
	w.putKeys(t)
	must.Succeed(t, w.GCP().AddProject(gcp.Project{
		ID: "sovereign-project", Number: "42", UniverseDomain: "apis-sovereign.example",
		KeyRings: []gcp.KeyRing{{Location: "u-here-east1", Name: "ring", Keys: []gcp.CryptoKey{{Name: "key", Bindings: bind(roleCrypt, "allUsers")}}}},
	}))
	const target = "https://cloudkms.apis-sovereign.example/v1/projects/sovereign-project/locations/u-here-east1/keyRings/ring/cryptoKeys/key:encrypt"
	if a := w.do(t, managementRequest(t, w.accountToken(t, ksaA, accountA), target, `{}`)); a.status != http.StatusUnauthorized {
		t.Errorf("a token of another universe: HTTP %d %s", a.status, a.body)
	}
	elsewhere := strings.Replace(target, "cloudkms.apis-sovereign.example", "cloudkms.googleapis.com", 1)
	if a := w.do(t, managementRequest(t, w.accountToken(t, ksaA, accountA), elsewhere, `{}`)); a.status != http.StatusForbidden {
		t.Errorf("a key of another universe: HTTP %d %s", a.status, a.body)
	}
}
