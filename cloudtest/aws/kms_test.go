package aws_test

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/sha512"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/kms"
	kmstypes "github.com/aws/aws-sdk-go-v2/service/kms/types"
	"github.com/google/go-cmp/cmp"

	"github.com/lanyard-dev/lanyard/cloudtest/aws"
	"github.com/lanyard-dev/lanyard/cloudtest/fault"
	"github.com/lanyard-dev/lanyard/cloudtest/internal/must"
	"github.com/lanyard-dev/lanyard/cloudtest/internal/rig"
	"github.com/lanyard-dev/lanyard/cloudtest/journal"
)

func kmsClient(transport http.RoundTripper, creds awssdk.CredentialsProvider) *kms.Client {
	return kms.New(kms.Options{Region: region, Credentials: creds, HTTPClient: &http.Client{Transport: transport}, Retryer: awssdk.NopRetryer{}})
}

// newKey makes a key with the credentials of a user who may do everything, and returns its ARN.
func newKey(t *testing.T, w *world, input kms.CreateKeyInput) string {
	t.Helper()
	out, err := kmsClient(w.Transport(), pusher()).CreateKey(t.Context(), &input)
	must.Succeed(t, err)
	return *out.KeyMetadata.Arn
}

func signingKey(spec kmstypes.KeySpec, tag string) kms.CreateKeyInput {
	return kms.CreateKeyInput{
		KeySpec: spec, KeyUsage: kmstypes.KeyUsageTypeSignVerify, Tags: []kmstypes.Tag{{TagKey: awssdk.String("owner"), TagValue: &tag}},
	}
}

func digest(message string) []byte {
	sum := sha256.Sum256([]byte(message))
	return sum[:]
}

// roleWith makes a role with one permission policy, and assumes it as tenant A's ServiceAccount.
func roleWith(t *testing.T, w *world, statement string) awssdk.CredentialsProvider {
	t.Helper()
	policy := json.RawMessage(`{"Version":"2012-10-17","Statement":[` + statement + `]}`)
	role := aws.Role{Name: "keys", TrustPolicy: rig.TrustPolicy(subjectA), Policies: map[string]json.RawMessage{"keys": policy}}
	must.Succeed(t, w.AWS().PutRole(account, role))
	return w.assume(t, "arn:aws:iam::"+account+":role/keys", subjectA)
}

// TestKMSSigns signs with each kind of key, and verifies with the public key and with KMS.
func TestKMSSigns(t *testing.T) {
	w := newWorld(t)
	client := kmsClient(w.Transport(), pusher())
	short, long := digest("message"), sha512.Sum384([]byte("message"))
	for _, tt := range []struct {
		spec      kmstypes.KeySpec
		algorithm kmstypes.SigningAlgorithmSpec
		digest    []byte
	}{
		{kmstypes.KeySpecRsa2048, kmstypes.SigningAlgorithmSpecRsassaPkcs1V15Sha256, short},
		{kmstypes.KeySpecRsa2048, kmstypes.SigningAlgorithmSpecRsassaPssSha384, long[:]},
		{kmstypes.KeySpecEccNistP256, kmstypes.SigningAlgorithmSpecEcdsaSha256, short},
		{kmstypes.KeySpecEccNistP384, kmstypes.SigningAlgorithmSpecEcdsaSha384, long[:]},
	} {
		arn := newKey(t, w, signingKey(tt.spec, "a"))
		public, err := client.GetPublicKey(t.Context(), &kms.GetPublicKeyInput{KeyId: &arn})
		must.Succeed(t, err)
		parsed, err := x509.ParsePKIXPublicKey(public.PublicKey)
		if err != nil || public.KeySpec != tt.spec || public.KeyUsage != kmstypes.KeyUsageTypeSignVerify {
			t.Fatalf("%s: %v, %+v", tt.spec, err, public)
		}
		out, err := client.Sign(t.Context(), &kms.SignInput{KeyId: &arn, Message: tt.digest, MessageType: kmstypes.MessageTypeDigest, SigningAlgorithm: tt.algorithm})
		must.Succeed(t, err)
		valid := false
		switch key := parsed.(type) {
		case *ecdsa.PublicKey:
			valid = ecdsa.VerifyASN1(key, tt.digest, out.Signature)
		case *rsa.PublicKey:
			valid = rsa.VerifyPKCS1v15(key, crypto.SHA256, tt.digest, out.Signature) == nil || rsa.VerifyPSS(key, crypto.SHA384, tt.digest, out.Signature, nil) == nil
		}
		if !valid {
			t.Errorf("%s: the signature does not verify", tt.algorithm)
		}
		verify := func(message string) error {
			_, err := client.Verify(t.Context(), &kms.VerifyInput{KeyId: &arn, Message: []byte(message), Signature: out.Signature, SigningAlgorithm: tt.algorithm})
			return err
		}
		if err := verify("message"); err != nil {
			t.Errorf("%s: %v", tt.algorithm, err)
		}
		if got := outcomeOf(verify("another")); got != (outcome{"KMSInvalidSignatureException", 400}) {
			t.Errorf("%s: another message: %+v", tt.algorithm, got)
		}
	}
}

