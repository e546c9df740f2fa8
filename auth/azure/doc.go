// Package azure is the provider of Microsoft Azure. At Microsoft Entra, it exchanges the proof of a
// subject for an access token. The access token belongs to the application or managed identity that
// the subject names. At Azure Container Registry, it exchanges an access token for registry
// credentials.
//
//	provider, err := azure.NewProvider(azure.Config{TenantID: tenant})
//
//	token, err := auth.GetToken(ctx, provider,
//		auth.WithServiceAccount("tenant-a", "puller", accounts),
//		auth.WithImageRepository("contoso.azurecr.io/tenant-a/app"))
//
// A ServiceAccount names its application in the annotation [ClientAnnotation] and the application's
// tenant in [TenantAnnotation]. A federated credential of the application names the ServiceAccount.
// With an image repository the token is an [auth.RegistryCredentials], which may pull from that
// repository only. Otherwise it is a [*Token] for the scope of the call, or by default for Azure
// Resource Manager. [NewTokenCredential] makes the same call from inside the Azure SDK.
//
// One provider serves one cloud, [Config].Cloud, with its hosts, its audience and its registries.
// AZURE_ variables are read only for the controller's own identity.
package azure
