// Package kubeconfig connects to clusters with kubeconfig files that tenants wrote.
//
// A kubeconfig file can run programs, read other files, and switch off the check of the server's
// certificate. Such files are made for the machine of the person who wrote the file. On a machine
// that reads files of tenants, a tenant could run programs and read the machine's files. [Parse]
// refuses such files.
//
// The tenant also chooses the server, which can send any answer, or no answer. So [Clusters] bounds
// what a server's answers cost.
package kubeconfig

import (
	"cmp"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"regexp"
	"strings"

	yamlnode "go.yaml.in/yaml/v3"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/lanyard-dev/lanyard/auth/endpoint"
	"github.com/lanyard-dev/lanyard/internal/certificate"
)

// maxBytes bounds a file. A file with several certificates has less than 20 KiB.
const maxBytes = 64 << 10

// Error says what is wrong in a file. Its text contains no credential.
type Error struct {
	// Field is the field with the mistake, such as `clusters["prod"].cluster.server`. It is empty
	// if the whole file is wrong.
	Field string
	// Err describes the mistake.
	Err error
	// Fix is the next step for the user, as a sentence without a full stop.
	Fix string
}

// Error implements error.
func (e *Error) Error() string {
	if e.Field == "" {
		return fmt.Sprintf("kubeconfig: %v; %s", e.Err, e.Fix)
	}
	return fmt.Sprintf("kubeconfig: %s: %v; %s", e.Field, e.Err, e.Fix)
}

// Unwrap returns the mistake.
func (e *Error) Unwrap() error { return e.Err }

// Connection says how to reach an API server, and who acts there.
type Connection struct {
	// Config has the address, the proxy, and a token or a password. It has no certificates.
	Config *rest.Config
	// TLS has the authorities and the client certificate of the file. Without authorities in the file,
	// those of the system count.
	TLS *tls.Config

	authority []byte // text of the authorities
}

// Parse returns the connection of the file's current context. All credentials of the connection are
// from the file, and so is its proxy. Without a proxy in the file, there is none. The function
// checkTarget refuses a host:port that a proxy must not be asked to reach. An error is an [*Error].
func Parse(content []byte, checkTarget func(hostport string) error) (*Connection, error) {
	file, err := load(content)
	if err != nil {
		return nil, err
	}
	current := file.Contexts[file.CurrentContext]
	if current == nil {
		return nil, &Error{Field: "current-context", Err: fmt.Errorf("there is no context %q", file.CurrentContext), Fix: "set current-context to the name of a context in the file"}
	}
	cluster, user := file.Clusters[current.Cluster], file.AuthInfos[current.AuthInfo]
	place := fmt.Sprintf("contexts[%q].context.", file.CurrentContext)
	if cluster == nil {
		return nil, &Error{Field: place + "cluster", Err: fmt.Errorf("there is no cluster %q", current.Cluster), Fix: "name a cluster in the file"}
	}
	if user == nil {
		return nil, &Error{Field: place + "user", Err: fmt.Errorf("there is no user %q", current.AuthInfo), Fix: "name a user in the file"}
	}
	proxy, err := checkCluster(fmt.Sprintf("clusters[%q].cluster.", current.Cluster), cluster, checkTarget)
	if err != nil {
		return nil, err
	}
	if err := checkUser(fmt.Sprintf("users[%q].user.", current.AuthInfo), user); err != nil {
		return nil, err
	}
	config := &rest.Config{
		Host: cluster.Server, Username: user.Username, Password: user.Password, BearerToken: user.Token,
		// A nil function would mean the proxy of this program's environment.
		Proxy: func(*http.Request) (*url.URL, error) { return proxy, nil },
	}
	secured, err := tlsConfig(current, cluster, user)
	if err != nil {
		return nil, err
	}
	return &Connection{Config: config, TLS: secured, authority: cluster.CertificateAuthorityData}, nil
}

