package kustomization

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lanyard-dev/lanyard/api/meta"
	"github.com/lanyard-dev/lanyard/api/toolkit/v1alpha1"
	"github.com/lanyard-dev/lanyard/auth"
	"github.com/lanyard-dev/lanyard/auth/spec"
	"github.com/lanyard-dev/lanyard/internal/controller/controllertest"
	"github.com/lanyard-dev/lanyard/internal/encryptedfile/masterkey"
	"github.com/lanyard-dev/lanyard/internal/keyservice"
	"github.com/lanyard-dev/lanyard/internal/kustomize"
	"github.com/lanyard-dev/lanyard/internal/must"
)

// decrypting returns a kind that decrypts, with the accounts of the tenants.
func decrypting(t *testing.T) (*kind, *controllertest.Accounts) {
	t.Helper()
	k := newKind(t, source())
	accounts := &controllertest.Accounts{}
	k.Decryption = Decryption{Service: &keyservice.Service{}, Rules: spec.Rules{Providers: []string{"aws", "azure", "gcp"}}, Accounts: accounts}
	return k, accounts
}

// TestDecideDecryption checks which account decrypts, and what a change of the account changes.
func TestDecideDecryption(t *testing.T) {
	o := kustomization()
	o.Spec.Decryption = &v1alpha1.Decryption{Provider: "sops", ServiceAccountName: "kms"}
	k, accounts := decrypting(t)
	accounts.Put(t, "team-a", "kms", "1", map[string]string{"role": "a"})
	hashOf := func() hash {
		t.Helper()
		p, err := k.Decide(t.Context(), o)
		must.Succeed(t, err)
		h, err := k.Records.hash(p, "", nil)
		must.Succeed(t, err)
		return h
	}
	first := hashOf()
	if hashOf() != first {
		t.Error("the hash changes without a change")
	}
	accounts.Put(t, "team-a", "kms", "1", map[string]string{"role": "b"})
	second := hashOf()
	if second == first {
		t.Error("the hash does not have the account's annotations")
	}
	o.Spec.Decryption.ServiceAccountName = ""
	if hashOf() == second {
		t.Error("the hash does not have the account's name")
	}
	if account := k.Decryption.account(o); !account.IsZero() {
		t.Errorf("without a default, %s decrypts", account)
	}
	k.Decryption.Rules.DefaultServiceAccount = "default-kms"
	if account := k.Decryption.account(o); account.String() != "system:serviceaccount:team-a:default-kms" {
		t.Errorf("the default account is %s", account)
	}
}

// TestDecideRefusesDecryption checks the fields of spec.decryption.
func TestDecideRefusesDecryption(t *testing.T) {
	for name, c := range map[string]struct {
		field v1alpha1.Decryption
		says  string
	}{
		"another provider": {v1alpha1.Decryption{Provider: "gpg"}, "spec.decryption.provider"},
		"no name":          {v1alpha1.Decryption{Provider: "sops", ServiceAccountName: "team-b:kms"}, "spec.decryption.serviceAccountName"},
		"no Secret's name": {v1alpha1.Decryption{Provider: "sops", SecretRef: &meta.LocalReference{Name: "../x"}}, "spec.decryption.secretRef"},
	} {
		o := kustomization()
		o.Spec.Decryption = &c.field
		k, _ := decrypting(t)
		if _, err := k.Decide(t.Context(), o); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v, want %s", name, err, c.says)
		}
	}
}

// TestNobodyDecrypts checks that nobody asks a cloud if no account is named, and that the message says
// what to do.
func TestNobodyDecrypts(t *testing.T) {
	o := kustomization()
	o.Spec.Decryption = &v1alpha1.Decryption{Provider: "sops"}
	k, _ := decrypting(t)
	files := []masterkey.File{{Name: "db.yaml", Groups: []masterkey.Group{{{AWS: &masterkey.AWS{ARN: "arn:aws:kms:eu-west-1:123456789123:key/x"}, Encrypted: "AQ=="}}}}}
	_, err := k.Decryption.dataKeys(t.Context(), k.Live, o, files)
	failure, known := k.Explain(err)
	if !known || failure.Reason != meta.ReasonDecryptionFailed || failure.Stalled || !failure.AtInterval || !strings.Contains(err.Error(), "set spec.decryption.serviceAccountName") {
		t.Errorf("%+v: %v", failure, err)
	}
	if auth.CodeOf(err) != "" {
		t.Errorf("the reason would be the code %s", auth.CodeOf(err))
	}
}

// TestDecryptionSecret checks Secrets that cannot be used.
func TestDecryptionSecret(t *testing.T) {
	o := kustomization()
	o.Spec.Decryption = &v1alpha1.Decryption{Provider: "sops", SecretRef: &meta.LocalReference{Name: "keys"}}
	for name, c := range map[string]struct {
		data map[string][]byte
		says string
	}{
		"no Secret": {nil, "does not exist"},
		"no key":    {map[string][]byte{"a": []byte("x")}, ".agekey"},
		"a plugin":  {map[string][]byte{"a.agekey": []byte("AGE-PLUGIN-X-1QQ")}, "plugin"},
	} {
		reader := kube(t)
		if c.data != nil {
			reader = kube(t, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: "keys"}, Data: c.data})
		}
		_, err := readKeys(t.Context(), reader, o)
		if err == nil || !strings.Contains(err.Error(), "spec.decryption.secretRef: Secret keys") || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestUnencrypted checks the warning about Secrets that are not encrypted.
func TestUnencrypted(t *testing.T) {
	if w := unencrypted(kustomize.Result{}); w.Reason != "" {
		t.Errorf("no Secret: %+v", w)
	}
	w := unencrypted(kustomize.Result{Unencrypted: []string{"Secret a", "Secret b"}, UnencryptedCount: 5})
	if w.Reason != meta.ReasonUnencryptedSecrets || !strings.HasPrefix(w.Note, "Secret a, Secret b and 3 more: ") {
		t.Errorf("five Secrets: %+v", w)
	}
}
