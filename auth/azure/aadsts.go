package azure

import (
	"fmt"

	"github.com/lanyard-dev/lanyard/auth"
	"github.com/lanyard-dev/lanyard/auth/endpoint"
	"github.com/lanyard-dev/lanyard/auth/internal/remote"
)

// aadsts is an error code of Microsoft Entra's security token service; zero if there is no code.
type aadsts int

// Codes that need special treatment besides their entry in verdict.
const (
	noResource    aadsts = 500011
	assertionTime aadsts = 700024
)

// verdict is the meaning of an error code.
type verdict struct {
	code    auth.Code
	meaning string // Lanyard's text; empty for an unknown code
	// fix is nil if Microsoft's page about the code is the best fix.
	fix func(asked) string
}

// verdict returns the meaning of the code. Source of the codes and their meanings: Microsoft Entra,
// "Authentication and authorization error codes", and Azure Workload Identity, "Troubleshooting".
func (c aadsts) verdict() verdict {
	known, ok := map[aadsts]verdict{
		700016:        {auth.CodeTrustRefused, "the tenant has no such application", asked.checkClient},
		7000112:       {auth.CodeTrustRefused, "the application is disabled", asked.enableApplication},
		90002:         {auth.CodeTrustRefused, "there is no such tenant in this cloud", asked.checkTenant},
		900023:        {auth.CodeTrustRefused, "there is no such tenant in this cloud", asked.checkTenant},
		70025:         {auth.CodeTrustRefused, "the application has no federated credential", asked.addCredential},
		70021:         {auth.CodeTrustRefused, "no federated credential matches the proof", asked.compareCredentials},
		700211:        {auth.CodeTrustRefused, "no federated credential has the proof's issuer", asked.compareCredentials},
		700212:        {auth.CodeTrustRefused, "no federated credential has the proof's audience", asked.compareCredentials},
		700213:        {auth.CodeTrustRefused, "no federated credential has the proof's subject", asked.compareCredentials},
		7002137:       {auth.CodeTrustRefused, "no federated credential has the proof's subject", asked.compareCredentials},
		7002138:       {auth.CodeTrustRefused, "a federated credential has the proof's subject with other capital letters", asked.compareCredentials},
		700222:        {auth.CodeTrustRefused, "the proof is a token of Microsoft Entra itself", nil},
		50013:         {auth.CodeTrustRefused, "the proof's signature cannot be verified with the issuer's keys", asked.checkKeys},
		700027:        {auth.CodeTrustRefused, "the proof's signature cannot be verified with the issuer's keys", asked.checkKeys},
		501661:        {auth.CodeTrustRefused, "the issuer publishes another issuer's name", asked.checkKeys},
		700023:        {auth.CodeTrustRefused, "the proof is for another audience", asked.setAudience},
		7000215:       {auth.CodeTrustRefused, "the client secret is not the application's", nil},
		7000222:       {auth.CodeTrustRefused, "the client secret has expired", nil},
		assertionTime: {auth.CodeProofInvalid, "the proof is not valid at this time", asked.compareClocks},
		50027:         {auth.CodeProofInvalid, "the proof is malformed", asked.checkIssuer},
		70023:         {auth.CodeProofInvalid, "the proof is valid for more than a day", asked.checkIssuer},
		5002738:       {auth.CodeProofInvalid, "the proof is not signed with RSA", asked.signWithRSA},
		noResource:    {auth.CodeRefused, "the tenant does not know the resource", asked.checkScope},
		650057:        {auth.CodeRefused, "the tenant does not know the resource", asked.checkScope},
		70011:         {auth.CodeRefused, "the scope is not one for applications", asked.checkScope},
		1002012:       {auth.CodeRefused, "the scope is not one for applications", asked.checkScope},
		53003:         {auth.CodePermissionDenied, "a conditional access policy blocks the application", asked.exemptApplication},
		501051:        {auth.CodePermissionDenied, "the application is not assigned to a role of the resource", asked.assignRole},
		90033:         {auth.CodeUnavailable, "a temporary fault", nil},
		50166:         {auth.CodeUnavailable, "the issuer's keys cannot be fetched", asked.checkKeys},
		90055:         {auth.CodeThrottled, "too many requests", nil},
		50196:         {auth.CodeThrottled, "too many requests", nil},
	}[c]
	if !ok {
		return verdict{code: auth.CodeRefused}
	}
	return known
}

// maxFederated is the maximum of federated credentials per application. Source: Microsoft Graph,
// "Create federatedIdentityCredential".
const maxFederated = 20

// asked has the parts of the refused request that a fix mentions.
type asked struct {
	subject  auth.Subject
	claims   remote.Claims // the proof's claims
	identity identity
	scope    string
	cloud    endpoint.AzureCloud
}

func (a asked) addCredential() string {
	return fmt.Sprintf("add a federated credential with issuer %s, subject %s and audience %s to application %s",
		a.claims.Issuer, a.claims.Subject, a.cloud.ProofAudience, a.identity.client)
}

func (a asked) compareCredentials() string {
	return fmt.Sprintf("%s (all three must be equal letter by letter, also a slash at the end; an application has at most %d federated "+
		"credentials)", a.addCredential(), maxFederated)
}

func (a asked) checkClient() string {
	return fmt.Sprintf("check that %s is the client ID of an application or managed identity of tenant %s",
		clientAttribute().At(a.subject), a.identity.tenant)
}

func (a asked) enableApplication() string {
	return fmt.Sprintf("enable application %s in tenant %s", a.identity.client, a.identity.tenant)
}

func (a asked) checkTenant() string {
	return fmt.Sprintf("check %s, or AZURE_TENANT_ID of the controller if it is not set, and that the tenant is in %s",
		tenantAttribute().At(a.subject), a.cloud.Name)
}

func (a asked) compareClocks() string {
	return "compare the clock of the cluster's API server, which dates the proof, with that of Microsoft Entra: they differ by more " +
		"than five minutes"
}

func (a asked) checkKeys() string {
	return fmt.Sprintf("check that the keys of %s are those of this cluster, and that Microsoft Entra can fetch them from the internet",
		a.claims.Issuer)
}

func (a asked) signWithRSA() string {
	return "let " + a.claims.Issuer + " sign with an RSA key (RS256): Microsoft Entra accepts no other signature"
}

func (a asked) checkIssuer() string { return "check how " + a.claims.Issuer + " makes its tokens" }

func (a asked) setAudience() string {
	return "give the federated credential of application " + a.identity.client + " the audience " + a.cloud.ProofAudience
}

func (a asked) checkScope() string {
	return fmt.Sprintf("check that the resource of scope %s is in %s and used in tenant %s", a.scope, a.cloud.Name, a.identity.tenant)
}

func (a asked) exemptApplication() string {
	return fmt.Sprintf("exempt application %s from the conditional access policy of tenant %s, or call from a location that the "+
		"policy permits", a.identity.client, a.identity.tenant)
}

func (a asked) assignRole() string {
	return fmt.Sprintf("assign application %s to a role of the resource of scope %s", a.identity.client, a.scope)
}
