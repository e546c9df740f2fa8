// Package azure is the provider of Microsoft Azure: it gives the proof of a subject to Microsoft Entra for an access token of
// the application or managed identity that the subject names, and an access token to Azure Container Registry for registry
// credentials.
//
//	provider, err := azure.NewProvider(azure.Config{TenantID: tenant})
//
//	token, err := auth.GetToken(ctx, provider,
//		auth.WithServiceAccount("tenant-a", "puller", accounts),
//		auth.WithImageRepository("contoso.azurecr.io/tenant-a/app"))
//
// A ServiceAccount names its application in the annotation [ClientAnnotation] and the application's tenant in [TenantAnnotation]; a
// federated credential of the application names the ServiceAccount. With an image repository the token is an
// [auth.RegistryCredentials], which may pull from that repository and no other; otherwise it is a [*Token], for Azure Resource
// Manager or the one scope that the call names. [NewTokenCredential] makes the same call from inside the Azure SDK.
//
// One provider serves one cloud, [Config].Cloud: its hosts, its audience, its registries. AZURE_ variables matter only for the
// controller's own identity.
package azure
