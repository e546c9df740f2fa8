package azure_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lanyard-dev/lanyard/cloudtest/azure"
	"github.com/lanyard-dev/lanyard/cloudtest/internal/must"
	"github.com/lanyard-dev/lanyard/cloudtest/internal/rig"
	"github.com/lanyard-dev/lanyard/cloudtest/setting"
	"github.com/lanyard-dev/lanyard/cloudtest/wire"
)

const (
	armSubscription = "https://management.azure.com/subscriptions/" + subscriptionID
	armGroup        = armSubscription + "/resourceGroups/tenants"
	armIdentity     = armGroup + "/providers/Microsoft.ManagedIdentity/userAssignedIdentities/tenant-c"
	armRegistry     = armGroup + "/providers/Microsoft.ContainerRegistry/registries/contoso"
	armAssignment   = "/providers/Microsoft.Authorization/roleAssignments/b1b1b1b1-c5b2-4a72-9f84-6a92e3f06b08"
	acrPull         = "/subscriptions/" + subscriptionID + "/providers/Microsoft.Authorization/roleDefinitions/7f951dda-4ed3-4680-a7ca-43fe172d538d"
	acrPush         = "/subscriptions/" + subscriptionID + "/providers/Microsoft.Authorization/roleDefinitions/8311e382-0749-4cb8-b61a-304f252e45ec"
	acrList         = "/subscriptions/" + subscriptionID + "/providers/Microsoft.Authorization/roleDefinitions/bfdb9389-c9a5-478a-bb2f-ba9ca092c3c7"
	graph           = "https://graph.microsoft.com/v1.0"
	graphResource   = "https://graph.microsoft.com"
	subjectC        = "system:serviceaccount:tenant-c:app-reader"
	subjectD        = "system:serviceaccount:tenant-d:app-reader"
)

var uuids = regexp.MustCompile(`[0-9a-f]{8}(-?)[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{12}`)

// maskMade hides the IDs that the cloud made. The tests' own IDs stay visible.
func maskMade(s string) string {
	known := []string{
		directory, otherDirectory, usDirectory, clientA, clientB, pusher, bare, administrator, manager, subscriptionID, usSubscription, lastName(armAssignment),
		"00000003-0000-0000-c000-000000000000", lastName(acrPull), lastName(acrPush), otherID,
	}
	return uuids.ReplaceAllStringFunc(s, func(id string) string {
		if slices.Contains(known, id) {
			return id
		}
		return "MADE-ID"
	})
}

const otherID = "c2c2c2c2-c5b2-4a72-9f84-6a92e3f06b08"

// lastName returns the last part of a path.
func lastName(s string) string { return s[strings.LastIndexByte(s, '/')+1:] }

func federated(issuer, subject string, audiences ...string) string {
	return string(wire.Must(json.Marshal(map[string]any{"properties": map[string]any{"issuer": issuer, "subject": subject, "audiences": audiences}})))
}

func graphFederated(name, issuer, subject string, audiences ...string) string {
	return string(wire.Must(json.Marshal(map[string]any{"name": name, "issuer": issuer, "subject": subject, "audiences": audiences})))
}

func assignment(role, principal, kind string) string {
	return string(wire.Must(json.Marshal(map[string]any{"properties": map[string]any{"roleDefinitionId": role, "principalId": principal, "principalType": kind}})))
}

// managementStep is a call of a management service, or a token request to Entra ID or to a
// registry.
type managementStep struct {
	name   string // of the golden file
	caller string // key of the caller's token in the map tokens; empty for no token
	method string
	target string // URL; for Azure Resource Manager, api-version may be left out
	body   string

	entra string // client ID for which to request a token of Entra ID
	pull  string // client ID with which to request tokens of a registry
	want  string // code or HTTP status of the refusal, or "granted"
}