// TestKMSEncrypts: a ciphertext can be decrypted only with the same key and the same context.
func TestKMSEncrypts(t *testing.T) {
	w := newWorld(t)
	client := kmsClient(w.Transport(), pusher())
	key, other := newKey(t, w, kms.CreateKeyInput{}), newKey(t, w, kms.CreateKeyInput{})
	context := map[string]string{"tenant": "a"}
	sealed, err := client.Encrypt(t.Context(), &kms.EncryptInput{KeyId: &key, Plaintext: []byte("secret"), EncryptionContext: context})
	must.Succeed(t, err)
	bare, err := client.Encrypt(t.Context(), &kms.EncryptInput{KeyId: &key, Plaintext: []byte("secret")})
	must.Succeed(t, err)
	for name, tt := range map[string]struct {
		input kms.DecryptInput
		want  string // KMS's error code; empty if decrypted
	}{
		"key unnamed":     {kms.DecryptInput{CiphertextBlob: sealed.CiphertextBlob, EncryptionContext: context}, ""},
		"key named":       {kms.DecryptInput{CiphertextBlob: sealed.CiphertextBlob, EncryptionContext: context, KeyId: &key}, ""},
		"another key":     {kms.DecryptInput{CiphertextBlob: sealed.CiphertextBlob, EncryptionContext: context, KeyId: &other}, "IncorrectKeyException"},
		"another context": {kms.DecryptInput{CiphertextBlob: sealed.CiphertextBlob}, "InvalidCiphertextException"},
		"not a blob":      {kms.DecryptInput{CiphertextBlob: []byte("x")}, "InvalidCiphertextException"},
		"empty context":   {kms.DecryptInput{CiphertextBlob: bare.CiphertextBlob, EncryptionContext: map[string]string{}}, ""},
	} {
		out, err := client.Decrypt(t.Context(), &tt.input)
		if got := outcomeOf(err).Code; got != tt.want || (err == nil && string(out.Plaintext) != "secret") {
			t.Errorf("%s: %q, want %q", name, got, tt.want)
		}
	}
}

// TestKMSRights: the key's policy and the caller's policies decide about each call.
func TestKMSRights(t *testing.T) {
	w := newWorld(t)
	ours, theirs := newKey(t, w, signingKey(kmstypes.KeySpecEccNistP256, "a")), newKey(t, w, signingKey(kmstypes.KeySpecEccNistP256, "b"))
	closed := signingKey(kmstypes.KeySpecEccNistP256, "a")
	closed.Policy = awssdk.String(`{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Principal":{"AWS":"arn:aws:iam::` + account + `:user/pusher"},"Action":"kms:*","Resource":"*"}]}`)
	pushersOwn := newKey(t, w, closed)
	named := signingKey(kmstypes.KeySpecEccNistP256, "b")
	named.Policy = awssdk.String(`{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Principal":{"AWS":"arn:aws:iam::` + account + `:role/keys"},"Action":"kms:Sign","Resource":"*"}]}`)
	roles := newKey(t, w, named)

	creds := roleWith(t, w, `{"Effect":"Allow","Action":["kms:Sign","kms:GetPublicKey"],"Resource":"*","Condition":{"StringEquals":{"aws:ResourceTag/owner":"a"}}},
		{"Effect":"Allow","Action":["kms:CreateKey","kms:TagResource"],"Resource":"*","Condition":{"StringEquals":{"aws:RequestTag/owner":"a","kms:KeyUsage":"SIGN_VERIFY"}}}`)
	client := kmsClient(w.Transport(), creds)
	sign := func(arn string) error {
		_, err := client.Sign(t.Context(), &kms.SignInput{
			KeyId: &arn, Message: digest("m"), MessageType: kmstypes.MessageTypeDigest, SigningAlgorithm: kmstypes.SigningAlgorithmSpecEcdsaSha256,
		})
		return err
	}
	create := func(input kms.CreateKeyInput) error {
		_, err := client.CreateKey(t.Context(), &input)
		return err
	}
	denied := outcome{"AccessDeniedException", 400}
	for name, tt := range map[string]struct {
		err  error
		want outcome
	}{
		"a key with the tag":                   {sign(ours), outcome{}},
		"its ID alone":                         {sign(ours[strings.LastIndex(ours, "/")+1:]), outcome{}},
		"a key with another tag":               {sign(theirs), denied},
		"a key whose policy knows a user only": {sign(pushersOwn), denied},
		"a key whose policy names the role":    {sign(roles), outcome{}},
		"a key of no account":                  {sign("arn:aws:kms:" + region + ":" + otherAccount + ":key/x"), denied},
		"no key":                               {sign("arn:aws:kms:" + region + ":" + account + ":key/x"), outcome{"NotFoundException", 400}},
		"a key of another region":              {sign(strings.Replace(ours, region, "us-east-1", 1)), outcome{"NotFoundException", 400}},
		"not a key's ARN":                      {sign("arn:aws:s3:::bucket"), outcome{"InvalidArnException", 400}},
		"an alias":                             {sign("alias/x"), outcome{"NotFoundException", 400}},
		"a new key with the tag":               {create(signingKey(kmstypes.KeySpecEccNistP256, "a")), outcome{}},
		"a new key with another tag":           {create(signingKey(kmstypes.KeySpecEccNistP256, "b")), denied},
		"a new key of another usage":           {create(kms.CreateKeyInput{}), denied},
		"an operation that is not here":        {second(kmsClient(w.Transport(), awssdk.AnonymousCredentials{}).ListKeys(t.Context(), nil)), outcome{"UnknownOperationException", 400}},
		"a right that the role does not have":  {second(client.ScheduleKeyDeletion(t.Context(), &kms.ScheduleKeyDeletionInput{KeyId: &ours})), denied},
	} {
		if got := outcomeOf(tt.err); got != tt.want {
			t.Errorf("%s: %+v, want %+v", name, got, tt.want)
		}
	}
	if err := sign(theirs); !strings.Contains(err.Error(), "is not authorized to perform: kms:Sign on resource: "+theirs+" because no identity-based policy allows the kms:Sign action") {
		t.Errorf("AWS says it otherwise: %v", err)
	}
	last := w.Journal().Calls(journal.Filter{Service: aws.ServiceKMS, Operation: "Sign"})
	if c := last[len(last)-1]; c.Granted() || c.Resource != theirs || !strings.HasSuffix(c.Principal, ":assumed-role/keys/test") || !strings.Contains(c.Reason, "aws:ResourceTag/owner") && !strings.Contains(c.Reason, "aws:resourcetag/owner") {
		t.Errorf("the journal says %+v", c)
	}
}

