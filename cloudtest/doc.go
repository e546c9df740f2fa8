// Package cloudtest is a local cloud that verifies credentials as AWS, Azure, Google Cloud and
// Alibaba Cloud do. Programs reach it under the clouds' real host names, over real TLS, with
// unmodified SDKs. It checks what the real clouds check: token signatures against the issuer's
// published keys, trust policies, SigV4, permissions for each request. It answers with the real
// error codes and bodies. Nothing leaves the machine: the cloud refuses connections to all other
// hosts, and records the refusals.
//
// # Accounts and resources
//
// A [Config] describes accounts, roles, repositories and buckets; [ParseConfig] reads it from JSON.
// AWS accounts have IAM's own trust and permission policies. Azure tenants have applications with
// federated credentials, and role assignments on registries, storage accounts, key vaults and
// subscriptions.
// Google Cloud projects have IAM policies, and so have their buckets, repositories and keys.
// Alibaba Cloud accounts have RAM's own trust policies.
//
//	cloud, err := cloudtest.New(cloudtest.Config{AWS: aws.Config{Accounts: []aws.Account{{
//		ID:            "123456789123",
//		OIDCProviders: []aws.OIDCProvider{{URL: issuer.URL(), ClientIDs: []string{"sts.amazonaws.com"}}},
//		Roles:         []aws.Role{{Name: "tenant-a-ecr", TrustPolicy: trust, Policies: map[string]json.RawMessage{"pull": pull}}},
//		Repositories:  []aws.Repository{{Region: "eu-west-1", Name: "tenant-a/app"}},
//	}}}})
//	defer cloud.Close()
//
// The caller registers issuers and data planes as HTTP handlers:
//
//	cloud.HandleIssuer(issuer)                          // an oidc.Issuer, which issues valid and invalid tokens
//	cloud.Handle("oidc.eks.eu-west-1.amazonaws.com", p) // or an oidc.Proxy to a kube-apiserver's documents
//	cloud.AWS().ServeRegistry(func(aws.Registry) http.Handler { return distribution })
//	cloud.AWS().ServeS3(objects)                        // path-style, no credentials, no aws-chunked framing
//	cloud.Azure().ServeBlob(func(azure.StorageAccount) http.Handler { return blobs })
//	cloud.GCP().ServeStorage(storage)                   // data planes need not verify credentials
//
// A data plane gets allowed requests only. The cloud removes the credentials from them. It also
// removes or refuses everything that could turn a request into another one:
//   - mounts
//   - copy sources
//   - headers by which servers change a method or a path
//
// No handler can be registered for a cloud's own hosts.
//
// # How clients connect
//
// In process, inject [Cloud.Transport]; it needs no port and works inside a testing/synctest
// bubble:
//
//	sts.New(sts.Options{Region: "eu-west-1", HTTPClient: &http.Client{Transport: cloud.Transport()}})
//
// Other programs go through the proxy. [Cloud.Start] listens on loopback, and [Cloud.Env] returns
// the environment that they need:
//
//	cloud.Start(ctx)
//	cloud.WriteCA("ca.pem")
//	cmd := exec.CommandContext(ctx, "aws", "sts", "get-caller-identity")
//	cmd.Env = append(os.Environ(), cloud.Env("ca.pem")...)
//
// # Journal and faults
//
// [Cloud.Journal] records every call with its verdict. For a refusal it also records the condition
// that failed, which the caller does not learn:
//
//	cloud.Journal().Calls(journal.Filter{Service: "sts", Subject: "system:serviceaccount:tenant-a:tenant-a-ecr-sa"})
//
// [Cloud.Faults] injects faults: slow, failing, throttled or unreachable services, and wrong
// clocks. Roles, trust policies and permissions can change while sessions exist. A change is in
// force at once:
//
//	cloud.Faults().Add(fault.Fault{Service: "sts", Kind: fault.Throttle, Count: 3})
//	cloud.AWS().DeleteRole("123456789123", "tenant-a-ecr")
//
// # Errors
//
// If an Add, Put, Set or Delete method of a cloud fails, it changes nothing. For an invalid
// setting, the error is a [*setting.Error], whose Field is the setting's path in JSON. For a
// missing account, tenant or project, or a missing object in one, the error wraps
// [setting.ErrNotFound]. [Admin] returns an [*AdminError] that wraps the same errors.
//
// # From another process
//
// The proxy's own address serves an admin API in JSON, and [Admin] is its client:
// admin.AWS().PutRole(ctx, …) does what cloud.AWS().PutRole(…) does. The admin API and the proxy
// are open to everybody who can connect to loopback.
//
//	GET    /journal?service=&operation=&…          {"dropped":0,"totals":[…],"calls":[…]}; parameters as journal.ParseFilter reads them
//	DELETE /journal                                forget all calls
//	GET    /faults                                 {"faults":[…]}
//	POST   /faults                                 a fault.Fault; answers {"id":"…"}
//	DELETE /faults, DELETE /faults/{id}            end all faults, or one
//	PUT    /quotas                                 a list of fault.Quota, replacing all
//	PUT    /issuers                                an oidc.Static
//	GET    /ca.pem                                 the CA's certificate
//	GET    /env?ca=                                the result of Cloud.Env for the CA file ca
//	POST   /aws/accounts                           an aws.Account
//	PUT    /aws/accounts/{account}/oidc-providers  an aws.OIDCProvider; DELETE with ?url=
//	PUT    /aws/accounts/{account}/roles           an aws.Role; DELETE with ?name=
//	PUT    /aws/accounts/{account}/trust-policy    an IAM document, with ?role=
//	PUT    /aws/accounts/{account}/users           an aws.User; DELETE with ?name=
//	PUT    /aws/accounts/{account}/repositories    an aws.Repository; DELETE with ?region=&name=
//	PUT    /aws/accounts/{account}/buckets         an aws.Bucket; DELETE with ?name=
//	POST   /azure/tenants                          an azure.Tenant
//	PUT    /azure/tenants/{tenant}/applications    an azure.Application; DELETE with ?client-id=
//	PUT    /azure/tenants/{tenant}/federated-credentials  an azure.FederatedCredential, with ?client-id=; DELETE with ?client-id=&name=
//	PUT    /azure/tenants/{tenant}/registries      an azure.RegistryConfig; DELETE with ?name=
//	PUT    /azure/tenants/{tenant}/storage-accounts  an azure.StorageAccountConfig; DELETE with ?name=
//	PUT    /azure/tenants/{tenant}/key-vaults      an azure.KeyVaultConfig; DELETE with ?name=
//	PUT    /azure/managed-identity                 an azure.ManagedIdentity
//	POST   /gcp/projects                           a gcp.Project
//	PUT    /gcp/projects/{project}/bindings        a list of gcp.Binding
//	PUT    /gcp/projects/{project}/pools           a gcp.Pool; DELETE with ?id=
//	PUT    /gcp/projects/{project}/clusters        a gcp.Cluster; DELETE with ?location=&name=
//	PUT    /gcp/projects/{project}/service-accounts  a gcp.ServiceAccount; DELETE with ?email=
//	PUT    /gcp/projects/{project}/repositories    a gcp.Repository; DELETE with ?location=&name=
//	PUT    /gcp/projects/{project}/buckets         a gcp.Bucket; DELETE with ?name=
//	PUT    /gcp/projects/{project}/key-rings       a gcp.KeyRing; keys that exist stay
//	PUT    /gcp/metadata                           a gcp.Metadata; DELETE
//	POST   /alibaba/accounts                       an alibaba.Account
//	PUT    /alibaba/accounts/{account}/oidc-providers  an alibaba.OIDCProvider; DELETE with ?name=
//	PUT    /alibaba/accounts/{account}/roles       an alibaba.Role; DELETE with ?name=
//
// The same address is a metadata server of Google Cloud and of Azure, if the configuration has one.
// Clients find it by GCE_METADATA_HOST or AZURE_POD_IDENTITY_AUTHORITY_HOST. Some clients, such as
// Azure's SDK for Go, know only the IP address of Azure's metadata server. They reach it through
// the proxy.
//
// An error is answered with status 4xx and {"error":"…","field":"…"}. The status is 404 if the
// object to change does not exist. The field is present only if a setting is invalid.
//
// # Adding a cloud
//
// To add a cloud, write a package with a type like aws.Cloud. The type's method Service returns the
// service of a host, see package service. The package's function NewAdmin lists the changes of the
// cloud, see package change. Then add the cloud to [Config], [Cloud] and [Admin].
package cloudtest