// managementWorld makes the steps' calls. The texts {id}, {app}, {client} and {principal} in a step
// are replaced by IDs from the answers to earlier steps.
type managementWorld struct {
	*world

	client *http.Client
	tokens map[string]string
	made   *strings.Replacer
}

func newManagementWorld(t *testing.T) *managementWorld {
	t.Helper()
	w := &managementWorld{world: newWorld(t), made: strings.NewReplacer()}
	w.client = w.world.client()
	w.tokens = map[string]string{
		"administrator": w.entra(t, administrator, subjectAdmin, armResource), "manager": w.entra(t, manager, subjectAdmin, armResource),
		"contributor": w.entra(t, pusher, subjectPusher, armResource), "tenant": w.entra(t, clientA, subjectA, armResource),
		"reader": w.entra(t, clientB, subjectB, armResource), "graph administrator": w.entra(t, administrator, subjectAdmin, graphResource),
		"graph reader": w.entra(t, manager, subjectAdmin, graphResource), "graph tenant": w.entra(t, clientA, subjectA, graphResource),
	}
	w.tokens["forged"] = w.tokens["administrator"][:len(w.tokens["administrator"])-8] + "AAAAAAAA"
	stranger, err := assert(t.Context(), w.Transport(), "https://login.microsoftonline.com/", otherDirectory, clientA, w.mint(t, subjectA, audience), armResource+"/.default")
	must.Succeed(t, err)
	w.tokens["stranger"] = stranger.Token
	return w
}

func (w *managementWorld) call(t *testing.T, step managementStep) *http.Response {
	t.Helper()
	target, contentType := w.made.Replace(step.target), ""
	if !strings.Contains(target, "?") && !strings.HasPrefix(target, graph) {
		target += "?api-version=2022-04-01"
	}
	if step.body != "" {
		contentType = "application/json"
	}
	r := rig.NewRequest(t, step.method, target, contentType, w.made.Replace(step.body))
	if step.caller != "" {
		token, ok := w.tokens[step.caller]
		if !ok {
			t.Fatalf("%s: nobody is called %q", step.name, step.caller)
		}
		r.Header.Set("Authorization", "Bearer "+token)
	}
	res, err := w.client.Do(r)
	must.Succeed(t, err)
	return res
}

// keep remembers the IDs in an answer, for later steps.
func (w *managementWorld) keep(t *testing.T, res *http.Response) {
	t.Helper()
	body, err := io.ReadAll(res.Body)
	must.Succeed(t, err)
	res.Body = io.NopCloser(bytes.NewReader(body))
	var answer struct {
		ID, AppID  string
		Properties struct{ ClientID, PrincipalID string }
	}
	if err := json.Unmarshal(body, &answer); err != nil {
		t.Fatalf("%v: %s", err, body)
	}
	w.made = strings.NewReplacer("{id}", answer.ID, "{app}", answer.AppID, "{client}", answer.Properties.ClientID, "{principal}", answer.Properties.PrincipalID)
}

// entraSays exchanges a token of the cluster for an access token of Entra ID. It returns the error
// code, or "granted".
func (w *managementWorld) entraSays(t *testing.T, client, subject string) string {
	t.Helper()
	_, err := assert(t.Context(), w.Transport(), "https://login.microsoftonline.com/", directory, client, w.mint(t, subject, audience), registryResource+"/.default")
	if refused := entraOutcomeOf(t, err); refused.Code != 0 {
		return fmt.Sprint(refused.Code)
	}
	return "granted"
}

// registrySays requests the tokens that a pull from a registry needs. It returns the HTTP status of
// a refusal, or "granted".
func (w *managementWorld) registrySays(t *testing.T, host, client, subject string) string {
	t.Helper()
	refresh := w.exchange(t, w.client, host, "access_token", w.entra(t, client, subject, registryResource))
	if refresh.Status != http.StatusOK {
		return fmt.Sprint(refresh.Status)
	}
	if access := w.access(t, w.client, host, refresh.Token, "repository:app:pull"); access.Status != http.StatusOK {
		return fmt.Sprint(access.Status)
	}
	return "granted"
}

