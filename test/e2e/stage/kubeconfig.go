package stage

import (
	"encoding/base64"
	"fmt"
)

// Kubeconfig returns a kubeconfig file for an API server. The authority is the PEM text of the
// certificates that the server's certificate is verified with. The fields of the user are those of a
// map in YAML, such as "token: x".
func Kubeconfig(server string, authority []byte, user string) string {
	return fmt.Sprintf(`apiVersion: v1
kind: Config
current-context: c
contexts: [{name: c, context: {cluster: elsewhere, user: me}}]
clusters: [{name: elsewhere, cluster: {server: %q, certificate-authority-data: %s}}]
users: [{name: me, user: {%s}}]
`, server, base64.StdEncoding.EncodeToString(authority), user)
}
