package delivery

import (
	"encoding/base64"
	"strings"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/lanyard-dev/lanyard/auth/endpoint"
)

// Keys of the files in the Secret's data. An environment variable has its own name as its key.
const (
	awsConfigKey  = "config"
	gcpConfigKey  = "credentials.json"
	vaultLoginKey = "login.json"
	kubeconfigKey = "kubeconfig"
)

// renderAWS renders the AWS SDKs' variables, and a shared config file with the same values. Source:
// AWS SDKs and Tools Reference Guide, "Assume role credential provider".
func renderAWS(fields map[string]string, files folder) (map[string][]byte, error) {
	if fields["assumeRole"] != "" {
		return nil, chained("assumeRole")
	}
	role, token, region := fields["iamRoleARN"], files.path(TokenKey), fields["region"]
	if strings.ContainsAny(role, "\"'`;#\\") { // IAM allows these characters in a role's path, but SDKs read them differently
		return nil, &Error{
			configField + ".iamRoleARN",
			"has a character in its path that SDKs read differently: a quote, a semicolon, a hash or a backslash",
			"use a role with another path, or set spec.store.format of the binding to token",
		}
	}
	data := map[string][]byte{"AWS_ROLE_ARN": []byte(role), "AWS_WEB_IDENTITY_TOKEN_FILE": []byte(token)}
	settings := []setting{{"role_arn", role}, {"web_identity_token_file", token}}
	if region != "" {
		data["AWS_REGION"] = []byte(region)
		settings = append(settings, setting{"region", region})
	}
	data[awsConfigKey] = profile(settings)
	return data, nil
}

// chained returns the error for a field that adds a step to an identity's chain. An SDK's
// environment variables cannot express the step, so the SDK would silently act as the first
// identity of the chain.
func chained(name string) error {
	return &Error{
		configField + "." + name, "cannot be told to an SDK",
		"set spec.store.format of the binding to one that holds an exchanged credential, or leave the field out",
	}
}

// setting is one line of an AWS config or credentials file.
type setting struct{ name, value string }

// profile renders the default profile of an AWS config or credentials file. The parsers of the
// values have refused spaces, quotes and control characters. So no value can end a line or begin a
// comment.
func profile(settings []setting) []byte {
	var b strings.Builder
	b.WriteString("[default]\n")
	for _, s := range settings {
		b.WriteString(s.name + " = " + s.value + "\n")
	}
	return []byte(b.String())
}

// renderAzure renders the variables of Azure Identity's WorkloadIdentityCredential. Source: Azure
// Identity client library, "Environment variables".
func renderAzure(fields map[string]string, files folder) (map[string][]byte, error) {
	data := map[string][]byte{
		"AZURE_CLIENT_ID": []byte(fields["clientID"]), "AZURE_TENANT_ID": []byte(fields["tenantID"]),
		"AZURE_FEDERATED_TOKEN_FILE": []byte(files.path(TokenKey)),
	}
	if id := fields["subscriptionID"]; id != "" {
		data["AZURE_SUBSCRIPTION_ID"] = []byte(id)
	}
	return data, nil
}

// externalAccount is Google's credential configuration of a federated identity. Source: AIP-4117.
type externalAccount struct {
	Type                           string           `json:"type"`
	UniverseDomain                 string           `json:"universe_domain"`
	Audience                       string           `json:"audience"`
	SubjectTokenType               string           `json:"subject_token_type"`
	TokenURL                       string           `json:"token_url"`
	ServiceAccountImpersonationURL string           `json:"service_account_impersonation_url,omitempty"`
	CredentialSource               credentialSource `json:"credential_source"`
}

type credentialSource struct {
	File   string            `json:"file"`
	Format map[string]string `json:"format"`
}