// TestKMSRefuses: a call that KMS refuses gets KMS's own code.
func TestKMSRefuses(t *testing.T) {
	w := newWorld(t)
	client := kmsClient(w.Transport(), pusher())
	rsaKey, symmetric := newKey(t, w, signingKey(kmstypes.KeySpecRsa2048, "a")), newKey(t, w, kms.CreateKeyInput{})
	sign := func(arn string, change func(*kms.SignInput)) error {
		input := &kms.SignInput{KeyId: &arn, Message: digest("m"), MessageType: kmstypes.MessageTypeDigest, SigningAlgorithm: kmstypes.SigningAlgorithmSpecRsassaPkcs1V15Sha256}
		change(input)
		return second(client.Sign(t.Context(), input))
	}
	create := func(input kms.CreateKeyInput) error { return second(client.CreateKey(t.Context(), &input)) }
	for name, tt := range map[string]struct {
		err  error
		want string
	}{
		"algorithm of another key": {sign(rsaKey, func(i *kms.SignInput) { i.SigningAlgorithm = kmstypes.SigningAlgorithmSpecEcdsaSha256 }), "InvalidKeyUsageException"},
		"key for encryption":       {sign(symmetric, func(*kms.SignInput) {}), "InvalidKeyUsageException"},
		"short digest":             {sign(rsaKey, func(i *kms.SignInput) { i.Message = []byte("m") }), "ValidationException"},
		"long message":             {sign(rsaKey, func(i *kms.SignInput) { i.Message, i.MessageType = make([]byte, 4097), kmstypes.MessageTypeRaw }), "ValidationException"},
		"unknown message type":     {sign(rsaKey, func(i *kms.SignInput) { i.MessageType = "X" }), "ValidationException"},
		"public half of a symmetric key": {
			second(client.GetPublicKey(t.Context(), &kms.GetPublicKeyInput{KeyId: &symmetric})), "UnsupportedOperationException",
		},
		"encryption with a key for signatures": {
			second(client.Encrypt(t.Context(), &kms.EncryptInput{KeyId: &rsaKey, Plaintext: []byte("x")})), "InvalidKeyUsageException",
		},
		"spec that is unknown":        {create(kms.CreateKeyInput{KeySpec: "X"}), "UnsupportedOperationException"},
		"spec that fits not the use":  {create(kms.CreateKeyInput{KeySpec: kmstypes.KeySpecRsa2048}), "ValidationException"},
		"key of several regions":      {create(kms.CreateKeyInput{MultiRegion: awssdk.Bool(true)}), "UnsupportedOperationException"},
		"policy of another service":   {create(kms.CreateKeyInput{Policy: awssdk.String(`{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Principal":"*","Action":"s3:*","Resource":"*"}]}`)}), "MalformedPolicyDocumentException"},
		"policy of another partition": {create(kms.CreateKeyInput{Policy: awssdk.String(`{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Principal":{"AWS":"arn:aws-cn:iam::123456789123:root"},"Action":"kms:*","Resource":"*"}]}`)}), "MalformedPolicyDocumentException"},
		"reserved tag":                {create(kms.CreateKeyInput{Tags: []kmstypes.Tag{{TagKey: awssdk.String("aws:x"), TagValue: awssdk.String("x")}}}), "TagException"},
		"deletion tomorrow": {
			second(client.ScheduleKeyDeletion(t.Context(), &kms.ScheduleKeyDeletionInput{KeyId: &rsaKey, PendingWindowInDays: awssdk.Int32(1)})), "ValidationException",
		},
	} {
		if got := outcomeOf(tt.err); got != (outcome{tt.want, 400}) {
			t.Errorf("%s: %+v, want %s", name, got, tt.want)
		}
	}
}

