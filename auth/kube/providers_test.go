package kube_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/lanyard-dev/lanyard/auth"
	"github.com/lanyard-dev/lanyard/auth/aws"
	"github.com/lanyard-dev/lanyard/auth/azure"
	"github.com/lanyard-dev/lanyard/auth/gcp"
	"github.com/lanyard-dev/lanyard/auth/kube"
)

// The annotations that are kept are those that the providers read, and no others.
func TestDefaultAnnotationsAreTheProviders(t *testing.T) {
	want := []string{aws.RoleAnnotation, azure.ClientAnnotation, azure.TenantAnnotation, gcp.ServiceAccountAnnotation, gcp.ProviderAnnotation}
	if got := kube.DefaultAnnotations(); !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

// An annotation that is too long is refused at every provider: at Google, where an account without it is a principal itself, too.
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

// A provider of somebody else's has keys of its own.
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
