package pki

import (
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"
)

// writeKubeconfig writes a kubeconfig file with one context. The context's cluster has the URL in
// server, and the receiver as its CA. The context's user has the certificate and the key in user.
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
