package pki

import (
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"
)

// writeKubeconfig writes a file with one context. Its cluster is the server, whose CA is a. Its
// user has the certificate and the key in user.
func (a *authority) writeKubeconfig(path, server string, user pair) error {
	const name = "lanyard" // of the cluster, the user and the context
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
