package pki

import (
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"
)

// writeKubeconfig writes a kubeconfig file for the API server at a URL. The file has the
// authority's certificate as the cluster's CA, and the user's certificate and key.
func (a *authority) writeKubeconfig(path, server string, user pair) error {
	const name = "lanyard" // name of the cluster, the user and the context
	text, err := clientcmd.Write(api.Config{
		Clusters:       map[string]*api.Cluster{name: {Server: server, CertificateAuthorityData: a.pem()}},
		AuthInfos:      map[string]*api.AuthInfo{name: {ClientCertificateData: user.cert, ClientKeyData: user.key}},
		Contexts:       map[string]*api.Context{name: {Cluster: name, AuthInfo: name}},
		CurrentContext: name,
	})
	if err != nil {
		return err
	}
	return WriteFile(path, text)
}
