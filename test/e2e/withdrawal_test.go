package e2e

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"testing"

	"github.com/lanyard-dev/lanyard/cloudtest/aws"
	"github.com/lanyard-dev/lanyard/cloudtest/azure"
	"github.com/lanyard-dev/lanyard/cloudtest/journal"
	"github.com/lanyard-dev/lanyard/internal/local"
)

// TestPermissionWithdrawn removes permissions at the clouds while credentials are cached. The next
// reconciliation must be refused. Amazon ECR checks the role's permission at each request. At
// Azure, the controller exchanges a cached token for an access token, with which it pulls. The
// registry checks the role assignment during this exchange.
//
// A thief at Azure uses an access token that is older than the withdrawal. Such a token contains
// its permissions, so it must still work.
func TestPermissionWithdrawn(t *testing.T) {
	beside(t)
	tn := newTenant(t, "withdrawn")
	tn.pushFile(t, "1.0.0", "app")
	application := tn.atAzure(t)
	tn.pushToAzure(t, application, "1.0.0")
	host := tn.azureRegistry() + ".azurecr.io"
	tn.awaitKnown(t) // from now on, the controller caches the tenant's tokens
	amazon, entra := tn.object("amazon"), tn.azureObject("azure")
	create(t, amazon)
	create(t, entra)
	await(t, amazon, "the artifact", pulled)
	await(t, entra, "the artifact", pulled)
	logins := func(operation string, verdict journal.Verdict, after uint64) int {
		return len(world.Cloud().Journal().Calls(journal.Filter{Host: host, Operation: operation, Verdict: verdict, After: after}))
	}
	eventually(t, "an access token is kept", func(context.Context) error {
		before := world.Cloud().Journal().Last()
		at := request(t, entra)
		await(t, entra, "the request is handled", handled(at))
		return wantf(logins("Exchange", journal.Any, before) == 0, "it logs in again")
	})
	stolen := tn.registryAccess(t, application, host)
	steal := func() (status int) {
		status, _ = call(t, cloudClient(), http.MethodGet, "https://"+host+"/v2/app/tags/list", "", nil, stolen)
		return status
	}

	must(t, "withdraw the role's policy", world.Cloud().AWS().PutRole(local.Account, aws.Role{Name: tn.namespace, TrustPolicy: trust(tn.subject)}))
	must(t, "withdraw the role assignment", world.Cloud().Azure().PutRegistry(local.AzureTenant, azure.RegistryConfig{Name: tn.azureRegistry()}))
	withdrawn := world.Cloud().Journal().Last()
	await(t, amazon, "the refusal", failing("RegistryRefused", tn.role, "ecr:BatchGetImage"))
	await(t, entra, "the refusal", failing("PermissionDenied", application, "AcrPull"))
	// A request that was in flight at the withdrawal may still be granted. But no request may be
	// granted after the first refusal.
	refusals := world.Cloud().Journal().Calls(journal.Filter{Operation: "ecr:BatchGetImage", Principal: resolutions(tn, tn.namespace, 0)[0].Principal, Verdict: journal.Refused, After: withdrawn})
	if len(refusals) == 0 {
		t.Fatal("Amazon ECR refused nothing after the policy was withdrawn")
	}
	if calls := resolutions(tn, tn.namespace, refusals[0].Seq); len(calls) > 0 {
		t.Errorf("Amazon ECR answered after the policy was withdrawn: %+v", calls)
	}
	refusals = world.Cloud().Journal().Calls(journal.Filter{Host: host, Operation: "GetAccessTokenFromLogin", Verdict: journal.Refused, After: withdrawn})
	if len(refusals) == 0 {
		t.Fatal("the registry never refused the token that was kept")
	}
	for _, c := range world.Cloud().Journal().Calls(journal.Filter{Host: host, Service: azure.ServiceRegistry, Verdict: journal.Granted, After: refusals[0].Seq}) {
		t.Errorf("the registry answered after the assignment was withdrawn: %+v", c)
	}
	if status := steal(); status != http.StatusOK {
		t.Errorf("a stolen access token is answered with HTTP %d; docs/security.md says that it serves until it ends", status)
	}
}

// registryAccess gets a registry's access token for pulls from the repository "app". It gets the
// token as a thief with the tenant's ServiceAccount token would.
func (tn *tenant) registryAccess(t *testing.T, application, host string) string {
	t.Helper()
	access, v := entraToken(t, application, token(t, tn.namespace, puller, azureAudience))
	if !v.granted() {
		t.Fatalf("Entra says of the tenant's own application: %s", v)
	}
	form := url.Values{"grant_type": {"refresh_token"}, "service": {host}, "scope": {"repository:app:pull"}, "refresh_token": {registryLogin(t, host, access)}}
	_, body := call(t, cloudClient(), http.MethodPost, "https://"+host+"/oauth2/token", "application/x-www-form-urlencoded", []byte(form.Encode()), "")
	var answer struct {
		Token string `json:"access_token"`
	}
	must(t, "read the registry's answer", json.Unmarshal(body, &answer))
	return answer.Token
}