// tlsConfig parses the certificates of a cluster and of a user.
func tlsConfig(names *clientcmdapi.Context, cluster *clientcmdapi.Cluster, user *clientcmdapi.AuthInfo) (*tls.Config, error) {
	config := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: cluster.TLSServerName}
	refuse := func(field string, err error) (*tls.Config, error) {
		refused := &Error{Field: field, Err: err, Fix: "correct the field"}
		if known, ok := errors.AsType[*certificate.Error](err); ok {
			refused.Err, refused.Fix = errors.New(known.What), known.Fix
		}
		return nil, refused
	}
	if data := cluster.CertificateAuthorityData; len(data) > 0 {
		authorities, err := certificate.Authorities(certificate.Text{Name: "certificate-authority-data", Data: data})
		if err != nil {
			return refuse(fmt.Sprintf("clusters[%q].cluster.certificate-authority-data", names.Cluster), err)
		}
		config.RootCAs = x509.NewCertPool()
		for _, a := range authorities {
			config.RootCAs.AddCert(a)
		}
	}
	if data := user.ClientCertificateData; len(data) > 0 {
		pair, err := certificate.Client(certificate.Text{Name: "client-certificate-data", Data: data}, certificate.Text{Name: "client-key-data", Data: user.ClientKeyData})
		if err != nil {
			return refuse(fmt.Sprintf("users[%q].user.client-certificate-data", names.AuthInfo), err)
		}
		config.Certificates = []tls.Certificate{pair}
	}
	return config, nil
}

// lineNumber matches the place in an error of the YAML library.
var lineNumber = regexp.MustCompile(`line \d+`)

// load decodes a file. Its error has only the line number, because the libraries' errors quote the
// file.
func load(content []byte) (*clientcmdapi.Config, error) {
	const fix = "store the output of kubectl config view --raw --flatten --minify"
	if len(content) > maxBytes {
		return nil, &Error{Err: fmt.Errorf("the file has %d bytes, and %d are allowed", len(content), maxBytes), Fix: fix}
	}
	plain, err := toJSON(content)
	var file *clientcmdapi.Config
	if err == nil {
		file, err = clientcmd.Load(plain)
	}
	if errors.Is(err, errComplex) {
		return nil, &Error{Err: err, Fix: fix}
	}
	if err != nil {
		message := "this is no kubeconfig file"
		if line := lineNumber.FindString(err.Error()); line != "" {
			message += ", see " + line
		}
		return nil, &Error{Err: errors.New(message), Fix: fix}
	}
	return file, nil
}

var errComplex = errors.New("the file has an alias, a repeated key, or too many values")

// maxNodes bounds the keys and values of a file. A context with its cluster and its user has 40.
const maxNodes = 4000

// toJSON converts YAML to JSON, which clientcmd.Load also reads. An alias of YAML stands for an
// earlier part of the file: a short file with aliases can mean a text of gigabytes. The library
// compares repeated keys pairwise. So toJSON refuses both.
func toJSON(content []byte) ([]byte, error) {
	var document yamlnode.Node
	if err := yamlnode.Unmarshal(content, &document); err != nil {
		return nil, err
	}
	left := maxNodes
	if !isSimple(&document, &left) {
		return nil, errComplex
	}
	var value any
	if err := document.Decode(&value); err != nil {
		return nil, err
	}
	return json.Marshal(value)
}

// isSimple reports whether a node has no aliases, no repeated keys, and no more nodes than are left.
func isSimple(node *yamlnode.Node, left *int) bool {
	if *left--; *left < 0 || node.Kind == yamlnode.AliasNode {
		return false
	}
	keys := map[string]bool{}
	for i, child := range node.Content {
		if node.Kind == yamlnode.MappingNode && i%2 == 0 {
			if child.Kind != yamlnode.ScalarNode || keys[child.Value] {
				return false
			}
			keys[child.Value] = true
		}
		if !isSimple(child, left) {
			return false
		}
	}
	return true
}

// checkHost refuses the host of a URL if it is neither an IP address nor a DNS name.
func checkHost(u *url.URL) error {
	host := u.Hostname()
	if _, err := netip.ParseAddr(host); err == nil {
		return nil
	}
	if len(validation.IsDNS1123Subdomain(strings.ToLower(strings.TrimSuffix(host, ".")))) > 0 {
		return errors.New("the host is neither an IP address nor a DNS name")
	}
	return nil
}

