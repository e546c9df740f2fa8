package azure

import (
	"cmp"
	"strings"

	"github.com/lanyard-dev/lanyard/auth"
	"github.com/lanyard-dev/lanyard/auth/endpoint"
	"github.com/lanyard-dev/lanyard/auth/internal/remote"
)

// aadsts is an error code of Microsoft Entra's security token service; zero if there is no code.
type aadsts int

// Codes that are also used outside [aadsts.verdict].
const (
	noResource    aadsts = 500011
	assertionTime aadsts = 700024
)

// verdict is the meaning of an error code.
type verdict struct {
	code    auth.Code
	meaning string // Lanyard's text; empty for an unknown code
	// fix is advice for the user, with placeholders for [asked.fill]. It is empty if no advice is
	// better than Microsoft's page about the code.
	fix string
}

// verdict returns the meaning of the code. Source of the codes and their meanings: Microsoft Entra,
// "Authentication and authorization error codes", and Azure Workload Identity, "Troubleshooting".
func (c aadsts) verdict() verdict {
	known := map[aadsts]verdict{
		700016:        {auth.CodeTrustRefused, "the tenant has no such application", checkClient},
		7000112:       {auth.CodeTrustRefused, "the application is disabled", enableApplication},
		90002:         {auth.CodeTrustRefused, "there is no such tenant in this cloud", checkTenant},
		900023:        {auth.CodeTrustRefused, "there is no such tenant in this cloud", checkTenant},
		70025:         {auth.CodeTrustRefused, "the application has no federated credential", addFederated},
		70021:         {auth.CodeTrustRefused, "no federated credential matches the proof", compareFederated},
		700211:        {auth.CodeTrustRefused, "no federated credential has the proof's issuer", compareFederated},
		700212:        {auth.CodeTrustRefused, "no federated credential has the proof's audience", compareFederated},
		700213:        {auth.CodeTrustRefused, "no federated credential has the proof's subject", compareFederated},
		7002137:       {auth.CodeTrustRefused, "no federated credential has the proof's subject", compareFederated},
		7002138:       {auth.CodeTrustRefused, "a federated credential has the proof's subject with other capital letters", compareFederated},
		700222:        {auth.CodeTrustRefused, "the proof is a token of Microsoft Entra itself", ""},
		50013:         {auth.CodeTrustRefused, "the proof's signature cannot be verified with the issuer's keys", checkKeys},
		700027:        {auth.CodeTrustRefused, "the proof's signature cannot be verified with the issuer's keys", checkKeys},
		501661:        {auth.CodeTrustRefused, "the issuer publishes another issuer's name", checkKeys},
		700023:        {auth.CodeTrustRefused, "the proof is for another audience", setAudience},
		7000215:       {auth.CodeTrustRefused, "the client secret is not the application's", ""},
		7000222:       {auth.CodeTrustRefused, "the client secret has expired", ""},
		assertionTime: {auth.CodeProofInvalid, "the proof is not valid at this time", compareClocks},
		50027:         {auth.CodeProofInvalid, "the proof is malformed", checkIssuer},
		70023:         {auth.CodeProofInvalid, "the proof is valid for more than a day", checkIssuer},
		5002738:       {auth.CodeProofInvalid, "the proof is not signed with RSA", signWithRSA},
		noResource:    {auth.CodeRefused, "the tenant does not know the resource", checkResource},
		650057:        {auth.CodeRefused, "the tenant does not know the resource", checkResource},
		70011:         {auth.CodeRefused, "the scope is not one for applications", checkResource},
		1002012:       {auth.CodeRefused, "the scope is not one for applications", checkResource},
		53003:         {auth.CodePermissionDenied, "a conditional access policy blocks the application", exemptApplication},
		501051:        {auth.CodePermissionDenied, "the application is not assigned to a role of the resource", assignRole},
		90033:         {auth.CodeUnavailable, "a temporary fault", ""},
		50166:         {auth.CodeUnavailable, "the issuer's keys cannot be fetched", checkKeys},
		90055:         {auth.CodeThrottled, "too many requests", ""},
		50196:         {auth.CodeThrottled, "too many requests", ""},
	}[c]
	known.code = cmp.Or(known.code, auth.CodeRefused)
	return known
}

// Fixes to suggest for Entra's error codes. [asked.fill] replaces the words in braces. Source of
// the maximum number of federated credentials: Microsoft Graph,
// "Create federatedIdentityCredential".
const (
	addFederated     = "add a federated credential with issuer {issuer}, subject {subject} and audience {audience} to application {client}"
	compareFederated = addFederated + " (all three must be equal letter by letter, also a slash at the end; an application has at " +
		"most 20 federated credentials)"
	checkClient       = "check that {clientAttribute} is the client ID of an application or managed identity of tenant {tenant}"
	enableApplication = "enable application {client} in tenant {tenant}"
	checkTenant       = "check {tenantAttribute}, or AZURE_TENANT_ID of the controller if it is not set, and that the tenant is in {cloud}"
	compareClocks     = "compare the clock of the cluster's API server, which dates the proof, with that of Microsoft Entra: they differ " +
		"by more than five minutes"
	checkKeys = "check that the keys of {issuer} are those of this cluster, and that Microsoft Entra can fetch them from the " +
		"internet"
	signWithRSA       = "let {issuer} sign with an RSA key (RS256): Microsoft Entra accepts no other signature"
	checkIssuer       = "check how {issuer} makes its tokens"
	setAudience       = "give the federated credential of application {client} the audience {audience}"
	checkResource     = "check that the resource of scope {scope} is in {cloud} and used in tenant {tenant}"
	exemptApplication = "exempt application {client} from the conditional access policy of tenant {tenant}, or call from a location that " +
		"the policy permits"
	assignRole = "assign application {client} to a role of the resource of scope {scope}"
)

// asked has those values of a refused request that can fill a placeholder in [verdict.fix].
type asked struct {
	subject  auth.Subject
	claims   remote.Claims // the proof's claims
	identity identity
	scope    string
	cloud    endpoint.AzureCloud
}

// fill replaces the placeholders in the fix, such as {issuer}, with values of the refused request.
func (a asked) fill(fix string) string {
	return strings.NewReplacer(
		"{issuer}", a.claims.Issuer, "{subject}", a.claims.Subject, "{audience}", a.cloud.ProofAudience,
		"{client}", a.identity.client, "{clientAttribute}", clientAttribute().At(a.subject),
		"{tenant}", a.identity.tenant, "{tenantAttribute}", tenantAttribute().At(a.subject),
		"{scope}", a.scope, "{cloud}", a.cloud.Name,
	).Replace(fix)
}
