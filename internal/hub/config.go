package hub

import (
	"errors"
	"fmt"
	"net/url"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// LoadConfig reads the spoke's kubeconfig file for the hub. It adds a suffix to the HTTP user
// agent, which appears in the hub's logs. The connection carries credentials. So the server URL
// must have the scheme https, and the kubeconfig must not skip the check of the server's
// certificate. LoadConfig also refuses a kubeconfig with a credential plugin, because Lanyard
// starts no program for a credential.
func LoadConfig(path, agent string) (*rest.Config, error) {
	config, err := clientcmd.BuildConfigFromFlags("", path)
	if err != nil {
		return nil, fmt.Errorf("read the hub's kubeconfig: %w", err)
	}
	server, err := url.Parse(config.Host)
	switch {
	case err != nil || server.Scheme != "https" || server.Host == "":
		return nil, errors.New("the server in the hub's kubeconfig must be an https URL")
	case config.Insecure:
		return nil, errors.New("the hub's kubeconfig has insecure-skip-tls-verify: name the authority of the hub's certificate instead")
	case config.ExecProvider != nil || config.AuthProvider != nil:
		return nil, errors.New(
			"the hub's kubeconfig has a credential plugin, and Lanyard starts no program for a credential: write tokenFile instead")
	}
	config = rest.AddUserAgent(config, agent)
	config.QPS = -1 // no limit at the client: the hub's API Priority and Fairness bounds the rate
	return config, nil
}
