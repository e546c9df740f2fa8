package binding_test

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	identityv1 "github.com/lanyard-dev/lanyard/api/identity/v1alpha1"
	"github.com/lanyard-dev/lanyard/api/meta"
)

// TestAccounts changes the providerConfig of an identity, and checks the account of the credential
// in the Secret. A change to another account must be refused until the annotation of the binding
// allows it.
func TestAccounts(t *testing.T) {
	const (
		tenant, otherTenant    = `"tenantID":"11111111-1111-1111-1111-111111111111"`, `"tenantID":"22222222-2222-2222-2222-222222222222"`
		client, subscription   = `"clientID":"33333333-3333-3333-3333-333333333333"`, `"subscriptionID":"44444444-4444-4444-4444-444444444444"`
		otherSubscription      = `"subscriptionID":"55555555-5555-5555-5555-555555555555"`
		pool, otherPool        = `"workloadIdentityProvider":"projects/1111/locations/global/workloadIdentityPools/pool/providers/kube"`, `"workloadIdentityProvider":"projects/2222/locations/global/workloadIdentityPools/pool/providers/kube"`
		email, otherEmail      = `"serviceAccountEmail":"deploy@project-a.iam.gserviceaccount.com"`, `"serviceAccountEmail":"deploy@project-b.iam.gserviceaccount.com"`
		sameEmail, domainEmail = `"serviceAccountEmail":"deploy-too@project-a.iam.gserviceaccount.com"`, `"serviceAccountEmail":"deploy@project-a.example.com.iam.gserviceaccount.com"`
		defaultEmail           = `"serviceAccountEmail":"1111-compute@developer.gserviceaccount.com"`
		project, otherProject  = `"projectID":"project-a"`, `"projectID":"project-b"`
		domainProject          = `"projectID":"example.com:project-a"`
		role, otherRole        = `"iamRoleARN":"arn:aws:iam::112233445566:role/a"`, `"iamRoleARN":"arn:aws:iam::998877665544:role/a"`
		sameRole               = `"iamRoleARN":"arn:aws:iam::112233445566:role/b"`
		assumed, assumedHere   = `"assumeRole":"arn:aws:iam::998877665544:role/c"`, `"assumeRole":"arn:aws:iam::112233445566:role/c"`
		ram, otherRAM, sameRAM = `"roleARN":"acs:ram::1111111111111111:role/a"`, `"roleARN":"acs:ram::2222222222222222:role/a"`, `"roleARN":"acs:ram::1111111111111111:role/b"`
		ramProvider            = `"oidcProviderARN":"acs:ram::1111111111111111:oidc-provider/o"`
		otherRAMProvider       = `"oidcProviderARN":"acs:ram::2222222222222222:oidc-provider/o"`
	)
	of := func(fields ...string) string { return "{" + strings.Join(fields, ",") + "}" }
	for _, c := range []struct {
		name, target string
		configs      []string // set one after the other; only the last may be refused
		// The field allow is empty if the last config must be accepted without an annotation.
		// Otherwise the last config must be refused. The error message must then propose an
		// annotation whose value contains allow.
		allow string
	}{
		{"another role", "aws", []string{of(role), of(sameRole)}, ""},
		{"a role of another account", "aws", []string{of(role), of(otherRole)}, "998877665544"},
		{"a region", "aws", []string{of(role), of(role, `"region":"eu-west-1"`)}, ""},
		{"another role of the account is assumed", "aws", []string{of(role), of(role, assumedHere)}, ""},
		{"a role of another account is assumed", "aws", []string{of(role), of(role, assumed)}, "998877665544"},
		{"no other account any more", "aws", []string{of(role, assumed), of(role)}, "112233445566"},

		{"a tenant's subscription", "azure", []string{of(client, tenant), of(client, tenant, subscription)}, ""},
		{"another subscription", "azure", []string{of(client, tenant, subscription), of(client, tenant, otherSubscription)}, "55555555-5555-5555-5555-555555555555"},
		{"no subscription for a while", "azure", []string{of(client, tenant, subscription), of(client, tenant), of(client, tenant, otherSubscription)}, "55555555-5555-5555-5555-555555555555"},
		{"another tenant", "azure", []string{of(client, tenant), of(client, otherTenant)}, "22222222-2222-2222-2222-222222222222"},
		{"another tenant's subscription", "azure", []string{of(client, tenant), of(client, otherTenant, subscription)}, "22222222-2222-2222-2222-222222222222"},

		{"the pool's project is named", "gcp", []string{of(pool), of(pool, project)}, ""},
		{"a service account", "gcp", []string{of(pool, project), of(pool, project, email)}, ""},
		{"the service account's project is named", "gcp", []string{of(pool, email), of(pool, email, project)}, ""},
		{"another service account of the project", "gcp", []string{of(pool, email), of(pool, sameEmail)}, ""},
		{"a service account of another project", "gcp", []string{of(pool, email), of(pool, otherEmail)}, "project-b"},
		{"a service account of another project, though clients are told the same", "gcp", []string{of(pool, project, email), of(pool, project, otherEmail)}, "project-b"},
		{"clients are told another project", "gcp", []string{of(pool, email, project), of(pool, email, otherProject)}, ""},
		{"another project", "gcp", []string{of(pool, project), of(pool, otherProject)}, "project-b"},
		{"another pool for the same project", "gcp", []string{of(pool, email), of(otherPool, email)}, ""},
		{"another pool", "gcp", []string{of(pool), of(otherPool)}, "2222"},
		{"a project of a domain", "gcp", []string{of(pool, domainProject), of(pool, domainEmail)}, ""},
		{"the default account", "gcp", []string{of(pool, project), of(pool, project, defaultEmail)}, ""},

		{"another role", "alibaba", []string{of(ram, ramProvider), of(sameRAM, ramProvider)}, ""},
		{"another account", "alibaba", []string{of(ram, ramProvider), of(otherRAM, otherRAMProvider)}, "2222222222222222"},
	} {
		t.Run(c.target+": "+c.name, func(t *testing.T) {
			config := func(o *identityv1.WorkloadIdentity, text string) {
				o.Spec.SigningAlgorithm = identityv1.RS256 // the only algorithm that Azure accepts
				o.Spec.TargetSystem = identityv1.TargetSystem{Type: c.target, ProviderConfig: &runtime.RawExtension{Raw: []byte(text)}}
			}
			w := newWorld(t, newIdentity(func(o *identityv1.WorkloadIdentity) { config(o, c.configs[0]) }), newBinding(func(o *identityv1.WorkloadIdentityBinding) { o.Spec.Store.Format = identityv1.StoreToken }))
			for i, next := range c.configs {
				w.editIdentity(func(o *identityv1.WorkloadIdentity) { config(o, next) })
				o, _ := w.reconcile()
				r := ready(o)
				if i < len(c.configs)-1 || c.allow == "" {
					if r.Status != metav1.ConditionTrue {
						t.Fatalf("%s: %+v", next, r)
					}
					continue
				}
				if r.Reason != meta.ReasonAccountMismatch || !strings.Contains(r.Message, meta.AllowAccountChangeAnnotation+"=") {
					t.Fatalf("%+v", r)
				}
				_, allow, _ := strings.Cut(r.Message, meta.AllowAccountChangeAnnotation+"=")
				if !strings.Contains(allow, c.allow) {
					t.Errorf("it asks for %s, want %s", allow, c.allow)
				}
				w.editBinding(func(o *identityv1.WorkloadIdentityBinding) {
					o.Annotations = map[string]string{meta.AllowAccountChangeAnnotation: allow}
				})
				if o, _ := w.reconcile(); ready(o).Status != metav1.ConditionTrue || o.Status.Account != allow {
					t.Errorf("although it is allowed: %+v", ready(o))
				}
			}
		})
	}
}