// hostport returns the host and the port of an https URL.
func hostport(u *url.URL) string { return net.JoinHostPort(u.Hostname(), cmp.Or(u.Port(), "443")) }

// checkCluster checks how to reach the API server, and returns the URL of the proxy, if any.
func checkCluster(field string, cluster *clientcmdapi.Cluster, checkTarget func(string) error) (proxy *url.URL, err error) {
	server, err := url.Parse(cluster.Server)
	switch {
	case cluster.InsecureSkipTLSVerify:
		return nil, &Error{
			Field: field + "insecure-skip-tls-verify", Err: errors.New("a credential is sent to verified servers only"),
			Fix: "remove the field, and set certificate-authority-data",
		}
	case cluster.CertificateAuthority != "":
		return nil, pathError(field+"certificate-authority", "certificate-authority-data")
	case err != nil, server.Scheme != "https", server.Host == "", server.User != nil, server.RawQuery != "", server.Fragment != "", checkHost(server) != nil:
		return nil, &Error{Field: field + "server", Err: errors.New("this is no address of an API server"), Fix: "write https://<host>, with a port and a path if the server needs them"}
	case cluster.ProxyURL == "":
		return nil, nil
	}
	proxy, err = url.Parse(cluster.ProxyURL)
	// With https, the authority and the certificate of the API server would be used for the proxy, too.
	if err != nil || checkHost(proxy) != nil || proxy.Scheme != "http" && proxy.Scheme != "socks5" {
		return nil, &Error{Field: field + "proxy-url", Err: errors.New("this is no address of a proxy that is supported"), Fix: "write http://<host>:<port> or socks5://<host>:<port>"}
	}
	if err := checkTarget(hostport(server)); err != nil {
		refused := &Error{Field: field + "server", Err: err, Fix: "write an address that the proxy may reach"}
		if address, ok := errors.AsType[*endpoint.AddressError](err); ok {
			refused.Err, refused.Fix = &AddressError{address}, address.Fix()
		}
		return nil, refused
	}
	return proxy, nil
}

// checkUser checks who acts.
func checkUser(field string, user *clientcmdapi.AuthInfo) error {
	switch {
	case user.Exec != nil:
		return &Error{Field: field + "exec", Err: errors.New("no program is run for a credential"), Fix: "use a token or a client certificate in the file"}
	case user.AuthProvider != nil:
		return &Error{Field: field + "auth-provider", Err: errors.New("no plugin is run for a credential"), Fix: "use a token or a client certificate in the file"}
	case user.TokenFile != "":
		return pathError(field+"tokenFile", "token")
	case user.ClientCertificate != "":
		return pathError(field+"client-certificate", "client-certificate-data")
	case user.ClientKey != "":
		return pathError(field+"client-key", "client-key-data")
	case user.Impersonate != "", user.ImpersonateUID != "", len(user.ImpersonateGroups) > 0, len(user.ImpersonateUserExtra) > 0:
		return &Error{Field: field + "as", Err: errors.New("the file's user must act as itself"), Fix: "remove as, as-uid, as-groups and as-user-extra"}
	case user.Token != "" && user.Username != "":
		return &Error{Field: field + "token", Err: errors.New("a user has either a token or a password"), Fix: "remove token, or username and password"}
	case user.Token == "" && user.Username == "" && len(user.ClientCertificateData) == 0:
		return &Error{Field: field + "token", Err: errors.New("the user has no credential"), Fix: "set token, or client-certificate-data and client-key-data"}
	case (len(user.ClientCertificateData) == 0) != (len(user.ClientKeyData) == 0):
		return &Error{Field: field + "client-key-data", Err: errors.New("a certificate and its key belong together"), Fix: "set client-certificate-data and client-key-data"}
	}
	return nil
}

// pathError refuses a path: the file would be one of this program's machine.
func pathError(field, instead string) *Error {
	return &Error{Field: field, Err: errors.New("paths are refused, since the file would be one of the controller"), Fix: "write the content into " + instead + " (kubectl config view --raw --flatten)"}
}