// renderGCP renders the credential configuration for Google's libraries. A library sends the token
// to the URLs in this file. So all URLs come from Lanyard's table of universes.
func renderGCP(fields map[string]string, files folder) (map[string][]byte, error) {
	if fields["impersonate"] != "" {
		return nil, chained("impersonate")
	}
	provider, err := endpoint.ParseGCPWorkloadProvider(fields["workloadIdentityProvider"])
	if err != nil {
		return nil, &Error{configField + ".workloadIdentityProvider", err.Error(), "correct the field of the WorkloadIdentity"}
	}
	universe := endpoint.GCPUniverses()[0]
	var account endpoint.GCPServiceAccount
	if email := fields["serviceAccountEmail"]; email != "" {
		if account, err = endpoint.ParseGCPServiceAccount(email); err == nil {
			universe, err = endpoint.ParseGCPUniverse(account.Universe)
		}
		if err != nil {
			return nil, &Error{configField + ".serviceAccountEmail", err.Error(), "correct the field of the WorkloadIdentity"}
		}
	}
	file := externalAccount{ //nolint:gosec // URLs and names, which are public
		Type: "external_account", UniverseDomain: universe.Domain, Audience: provider.FullName(),
		SubjectTokenType: "urn:ietf:params:oauth:token-type:jwt", TokenURL: "https://" + universe.APIHost("sts") + "/v1/token",
		CredentialSource: credentialSource{File: files.path(TokenKey), Format: map[string]string{"type": "text"}},
	}
	if account.Email != "" {
		file.ServiceAccountImpersonationURL = "https://" + universe.APIHost("iamcredentials") +
			"/v1/projects/-/serviceAccounts/" + account.Email + ":generateAccessToken"
	}
	data := map[string][]byte{gcpConfigKey: encode(file), "GOOGLE_APPLICATION_CREDENTIALS": []byte(files.path(gcpConfigKey))}
	if project := fields["projectID"]; project != "" {
		data["GOOGLE_CLOUD_PROJECT"] = []byte(project)
	}
	return data, nil
}

// renderAlibaba renders the variables of Alibaba Cloud's credentials libraries. Source: Alibaba
// Cloud SDK, "Manage access credentials: OIDC role ARN".
func renderAlibaba(fields map[string]string, files folder) (map[string][]byte, error) {
	return map[string][]byte{
		"ALIBABA_CLOUD_ROLE_ARN": []byte(fields["roleARN"]), "ALIBABA_CLOUD_OIDC_PROVIDER_ARN": []byte(fields["oidcProviderARN"]),
		"ALIBABA_CLOUD_OIDC_TOKEN_FILE": []byte(files.path(TokenKey)),
	}, nil
}

// renderVault renders Vault's address, and the body of a login at auth/<mount>/login. Source: Vault
// API, "JWT/OIDC auth method: JWT login".
func renderVault(fields map[string]string, files folder) (map[string][]byte, error) {
	return map[string][]byte{
		"VAULT_ADDR":  []byte(fields["address"]),
		vaultLoginKey: encode(map[string]string{"role": fields["role"], "jwt": files.token}),
	}, nil
}

// renderKubernetes renders a kubeconfig whose user refers to the token's file. Clients read the
// file again every minute. Source: client-go, rest.Config.BearerTokenFile.
func renderKubernetes(fields map[string]string, files folder) (map[string][]byte, error) {
	authority, err := base64.StdEncoding.DecodeString(fields["certificateAuthorityData"])
	if err != nil {
		return nil, &Error{configField + ".certificateAuthorityData", "is not base64", "correct the field of the WorkloadIdentity"}
	}
	const name = "lanyard"
	config := clientcmdapi.NewConfig()
	config.Clusters[name] = &clientcmdapi.Cluster{Server: fields["server"], CertificateAuthorityData: authority}
	config.AuthInfos[name] = &clientcmdapi.AuthInfo{TokenFile: files.path(TokenKey)}
	config.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: name}
	config.CurrentContext = name
	kubeconfig, err := clientcmd.Write(*config)
	if err != nil {
		return nil, &Error{configField, "gives no kubeconfig: " + err.Error(), "correct the field of the WorkloadIdentity"}
	}
	return map[string][]byte{kubeconfigKey: kubeconfig, "KUBECONFIG": []byte(files.path(kubeconfigKey))}, nil
}
