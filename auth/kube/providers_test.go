package kube_test

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/lanyard-dev/lanyard/auth"
	"github.com/lanyard-dev/lanyard/auth/aws"
	"github.com/lanyard-dev/lanyard/auth/azure"
	"github.com/lanyard-dev/lanyard/auth/bearer"
	"github.com/lanyard-dev/lanyard/auth/gcp"
	"github.com/lanyard-dev/lanyard/auth/kube"
)

// TestDefaultAnnotationsAreTheProviders checks that DefaultAnnotations has exactly the annotations
// that the providers read.
func TestDefaultAnnotationsAreTheProviders(t *testing.T) {
	want := []string{
		aws.RoleAnnotation, aws.AssumeRoleAnnotation, azure.ClientAnnotation, azure.TenantAnnotation, gcp.ServiceAccountAnnotation,
		gcp.ImpersonateAnnotation, gcp.ProviderAnnotation, gcp.FluxProviderAnnotation, bearer.UsernameAnnotation,
	}
	if got := kube.DefaultAnnotations(); !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

// TestProviderConfigFieldsAreTheProviders checks the attributes of a WorkloadIdentity without
// annotations. It must have the attribute targetSystem.type, which names a provider. Its only other
// attributes must be the fields of providerConfig that this provider reads.
func TestProviderConfigFieldsAreTheProviders(t *testing.T) {
	fields := map[string][]string{
		"aws": {aws.RoleField, aws.AssumeRoleField}, "azure": {azure.ClientField, azure.TenantField}, "gcp": {gcp.ImpersonateField, gcp.ServiceAccountField, gcp.ProviderField},
		"registry": nil,
	}
	all := map[string]any{"apiVersion": "v1", "kind": "x", "other": "x"}
	for _, of := range fields {
		for _, name := range of {
			all[name] = "value"
		}
	}
	for target, want := range fields {
		want = slices.Sorted(slices.Values(append(want, bearer.TargetAttribute)))
		s := newIssuerServer(t)
		s.put(identityUID, 1, target, all)
		identities, _ := newIdentities(t, s)
		account, err := identities.Read(t.Context(), puller(t))
		if got := slices.Sorted(maps.Keys(account.Attributes)); err != nil || !slices.Equal(got, want) {
			t.Errorf("%s: %q, %v, want %q", target, got, err, want)
		}
	}
}

// TestIdentityOfAnotherCloud checks that a cloud's provider refuses a WorkloadIdentity for another
// cloud, even if its providerConfig has the fields of both clouds. The error names both fields that
// may be wrong: targetSystem.type of the WorkloadIdentity, and spec.provider of the object that
// uses it.
func TestIdentityOfAnotherCloud(t *testing.T) {
	served := map[string]auth.Provider{}
	var err error
	if served["aws"], err = aws.NewProvider(aws.Config{Region: "eu-west-1"}); err != nil {
		t.Fatal(err)
	}
	if served["azure"], err = azure.NewProvider(azure.Config{TenantID: "72f988bf-86f1-41af-91ab-2d7cd011db47"}); err != nil {
		t.Fatal(err)
	}
	if served["gcp"], err = gcp.NewProvider(gcp.Config{}); err != nil {
		t.Fatal(err)
	}
	config := map[string]any{
		aws.RoleField: roleA, azure.ClientField: "d6e4fc00-c5b2-4a72-9f84-6a92e3f06b08", azure.TenantField: "72f988bf-86f1-41af-91ab-2d7cd011db47",
		gcp.ProviderField: "projects/1/locations/global/workloadIdentityPools/lanyard/providers/issuer",
	}
	for target := range served {
		s := newIssuerServer(t)
		s.put(identityUID, 1, target, config)
		identities, _ := newIdentities(t, s)
		waitUntil(t, "the identity is known", func() bool {
			_, err := identities.Lookup(t.Context(), puller(t))
			return err == nil
		})
		for name, provider := range served {
			subject := auth.WithSubject(puller(t), identities)
			if name == target {
				key, err := auth.Resolve(t.Context(), provider, subject)
				if err != nil || key.Identity == "" {
					t.Errorf("%s: %+v, %v", name, key, err)
				}
				continue
			}
			_, err := auth.GetToken(t.Context(), provider, subject)
			checkError(t, err)
			if auth.CodeOf(err) != auth.CodeIdentityMissing || !strings.Contains(err.Error(), "spec.provider") || !strings.Contains(err.Error(), "targetSystem.type of WorkloadIdentity tenant-a/puller") {
				t.Errorf("an identity of %s at %s: %v", target, name, err)
			}
		}
	}
}

// TestIdentityOfACloudIsNoCredential checks that the provider of package bearer refuses a
// WorkloadIdentity whose targetSystem.type is a cloud. Otherwise a registry that receives the
// identity's token could use the token at the cloud.
func TestIdentityOfACloudIsNoCredential(t *testing.T) {
	provider, err := bearer.NewProvider(bearer.Config{})
	if err != nil {
		t.Fatal(err)
	}
	for target, refused := range map[string]bool{"aws": true, "azure": true, "gcp": true, "registry": false} {
		s := newIssuerServer(t)
		s.put(identityUID, 1, target, nil)
		identities, _ := newIdentities(t, s)
		waitUntil(t, "the identity is known", func() bool {
			_, err := identities.Lookup(t.Context(), puller(t))
			return err == nil
		})
		_, err := auth.Resolve(t.Context(), provider, auth.WithSubject(puller(t), identities), auth.WithAudiences("registry.example.com"))
		if (auth.CodeOf(err) == auth.CodeIdentityInvalid) != refused || (err != nil) != refused {
			t.Errorf("%s: %v", target, err)
		}
	}
}

// TestHugeAnnotationIsRefused checks that an account is refused if an annotation for its provider
// is too long. Ignoring the annotation could give the account another identity. At Google, for
// example, a ServiceAccount without the annotation acts under its own name.
func TestHugeAnnotationIsRefused(t *testing.T) {
	providers := map[string]auth.Provider{}
	var err error
	if providers[aws.RoleAnnotation], err = aws.NewProvider(aws.Config{Region: "eu-west-1"}); err != nil {
		t.Fatal(err)
	}
	if providers[azure.TenantAnnotation], err = azure.NewProvider(azure.Config{TenantID: "72f988bf-86f1-41af-91ab-2d7cd011db47"}); err != nil {
		t.Fatal(err)
	}
	if providers[gcp.ServiceAccountAnnotation], err = gcp.NewProvider(gcp.Config{}); err != nil {
		t.Fatal(err)
	}
	s := newAPIServer(t)
	accounts := newAccounts(t, s, kube.Options{})
	for annotation, provider := range providers {
		annotations := map[string]string{annotation: strings.Repeat("x", 200<<10)}
		if annotation == azure.TenantAnnotation {
			annotations[azure.ClientAnnotation] = "d6e4fc00-c5b2-4a72-9f84-6a92e3f06b08"
		}
		s.put("tenant-a", "tenant-a-ecr-sa", "uid-"+provider.GetName(), annotations)
		eventually(t, accounts, func(_ auth.Account, err error) bool {
			return err != nil && strings.Contains(err.Error(), "annotation "+annotation)
		})
		_, resolved := auth.Resolve(t.Context(), provider, auth.WithServiceAccount("tenant-a", "tenant-a-ecr-sa", accounts))
		_, read := accounts.Read(t.Context(), tenantA(t))
		for _, err := range []error{resolved, read} {
			checkError(t, err)
			if auth.CodeOf(err) != auth.CodeIdentityInvalid || !strings.Contains(err.Error(), "annotation "+annotation+" of ServiceAccount tenant-a/tenant-a-ecr-sa: its value has more than 2048 bytes") {
				t.Errorf("%s: %v", provider.GetName(), err)
			}
		}
	}
	for _, call := range s.calls() {
		if strings.Contains(call, "tenant-a") && strings.HasSuffix(call, "/token") {
			t.Errorf("a proof was asked for: %s", call)
		}
	}
}

// TestOwnAnnotations checks that a provider of a third party can have annotation keys of its own.
func TestOwnAnnotations(t *testing.T) {
	const key = "cloud.example.org/identity"
	s := newAPIServer(t)
	s.put("tenant-a", "tenant-a-ecr-sa", "uid-1", map[string]string{key: "me", "cloud.example.org/note": "x", roleARN: roleA})
	accounts := newAccounts(t, s, kube.Options{Annotations: append(kube.DefaultAnnotations(), key)})
	own := func(account auth.Account, err error) bool {
		return err == nil && account.Attributes[key] == "me" && account.Attributes[roleARN] == roleA && len(account.Attributes) == 2
	}
	eventually(t, accounts, own)
	if account, err := accounts.Read(t.Context(), tenantA(t)); !own(account, err) {
		t.Errorf("%+v, %v", account, err)
	}
}
