package kustomization

import (
	"context"
	"errors"
	"strings"
	"testing"
	"unicode/utf8"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lanyard-dev/lanyard/api/meta"
	"github.com/lanyard-dev/lanyard/api/toolkit/v1alpha1"
	"github.com/lanyard-dev/lanyard/auth"
	"github.com/lanyard-dev/lanyard/auth/grant"
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
	if account := k.Decryption.subject(o); !account.IsZero() {
		t.Errorf("without a default, %s decrypts", account)
	}
	k.Decryption.Rules.DefaultServiceAccount = "default-kms"
	if account := k.Decryption.subject(o); account.String() != "system:serviceaccount:team-a:default-kms" {
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
		"two identities":   {v1alpha1.Decryption{Provider: "sops", ServiceAccountName: "kms", WorkloadIdentityName: "kms"}, "spec.decryption.workloadIdentityName"},
		"no token server":  {v1alpha1.Decryption{Provider: "sops", WorkloadIdentityName: "kms"}, "--keyring-namespace"},
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
	_, _, err := k.Decryption.dataKeys(t.Context(), k.Live, o, files)
	failure, known := k.Explain(err)
	if !known || failure.Reason != meta.ReasonDecryptionFailed || failure.Stalled || !failure.AtInterval || !strings.Contains(err.Error(), "set serviceAccountName, workloadIdentityName or identityRef in spec.decryption") {
		t.Errorf("%+v: %v", failure, err)
	}
	if auth.CodeOf(err) != "" {
		t.Errorf("the reason would be the code %s", auth.CodeOf(err))
	}
}

// TestWhoDecrypts checks which subject asks at a cloud, and which errors say why nobody may.
func TestWhoDecrypts(t *testing.T) {
	wi := v1alpha1.Decryption{Provider: "sops", WorkloadIdentityName: "kms"}
	aws := v1alpha1.Decryption{Provider: "sops", IdentityRef: &meta.AWSIdentityReference{Kind: "AWSClusterRoleIdentity", Name: "kms"}}
	none := v1alpha1.Decryption{Provider: "sops"}
	lent := grant.Namespaces{List: []string{"team-a"}}
	admit := func(context.Context, string, auth.Subject) error { return nil }
	refuse := func(context.Context, string, auth.Subject) error {
		return &auth.Error{Stage: auth.StageSubject, Code: auth.CodeNotGranted, Fix: "ask", Err: errors.New("the identity is not lent")}
	}
	for name, c := range map[string]struct {
		field         v1alpha1.Decryption
		rules         spec.Rules
		cloud         string
		subject, says string
	}{
		"a WorkloadIdentity":       {wi, spec.Rules{TokenServer: true}, "azure", "lanyard.dev:workloadidentity:team-a:kms", ""},
		"no token server":          {wi, spec.Rules{}, "azure", "", "--keyring-namespace"},
		"an AWS identity":          {aws, spec.Rules{AWSIdentities: admit}, "aws", "lanyard.dev:awsclusterroleidentity:kms", ""},
		"an AWS identity at Azure": {aws, spec.Rules{AWSIdentities: admit}, "azure", "", "spec.decryption.identityRef"},
		"an identity of others":    {aws, spec.Rules{AWSIdentities: refuse}, "aws", "", "the identity is not lent"},
		"no AWS identities":        {aws, spec.Rules{}, "aws", "", "--aws-identities"},
		"nobody":                   {none, spec.Rules{}, "gcp", "", "nobody asks this cloud"},
		"the controller":           {none, spec.Rules{ControllerNamespaces: lent}, "gcp", "controller", ""},
		"another namespace's":      {none, spec.Rules{ControllerNamespaces: grant.Namespaces{List: []string{"team-b"}}}, "gcp", "", "nobody asks this cloud"},
		"both grants at AWS":       {none, spec.Rules{ControllerNamespaces: lent, AWSIdentities: admit}, "aws", "controller", ""},
		"one grant at AWS":         {none, spec.Rules{ControllerNamespaces: lent, AWSIdentities: refuse}, "aws", "", "the identity is not lent"},
		"one grant, not at AWS":    {none, spec.Rules{ControllerNamespaces: lent, AWSIdentities: refuse}, "gcp", "controller", ""},
		"a default goes first":     {none, spec.Rules{ControllerNamespaces: lent, DefaultServiceAccount: "kms"}, "gcp", "system:serviceaccount:team-a:kms", ""},
	} {
		o := kustomization()
		o.Spec.Decryption = &c.field
		k, _ := decrypting(t)
		c.rules.Providers = k.Decryption.Rules.Providers
		asked := ""
		k.Decryption.Rules, k.Decryption.AWSIdentities = c.rules, func(namespace string) auth.Accounts { asked = namespace; return &controllertest.Accounts{} }
		options, subject, err := k.Decryption.at(t.Context(), o, c.cloud)
		if asked != "" && asked != o.Namespace {
			t.Errorf("%s: the AWS identities of namespace %s are asked", name, asked)
		}
		switch {
		case c.says != "" && (err == nil || !strings.Contains(err.Error(), c.says) || options != nil):
			t.Errorf("%s: %v, want %s", name, err, c.says)
		case c.says == "" && (err != nil || subject != c.subject || len(options) == 0):
			t.Errorf("%s: %s asks, %v, want %s", name, subject, err, c.subject)
		}
	}
}

// TestLabelsAreReadOnce checks that a file with many keys does not make the program read the labels of
// the namespace for each key.
func TestLabelsAreReadOnce(t *testing.T) {
	o := kustomization()
	o.Spec.Decryption = &v1alpha1.Decryption{Provider: "sops"}
	k, _ := decrypting(t)
	reads := 0
	k.Decryption.Rules.ControllerNamespaces = grant.Namespaces{Selector: &grant.Selector{MatchLabels: map[string]string{"team": "a"}}}
	k.Decryption.Rules.NamespaceLabels = func(context.Context, string) (map[string]string, error) { reads++; return nil, nil }
	var group masterkey.Group
	for range 30 {
		group = append(group, masterkey.Key{AWS: &masterkey.AWS{ARN: "arn:aws:kms:eu-west-1:123456789123:key/x"}, Encrypted: "AQ=="})
	}
	_, _, err := k.Decryption.dataKeys(t.Context(), k.Live, o, []masterkey.File{{Name: "a.yaml", Groups: []masterkey.Group{group}}, {Name: "b.yaml", Groups: []masterkey.Group{group}}})
	if err == nil || !strings.Contains(err.Error(), "nobody asks this cloud") || reads != 1 {
		t.Errorf("%d reads: %v", reads, err)
	}
}

// TestDependsOnGrant checks that a Kustomization without a named identity depends on the
// AWSClusterControllerIdentity only where the controller's own identity may be lent.
func TestDependsOnGrant(t *testing.T) {
	o := kustomization()
	o.Spec.Decryption = &v1alpha1.Decryption{Provider: "sops"}
	for name, c := range map[string]struct {
		lent grant.Namespaces
		want bool
	}{
		"nobody":    {grant.Namespaces{}, false},
		"others":    {grant.Namespaces{List: []string{"team-b"}}, false},
		"this one":  {grant.Namespaces{List: []string{"team-a"}}, true},
		"by labels": {grant.Namespaces{Selector: &grant.Selector{MatchLabels: map[string]string{"team": "a"}}}, true},
	} {
		k, _ := decrypting(t)
		k.Decryption.Rules.ControllerNamespaces = c.lent
		k.Decryption.Rules.AWSIdentities = func(context.Context, string, auth.Subject) error { return nil }
		if got := k.Decryption.subject(o); got.IsZero() == c.want {
			t.Errorf("%s: it depends on %s", name, got)
		}
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

// TestDecryptionStatus checks that status.decryption names the files and keys, within its bounds.
func TestDecryptionStatus(t *testing.T) {
	if status := statusOf(nil); status != nil {
		t.Errorf("without a file: %+v", status)
	}
	var uses []keyservice.Use
	for i := range maxShownFiles + 2 {
		for range maxShownKeys + 1 {
			uses = append(uses, keyservice.Use{File: string(rune('a'+i)) + strings.Repeat("ä", maxShownName), Key: "AWS KMS key k", Subject: "s"})
		}
	}
	status := statusOf(uses)
	if len(status.Files) != maxShownFiles || status.OtherFiles != 2 {
		t.Fatalf("%d files and %d others", len(status.Files), status.OtherFiles)
	}
	for _, file := range status.Files {
		if len(file.Keys) != maxShownKeys || file.Keys[0] != (v1alpha1.DecryptionKey{Name: "AWS KMS key k", Subject: "s"}) ||
			len(file.Name) > maxShownName+len("…") || !utf8.ValidString(file.Name) {
			t.Errorf("%+v", file)
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
