package pki

import (
	"encoding/base64"
	"fmt"
)

// kubeconfig renders a file with one context. It quotes nothing because no value has a character
// with a special meaning in YAML.
func kubeconfig(server string, ca []byte, user pair) []byte {
	b64 := base64.StdEncoding.EncodeToString
	return fmt.Appendf(nil, `apiVersion: v1
kind: Config
clusters:
- name: lanyard
  cluster:
    server: %s
    certificate-authority-data: %s
users:
- name: lanyard
  user:
    client-certificate-data: %s
    client-key-data: %s
contexts:
- name: lanyard
  context:
    cluster: lanyard
    user: lanyard
current-context: lanyard
`, server, b64(ca), b64(user.cert), b64(user.key))
}