// TestKMSKeyStates checks that a key works while it is enabled, and is refused while it is disabled
// or pending deletion.
func TestKMSKeyStates(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		client := kmsClient(w.Transport(), pusher())
		arn := newKey(t, w, signingKey(kmstypes.KeySpecEccNistP256, "a"))
		use := func() string {
			return outcomeOf(second(client.GetPublicKey(t.Context(), &kms.GetPublicKeyInput{KeyId: &arn}))).Code
		}
		var got []string
		step := func(err error) { got = append(got, outcomeOf(err).Code+" "+use()) }
		step(nil)
		step(second(client.DisableKey(t.Context(), &kms.DisableKeyInput{KeyId: &arn})))
		step(second(client.EnableKey(t.Context(), &kms.EnableKeyInput{KeyId: &arn})))
		step(second(client.ScheduleKeyDeletion(t.Context(), &kms.ScheduleKeyDeletionInput{KeyId: &arn, PendingWindowInDays: awssdk.Int32(7)})))
		step(second(client.EnableKey(t.Context(), &kms.EnableKeyInput{KeyId: &arn})))
		out, err := client.DescribeKey(t.Context(), &kms.DescribeKeyInput{KeyId: &arn})
		if err != nil || out.KeyMetadata.KeyState != kmstypes.KeyStatePendingDeletion || out.KeyMetadata.DeletionDate == nil {
			t.Errorf("pending deletion: %v, %+v", err, out)
		}
		tags, err := client.ListResourceTags(t.Context(), &kms.ListResourceTagsInput{KeyId: &arn})
		if err != nil || len(tags.Tags) != 1 || *tags.Tags[0].TagKey != "owner" {
			t.Errorf("tags: %v, %+v", err, tags)
		}
		time.Sleep(7 * 24 * time.Hour)
		step(nil)
		want := []string{" ", " DisabledException", " ", " KMSInvalidStateException", "KMSInvalidStateException KMSInvalidStateException", " NotFoundException"}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	})
}

// TestKMSFaults checks how calls fail with injected faults. A refusal must have KMS's own error
// code.
func TestKMSFaults(t *testing.T) {
	w := newWorld(t)
	arn := newKey(t, w, kms.CreateKeyInput{})
	call := func() error {
		return second(kmsClient(w.Transport(), pusher()).DescribeKey(t.Context(), &kms.DescribeKeyInput{KeyId: &arn}))
	}
	for _, tt := range []struct {
		kind fault.Kind
		want outcome
	}{
		{fault.InternalFailure, outcome{"KMSInternalException", 500}},
		{fault.Unavailable, outcome{"DependencyTimeoutException", 503}},
		{fault.Throttle, outcome{"ThrottlingException", 400}},
	} {
		if _, err := w.Faults().Add(fault.Fault{Kind: tt.kind, Service: aws.ServiceKMS, Count: 1}); err != nil {
			t.Fatal(err)
		}
		if got := outcomeOf(call()); got != tt.want {
			t.Errorf("%s: %+v, want %+v", tt.kind, got, tt.want)
		}
	}
	if err := call(); err != nil {
		t.Errorf("after the faults: %v", err)
	}
	if _, err := w.Faults().Add(fault.Fault{Kind: fault.Malformed, Service: aws.ServiceKMS, Count: 1}); err != nil {
		t.Fatal(err)
	}
	if err := call(); err == nil || !strings.Contains(err.Error(), "deserialization") {
		t.Errorf("malformed: %v", err)
	}
	var notFound *kmstypes.NotFoundException
	arn += "x"
	if err := call(); !errors.As(err, &notFound) || !strings.Contains(notFound.ErrorMessage(), fmt.Sprintf("Key '%s' does not exist", arn)) {
		t.Errorf("no such key: %v", err)
	}
}
