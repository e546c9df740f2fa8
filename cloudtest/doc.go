// Package cloudtest is a local cloud that verifies. Programs reach it under the clouds' real host
// names, over real TLS, with unmodified SDKs. It checks what the real clouds check: token
// signatures against the issuer's published keys, trust policies, SigV4, permissions for each
// request. It answers with their error codes and bodies. Nothing leaves the machine: the cloud
// refuses every host that it does not have, and records the refusal.
//
// # A world
//
// A [Config] describes accounts, roles, repositories and buckets; [ParseConfig] reads it from JSON.
// Trust and permission policies are IAM's own documents; Azure has tenants with applications and
// their federated credentials, and role assignments on registries and storage accounts; its
// subscriptions say who administers them. Alibaba Cloud has RAM's own trust policies.
//
//	cloud, err := cloudtest.New(cloudtest.Config{AWS: aws.Config{Accounts: []aws.Account{{
//		ID:            "123456789123",
//		OIDCProviders: []aws.OIDCProvider{{URL: issuer.URL(), ClientIDs: []string{"sts.amazonaws.com"}}},
//		Roles:         []aws.Role{{Name: "tenant-a-ecr", TrustPolicy: trust, Policies: map[string]json.RawMessage{"pull": pull}}},
//		Repositories:  []aws.Repository{{Region: "eu-west-1", Name: "tenant-a/app"}},
//	}}}})
//	defer cloud.Close()
//
// Issuers and data planes are HTTP handlers, handed in:
//
//	cloud.HandleIssuer(issuer)                          // an oidc.Issuer, which mints good and bad tokens
//	cloud.Handle("oidc.eks.eu-west-1.amazonaws.com", p) // or an oidc.Proxy to a kube-apiserver's documents
//	cloud.AWS().ServeRegistry(func(aws.Registry) http.Handler { return distribution })
//	cloud.AWS().ServeS3(objects)                        // addressed by path, without credentials and framing
//	cloud.Azure().ServeBlob(func(azure.StorageAccount) http.Handler { return blobs })
//	cloud.GCP().ServeStorage(storage)                   // what the clouds verify is not the data planes' business
//
// A data plane gets allowed requests only. The requests carry no credentials. They also carry
// nothing that would turn them into other requests: no mounts, no copy sources, no headers by which
// servers change a method or a path. A cloud's own hosts take no handler.
//
// # Ways in
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
// # What happened, and what goes wrong
//
// [Cloud.Journal] has every call with its verdict and, for a refusal, the condition that failed,
// which the caller is not told:
//
//	cloud.Journal().Calls(journal.Filter{Service: "sts", Subject: "system:serviceaccount:tenant-a:tenant-a-ecr-sa"})
//
// [Cloud.Faults] makes services slow, failing, throttled, unreachable or wrong about the time.
// Roles, trust and permissions change while sessions live, and are in force at once:
//
//	cloud.Faults().Add(fault.Fault{Service: "sts", Kind: fault.Throttle, Count: 3})
//	cloud.AWS().DeleteRole("123456789123", "tenant-a-ecr")
//
// # Errors
//
// Every Add, Put, Set and Delete of the clouds fails in one of two ways, and changes nothing
// then. An invalid setting is a [*setting.Error], which names the field by its path in JSON. An
// account, tenant, project or part of it that does not exist is an error that wraps
// [setting.ErrNotFound]. [Admin] returns the same errors.
//
// # From another process
//
// The proxy's own address serves an admin API in JSON, and [Admin] is its client:
// admin.AWS().PutRole(ctx, …) is cloud.AWS().PutRole(…). Like the proxy it is open to everybody who
// reaches loopback.
//
//	GET    /journal?service=&operation=&…          {"dropped":0,"totals":[…],"calls":[…]}; parameters as journal.ParseFilter reads them
//	DELETE /journal                                forget all calls
//	GET    /faults                                 {"faults":[…]}
//	POST   /faults                                 a fault.Fault; answers {"id":"…"}
//	DELETE /faults, DELETE /faults/{id}            end all faults, or one
//	PUT    /quotas                                 a list of fault.Quota, replacing all
//	PUT    /issuers                                an oidc.Static
//	GET    /ca.pem                                 the CA's certificate
//	GET    /env?ca=                                the environment as Cloud.Env has it, for a CA in that file
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
//	PUT    /azure/managed-identity                 an azure.ManagedIdentity
//	POST   /gcp/projects                           a gcp.Project
//	PUT    /gcp/projects/{project}/bindings        a list of gcp.Binding
//	PUT    /gcp/projects/{project}/pools           a gcp.Pool; DELETE with ?id=
//	PUT    /gcp/projects/{project}/clusters        a gcp.Cluster; DELETE with ?location=&name=
//	PUT    /gcp/projects/{project}/service-accounts  a gcp.ServiceAccount; DELETE with ?email=
//	PUT    /gcp/projects/{project}/repositories    a gcp.Repository; DELETE with ?location=&name=
//	PUT    /gcp/projects/{project}/buckets         a gcp.Bucket; DELETE with ?name=
//	PUT    /gcp/metadata                           a gcp.Metadata; DELETE
//	POST   /alibaba/accounts                       an alibaba.Account
//	PUT    /alibaba/accounts/{account}/oidc-providers  an alibaba.OIDCProvider; DELETE with ?name=
//	PUT    /alibaba/accounts/{account}/roles       an alibaba.Role; DELETE with ?name=
//
// The same address is the metadata server of Google Cloud and of Azure, if the configuration has
// one, for clients that have it in GCE_METADATA_HOST or AZURE_POD_IDENTITY_AUTHORITY_HOST. Clients
// that know Azure's by its address only, as the SDK for Go does, reach it through the proxy.
//
// An error is answered with status 4xx and {"error":"…","field":"…"}: 404 for what does not exist,
// the field if one is at fault.
//
// # Another cloud
//
// A cloud is a folder with a type like aws.Cloud. Its method Service returns what answers at a
// host, see package service, and its NewAdmin lists its changes, see package change. [Config],
// [Cloud] and [Admin] name it.
package cloudtest