func (w *managementWorld) run(t *testing.T, folder string, steps []managementStep) {
	t.Helper()
	files := rig.Golden{Dir: filepath.Join("testdata", folder), Update: *update, Mask: maskMade}
	for _, step := range steps {
		subject := subjectC
		if strings.Contains(step.entra+step.pull, "{app}") {
			subject = subjectD
		}
		switch {
		case step.entra != "":
			if got := w.entraSays(t, w.made.Replace(step.entra), subject); got != step.want {
				t.Errorf("%s: Entra ID says %s, want %s", subject, got, step.want)
			}
		case step.pull != "":
			if got := w.registrySays(t, contoso, w.made.Replace(step.pull), subject); got != step.want {
				t.Errorf("%s: the registry says %s, want %s", subject, got, step.want)
			}
		default:
			res := w.call(t, step)
			if strings.HasSuffix(step.name, "-created") {
				if res.StatusCode != http.StatusCreated {
					t.Errorf("%s: HTTP %d", step.name, res.StatusCode)
				}
				if strings.HasSuffix(step.target, "/tenant-c") || strings.HasSuffix(step.target, "/applications") {
					w.keep(t, res)
				}
			}
			files.Answer(t, step.name, res)
		}
	}
	files.Complete(t)
}

// TestManagementAnswers makes a managed identity and lets it pull, step by step like an
// administrator. It compares every answer of Azure Resource Manager, byte for byte, with golden
// files.
func TestManagementAnswers(t *testing.T) {
	filter := func(f string) string { return "?" + url.Values{"api-version": {"2022-04-01"}, "$filter": {f}}.Encode() }
	const (
		location = `{"location":"westeurope"}`
		version  = "?api-version=2022-01-31-preview"
	)
	synctest.Test(t, func(t *testing.T) {
		w := newManagementWorld(t)
		defer w.client.CloseIdleConnections()
		w.run(t, "management", []managementStep{
			{name: "no-token", method: "GET", target: armGroup},
			{name: "forged", caller: "forged", method: "GET", target: armGroup},
			{name: "other-audience", caller: "graph administrator", method: "GET", target: armGroup},
			{name: "other-directory", caller: "stranger", method: "GET", target: armGroup},
			{name: "other-cloud", caller: "administrator", method: "GET", target: "https://management.usgovcloudapi.net/subscriptions"},
			{name: "no-version", caller: "administrator", method: "GET", target: armGroup + "?x=y"},
			{name: "bad-version", caller: "administrator", method: "GET", target: armGroup + "?api-version=latest"},
			{name: "unknown-parameter", caller: "administrator", method: "GET", target: armGroup + "?api-version=2022-04-01&$expand=x"},
			{name: "filter-of-nothing", caller: "administrator", method: "GET", target: armGroup + filter("name eq 'x'")},
			{name: "no-such-operation", caller: "administrator", method: "DELETE", target: armIdentity},
			{name: "subscriptions", caller: "administrator", method: "GET", target: "https://management.azure.com/subscriptions"},
			{name: "subscriptions-of-tenant", caller: "tenant", method: "GET", target: "https://management.azure.com/subscriptions"},
			{name: "no-subscription", caller: "administrator", method: "GET", target: strings.Replace(armGroup, subscriptionID, otherID, 1)},
			{name: "group", caller: "manager", method: "GET", target: strings.Replace(armGroup, "resourceGroups/tenants", "resourcegroups/TENANTS", 1)},
			{name: "group-refused", caller: "tenant", method: "GET", target: armGroup},
			{name: "group-of-others", caller: "reader", method: "GET", target: armGroup},
			{name: "no-group", caller: "administrator", method: "GET", target: armSubscription + "/resourceGroups/none"},
			{name: "no-group-refused", caller: "tenant", method: "GET", target: armSubscription + "/resourceGroups/none"},

			{name: "identity-missing", caller: "manager", method: "GET", target: armIdentity},
			{name: "identity-refused", caller: "tenant", method: "PUT", target: armIdentity, body: location},
			{name: "identity-other-group", caller: "manager", method: "PUT", target: strings.Replace(armIdentity, "tenants", "Network", 1), body: location},
			{name: "identity-bad-name", caller: "manager", method: "PUT", target: armIdentity + ".x", body: location},
			{name: "identity-no-location", caller: "manager", method: "PUT", target: armIdentity, body: `{}`},
			{name: "identity-bad-location", caller: "manager", method: "PUT", target: armIdentity, body: `{"location":"West Europe"}`},
			{name: "identity-unknown-field", caller: "manager", method: "PUT", target: armIdentity, body: `{"location":"westeurope","tags":{"a":"b"}}`},
			{name: "identity-no-body", caller: "manager", method: "PUT", target: armIdentity},
			{name: "federated-no-identity", caller: "manager", method: "PUT", target: armIdentity + "/federatedIdentityCredentials/cluster" + version, body: federated(issuerURL, subjectC, audience)},
			{name: "identity-created", caller: "manager", method: "PUT", target: armIdentity, body: location},
			{name: "identity-again", caller: "manager", method: "PUT", target: armGroup + strings.ToUpper(strings.TrimPrefix(armIdentity, armGroup)), body: location},
			{name: "identity-elsewhere", caller: "manager", method: "PUT", target: armIdentity, body: `{"location":"northeurope"}`},
			{name: "identity", caller: "manager", method: "GET", target: armIdentity},
			{entra: "{client}", want: "70025"},

			{name: "federated-refused", caller: "tenant", method: "PUT", target: armIdentity + "/federatedIdentityCredentials/cluster" + version, body: federated(issuerURL, subjectC, audience)},
			{name: "federated-old-version", caller: "manager", method: "PUT", target: armIdentity + "/federatedIdentityCredentials/cluster?api-version=2018-11-30", body: federated(issuerURL, subjectC, audience)},
			{name: "federated-no-subject", caller: "manager", method: "PUT", target: armIdentity + "/federatedIdentityCredentials/cluster" + version, body: federated(issuerURL, "", audience)},
			{name: "federated-two-audiences", caller: "manager", method: "PUT", target: armIdentity + "/federatedIdentityCredentials/cluster" + version, body: federated(issuerURL, subjectC, audience, "x")},
			{name: "federated-http", caller: "manager", method: "PUT", target: armIdentity + "/federatedIdentityCredentials/cluster" + version, body: federated("http://issuer.example", subjectC, audience)},
			{name: "federated-bad-name", caller: "manager", method: "PUT", target: armIdentity + "/federatedIdentityCredentials/c" + version, body: federated(issuerURL, subjectC, audience)},
			{entra: "{client}", want: "70025"},
			{name: "federated-created", caller: "manager", method: "PUT", target: armIdentity + "/federatedIdentityCredentials/cluster" + version, body: federated(issuerURL, subjectD, audience)},
			{entra: "{client}", want: "700213"},
			{name: "federated-replaced", caller: "manager", method: "PUT", target: armIdentity + "/federatedIdentityCredentials/cluster" + version, body: federated(issuerURL, subjectC, audience)},
			{entra: "{client}", want: "granted"},
			{name: "federated-conflict", caller: "manager", method: "PUT", target: armIdentity + "/federatedIdentityCredentials/second" + version, body: federated(issuerURL, subjectC, "x")},

			{name: "resources", caller: "administrator", method: "GET", target: armSubscription + "/resources" + filter("resourceType eq 'Microsoft.ContainerRegistry/registries'")},
			{name: "resources-of-manager", caller: "manager", method: "GET", target: armSubscription + "/resources" + filter("resourceType eq 'Microsoft.ContainerRegistry/registries'")},
			{name: "resources-refused", caller: "tenant", method: "GET", target: armSubscription + "/resources" + filter("resourceType eq 'Microsoft.ContainerRegistry/registries'")},
			{name: "resources-other-filter", caller: "administrator", method: "GET", target: armSubscription + "/resources" + filter("name eq 'contoso'")},
			{name: "registry", caller: "administrator", method: "GET", target: armRegistry},
			{name: "registry-refused", caller: "manager", method: "GET", target: armRegistry},
			{name: "registry-missing", caller: "administrator", method: "GET", target: strings.Replace(armRegistry, "contoso", "absent", 1)},
			{name: "registry-other-group", caller: "administrator", method: "GET", target: strings.Replace(armRegistry, "tenants", "Network", 1)},
			{name: "definitions", caller: "manager", method: "GET", target: armRegistry + "/providers/Microsoft.Authorization/roleDefinitions" + filter("roleName eq 'AcrPull'")},
			{name: "definitions-none", caller: "manager", method: "GET", target: armRegistry + "/providers/Microsoft.Authorization/roleDefinitions" + filter("roleName eq 'acrpull or so'")},
			{name: "definitions-other-filter", caller: "manager", method: "GET", target: armRegistry + "/providers/Microsoft.Authorization/roleDefinitions" + filter("atScope()")},
			{name: "definitions-refused", caller: "tenant", method: "GET", target: armRegistry + "/providers/Microsoft.Authorization/roleDefinitions" + filter("roleName eq 'AcrPull'")},

			{pull: "{client}", want: "401"},
			{name: "assignment-refused", caller: "tenant", method: "PUT", target: armRegistry + armAssignment, body: assignment(acrPull, "{principal}", "ServicePrincipal")},
			{name: "assignment-by-manager", caller: "manager", method: "PUT", target: armRegistry + armAssignment, body: assignment(acrPull, "{principal}", "ServicePrincipal")},
			{name: "assignment-by-contributor", caller: "contributor", method: "PUT", target: armRegistry + armAssignment, body: assignment(acrPull, "{principal}", "ServicePrincipal")},
			{name: "assignment-bad-id", caller: "administrator", method: "PUT", target: armRegistry + strings.Replace(armAssignment, lastName(armAssignment), "first", 1), body: assignment(acrPull, "{principal}", "ServicePrincipal")},
			{name: "assignment-bad-principal", caller: "administrator", method: "PUT", target: armRegistry + armAssignment, body: assignment(acrPull, "somebody", "ServicePrincipal")},
			{name: "assignment-no-principal", caller: "administrator", method: "PUT", target: armRegistry + armAssignment, body: assignment(acrPull, "{client}", "ServicePrincipal")},
			{name: "assignment-to-user", caller: "administrator", method: "PUT", target: armRegistry + armAssignment, body: assignment(acrPull, "{principal}", "User")},
			{name: "assignment-no-role", caller: "administrator", method: "PUT", target: armRegistry + armAssignment, body: assignment(strings.Replace(acrPull, lastName(acrPull), otherID, 1), "{principal}", "ServicePrincipal")},
			{name: "assignment-condition", caller: "administrator", method: "PUT", target: armRegistry + armAssignment, body: `{"properties":{"roleDefinitionId":"` + acrPull + `","principalId":"{principal}","condition":"true"}}`},
			{name: "assignment-no-registry", caller: "administrator", method: "PUT", target: strings.Replace(armRegistry, "contoso", "absent", 1) + armAssignment, body: assignment(acrPull, "{principal}", "ServicePrincipal")},
			{pull: "{client}", want: "401"},
			{name: "assignment-created", caller: "administrator", method: "PUT", target: armRegistry + armAssignment, body: assignment(acrPull, "{principal}", "ServicePrincipal")},
			{pull: "{client}", want: "granted"},
			{name: "assignment-again", caller: "administrator", method: "PUT", target: armRegistry + strings.Replace(armAssignment, lastName(armAssignment), otherID, 1), body: assignment(acrPull, "{principal}", "ServicePrincipal")},
			{name: "assignment-other-role", caller: "administrator", method: "PUT", target: armRegistry + armAssignment, body: assignment(acrPush, "{principal}", "ServicePrincipal")},
		})

		// A registry with ABAC accepts an assignment of AcrPull but ignores it. An assignment of
		// Catalog Lister takes effect, but does not allow pulls.
		abac := strings.Replace(armRegistry, "contoso", "shared", 1)
		for i, role := range []string{acrPull, acrList} {
			target := abac + strings.Replace(armAssignment, lastName(armAssignment), strings.Replace(otherID, "c2c2c2c2", fmt.Sprintf("0000000%d", i), 1), 1)
			res := w.call(t, managementStep{caller: "administrator", method: "PUT", target: target, body: assignment(role, "{principal}", "ServicePrincipal")})
			_ = res.Body.Close()
			if got := w.registrySays(t, shared, w.made.Replace("{client}"), subjectC); res.StatusCode != http.StatusCreated || got != "401" {
				t.Errorf("assigned with HTTP %d, the registry says %s", res.StatusCode, got)
			}
		}
		if w.exchange(t, w.client, shared, "access_token", w.entra(t, w.made.Replace("{client}"), subjectC, registryResource)).Status != http.StatusOK {
			t.Error("the role that counts does not")
		}

		for i := range 20 { // one credential exists and the limit is 20, so the last call fails
			res := w.call(t, managementStep{
				caller: "manager", method: "PUT", target: armIdentity + fmt.Sprintf("/federatedIdentityCredentials/other-%d", i) + version,
				body: federated(issuerURL, subjectC+fmt.Sprint(i), audience),
			})
			_ = res.Body.Close()
			if want := map[bool]int{false: http.StatusCreated, true: http.StatusBadRequest}[i == 19]; res.StatusCode != want {
				t.Errorf("credential %d: HTTP %d, want %d", i+2, res.StatusCode, want)
			}
		}

		time.Sleep(2 * time.Hour)
		res := w.call(t, managementStep{caller: "administrator", method: "GET", target: armGroup})
		if body := rig.ReadAll(t, res); res.StatusCode != http.StatusUnauthorized || !strings.Contains(body, "ExpiredAuthenticationToken") {
			t.Errorf("an old token: HTTP %d %s", res.StatusCode, body)
		}
	})
}

