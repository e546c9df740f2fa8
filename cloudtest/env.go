package cloudtest

import "strings"

// Env returns the environment variables with which a program reaches the local cloud, as NAME=VALUE
// in a fixed order. The argument is the path of the file that [Cloud.WriteCA] wrote.
//
// Append the variables to an inherited environment. They override variables that would make a
// program bypass the proxy or read another CA file. Connections to loopback do not go through the
// proxy.
//
// If the cloud has Google Cloud's metadata server, GCE_METADATA_HOST is the proxy's host and port.
// If it has Azure's, AZURE_POD_IDENTITY_AUTHORITY_HOST is the proxy's URL. The proxy serves the
// metadata at its own address.
//
// Env sets no identity: AWS_PROFILE, keys and token files are up to the caller.
func (c *Cloud) Env(caFile string) []string {
	env := Env(c.ProxyURL(), caFile)
	if c.gcp.HasMetadata() {
		env = append(env, "GCE_METADATA_HOST="+strings.TrimPrefix(c.ProxyURL(), "http://"))
	}
	if c.azure.HasMetadata() {
		env = append(env, "AZURE_POD_IDENTITY_AUTHORITY_HOST="+c.ProxyURL())
	}
	return env
}

// Env is [Cloud.Env] for a cloud in another process, without the variables for metadata servers.
// Sources: Go's net/http and crypto/x509; AWS SDKs and Tools Reference Guide; Alibaba Cloud SDK,
// "Manage access credentials"; Node.js CLI options.
func Env(proxyURL, caFile string) []string {
	const direct = "localhost,127.0.0.1,::1"
	return []string{
		"HTTPS_PROXY=" + proxyURL,
		"https_proxy=" + proxyURL,
		"HTTP_PROXY=" + proxyURL, // so that the proxy refuses and records plain HTTP
		"http_proxy=" + proxyURL,
		"ALL_PROXY=" + proxyURL,
		"all_proxy=" + proxyURL,
		"NO_PROXY=" + direct,
		"no_proxy=" + direct,
		"SSL_CERT_FILE=" + caFile,
		"AWS_CA_BUNDLE=" + caFile, // an inherited value would win over SSL_CERT_FILE
		"REQUESTS_CA_BUNDLE=" + caFile,
		"CURL_CA_BUNDLE=" + caFile,
		"NODE_EXTRA_CA_CERTS=" + caFile,
		// The metadata servers of EC2 and ECS have no host name, so the cloud does not serve them.
		"AWS_EC2_METADATA_DISABLED=true",
		"ALIBABA_CLOUD_ECS_METADATA_DISABLED=true",
		"AWS_IGNORE_CONFIGURED_ENDPOINT_URLS=true",
		"AWS_ENDPOINT_URL=",
		"AWS_ENDPOINT_URL_IAM=",
		"AWS_ENDPOINT_URL_STS=",
		"AWS_ENDPOINT_URL_ECR=",
		"AWS_ENDPOINT_URL_ECR_PUBLIC=",
		"AWS_ENDPOINT_URL_S3=",
		"AWS_ENDPOINT_URL_KMS=",
	}
}