// TestGraphAnswers makes an application that a cluster can act as, step by step like an
// administrator. It compares every answer of Microsoft Graph, byte for byte, with golden files.
func TestGraphAnswers(t *testing.T) {
	filter := func(f string) string { return "?" + url.Values{"$filter": {f}}.Encode() }
	const apps, principals = graph + "/applications", graph + "/servicePrincipals"
	const credentials = apps + "/{id}/federatedIdentityCredentials"
	synctest.Test(t, func(t *testing.T) {
		w := newManagementWorld(t)
		defer w.client.CloseIdleConnections()
		w.run(t, "graph", []managementStep{
			{name: "no-token", method: "GET", target: apps},
			{name: "forged", caller: "forged", method: "GET", target: apps},
			{name: "other-audience", caller: "administrator", method: "GET", target: apps},
			{name: "other-cloud", caller: "graph administrator", method: "GET", target: "https://graph.microsoft.us/v1.0/applications"},
			{name: "no-such-operation", caller: "graph administrator", method: "GET", target: principals},
			{name: "list-refused", caller: "graph tenant", method: "GET", target: apps + filter("appId eq '"+clientA+"'")},
			{name: "list", caller: "graph reader", method: "GET", target: apps + filter("appId eq '"+clientA+"'")},
			{name: "list-none", caller: "graph reader", method: "GET", target: apps + filter("startswith(displayName,'tenant-d')")},
			{name: "list-other-filter", caller: "graph reader", method: "GET", target: apps + filter("displayName eq 'x'")},
			{name: "list-all", caller: "graph reader", method: "GET", target: apps},
			{name: "unknown-parameter", caller: "graph reader", method: "GET", target: apps + "?$top=1"},

			{name: "application-refused", caller: "graph tenant", method: "POST", target: apps, body: `{"displayName":"tenant-d"}`},
			{name: "application-by-reader", caller: "graph reader", method: "POST", target: apps, body: `{"displayName":"tenant-d"}`},
			{name: "application-no-name", caller: "graph administrator", method: "POST", target: apps, body: `{}`},
			{name: "application-long-name", caller: "graph administrator", method: "POST", target: apps, body: `{"displayName":"` + strings.Repeat("x", 257) + `"}`},
			{name: "application-certificate", caller: "graph administrator", method: "POST", target: apps, body: `{"displayName":"tenant-d","keyCredentials":[{}]}`},
			{name: "application-unknown-field", caller: "graph administrator", method: "POST", target: apps, body: `{"displayName":"tenant-d","passwordCredentials":[]}`},
			{name: "application-created", caller: "graph administrator", method: "POST", target: apps, body: `{"displayName":"tenant-d","keyCredentials":[]}`},
			{name: "list-by-name", caller: "graph reader", method: "GET", target: apps + filter("startswith(displayName,'Tenant')")},
			{entra: "{app}", want: "7000229"},

			{name: "federated-refused", caller: "graph tenant", method: "POST", target: credentials, body: graphFederated("cluster", issuerURL, subjectD, audience)},
			{name: "federated-by-reader", caller: "graph reader", method: "POST", target: credentials, body: graphFederated("cluster", issuerURL, subjectD, audience)},
			{name: "federated-no-application", caller: "graph administrator", method: "POST", target: apps + "/" + otherID + "/federatedIdentityCredentials", body: graphFederated("cluster", issuerURL, subjectD, audience)},
			{name: "federated-by-client", caller: "graph administrator", method: "POST", target: apps + "/{app}/federatedIdentityCredentials", body: graphFederated("cluster", issuerURL, subjectD, audience)},
			{name: "federated-no-audience", caller: "graph administrator", method: "POST", target: credentials, body: graphFederated("cluster", issuerURL, subjectD)},
			{name: "federated-no-subject", caller: "graph administrator", method: "POST", target: credentials, body: graphFederated("cluster", issuerURL, "", audience)},
			{name: "federated-bad-name", caller: "graph administrator", method: "POST", target: credentials, body: graphFederated("my cluster", issuerURL, subjectD, audience)},
			{name: "federated-http", caller: "graph administrator", method: "POST", target: credentials, body: graphFederated("cluster", "http://issuer.example", subjectD, audience)},
			{name: "federated-created", caller: "graph administrator", method: "POST", target: credentials, body: graphFederated("cluster", issuerURL, subjectD, audience)},
			{name: "federated-again", caller: "graph administrator", method: "POST", target: credentials, body: graphFederated("cluster", issuerURL, subjectC, audience)},
			{name: "federated-conflict", caller: "graph administrator", method: "POST", target: credentials, body: graphFederated("second", issuerURL, subjectD, "x")},
			{entra: "{app}", want: "7000229"},

			{name: "principal-refused", caller: "graph reader", method: "POST", target: principals, body: `{"appId":"{app}"}`},
			{name: "principal-no-application", caller: "graph administrator", method: "POST", target: principals, body: `{"appId":"` + otherID + `"}`},
			{name: "principal-no-id", caller: "graph administrator", method: "POST", target: principals, body: `{}`},
			{name: "principal-disabled", caller: "graph administrator", method: "POST", target: principals, body: `{"appId":"{app}","accountEnabled":false}`},
			{entra: "{app}", want: "7000229"},
			{name: "principal-created", caller: "graph administrator", method: "POST", target: principals, body: `{"appId":"{app}","accountEnabled":true}`},
			{name: "principal-again", caller: "graph administrator", method: "POST", target: principals, body: `{"appId":"{app}"}`},
			{entra: "{app}", want: "granted"},
			{pull: "{app}", want: "401"},
		})

		for i := range 20 { // one credential exists and the limit is 20, so the last call fails
			res := w.call(t, managementStep{
				caller: "graph administrator", method: "POST", target: credentials, body: graphFederated(fmt.Sprintf("other-%d", i), issuerURL, subjectD+fmt.Sprint(i), audience),
			})
			_ = res.Body.Close()
			if want := map[bool]int{false: http.StatusCreated, true: http.StatusBadRequest}[i == 19]; res.StatusCode != want {
				t.Errorf("credential %d: HTTP %d, want %d", i+2, res.StatusCode, want)
			}
		}
	})
}

// TestNoPrincipalNoToken: an application without a service principal cannot be a managed identity.
func TestNoPrincipalNoToken(t *testing.T) {
	w := newManagementWorld(t)
	res := w.call(t, managementStep{caller: "graph administrator", method: "POST", target: graph + "/applications", body: `{"displayName":"tenant-d"}`})
	w.keep(t, res)
	err := w.Azure().SetManagedIdentity(azure.ManagedIdentity{Tenant: directory, ClientIDs: []string{w.made.Replace("{app}")}})
	if invalid, ok := errors.AsType[*setting.Error](err); !ok || invalid.Field != "clientIDs[0]" {
		t.Errorf("%v", err)
	}
}

// TestManagedIdentityIsNoApplication: Microsoft Graph neither shows a managed identity as an
// application nor makes a second service principal for it.
func TestManagedIdentityIsNoApplication(t *testing.T) {
	w := newManagementWorld(t)
	w.keep(t, w.call(t, managementStep{caller: "manager", method: "PUT", target: armIdentity, body: `{"location":"westeurope"}`}))
	res := w.call(t, managementStep{caller: "graph reader", method: "GET", target: graph + "/applications?" + url.Values{"$filter": {"startswith(displayName,'tenant-c')"}}.Encode()})
	if body := rig.ReadAll(t, res); !strings.Contains(body, `"value":[]`) {
		t.Errorf("%s", body)
	}
	res = w.call(t, managementStep{caller: "graph administrator", method: "POST", target: graph + "/servicePrincipals", body: `{"appId":"{client}"}`})
	if body := rig.ReadAll(t, res); !strings.Contains(body, "NoBackingApplicationObject") {
		t.Errorf("%s", body)
	}
}

// TestPutApplicationKeepsItsObjects: PutApplication preserves the object ID and the name of an
// application that was created through Microsoft Graph, and gives it a service principal.
func TestPutApplicationKeepsItsObjects(t *testing.T) {
	w := newManagementWorld(t)
	res := w.call(t, managementStep{caller: "graph administrator", method: "POST", target: graph + "/applications", body: `{"displayName":"tenant-d"}`})
	w.keep(t, res)
	must.Succeed(t, w.Azure().PutApplication(directory, application(w.made.Replace("{app}"), subjectD)))
	if got := w.entraSays(t, w.made.Replace("{app}"), subjectD); got != "granted" {
		t.Errorf("Entra ID says %s", got)
	}
	res = w.call(t, managementStep{caller: "graph reader", method: "GET", target: graph + "/applications?" + url.Values{"$filter": {"startswith(displayName,'tenant-d')"}}.Encode()})
	if body := rig.ReadAll(t, res); !strings.Contains(body, `{"id":"`+w.made.Replace("{id}")+`"`) {
		t.Errorf("%s", body)
	}
}
