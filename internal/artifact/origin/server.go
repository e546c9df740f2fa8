// Package origin explains why a server delivered no artifact. The server is a registry or the
// endpoint of a bucket. An [Error] has the cause, and the next step for the owner of the object
// that names the server. Every [Code] has a next step. The step also depends on the [Caller]. For
// example, a caller without a credential must first send one, because rights are granted to
// identities.
package origin

import (
	"cmp"
	"net/url"
	"strings"

	"github.com/lanyard-dev/lanyard/auth/transport/attempt"
)

// Kind is the word for a server in error texts.
type Kind string

// The kinds of servers.
const (
	Registry Kind = "registry"
	Endpoint Kind = "endpoint"
)

// Server is a server that has artifacts.
type Server struct {
	Caller

	// Kind is the word for the server in error texts.
	Kind Kind
	// Host is the server's host[:port].
	Host string
}

// Caller says how a server is asked: by whom, with which credential, and through which proxy.
type Caller struct {
	// Anonymous says that no credential is sent.
	Anonymous bool
	// Provider is the cloud to which the server's host belongs, as a value of spec.provider; empty
	// if the host belongs to no cloud.
	Provider string
	// Proxy names the setting that configures the proxy to the server, such as spec.proxySecretRef;
	// empty without a proxy.
	Proxy string
	// CommandLine is true if the caller is a command, and not a controller. Next steps then mention
	// the command's flags instead of an object's fields.
	CommandLine bool
}

// SameHost reports whether a URL has this host[:port]. The default port is 443 for https and 80 for
// http. strings.ToLower is not used, because it maps the letter İ to i: two different hosts would
// be equal.
func SameHost(u *url.URL, hostport string) bool {
	normal := func(v *url.URL) string {
		port := v.Port()
		switch {
		case port != "":
		case u.Scheme == "http":
			port = "80"
		default:
			port = "443"
		}
		return v.Hostname() + " " + port
	}
	return strings.EqualFold(normal(u), normal(&url.URL{Host: hostport}))
}

// Insecure returns the name of the setting that allows requests without TLS.
func (s Server) Insecure() string { return s.side().Insecure }

// side returns the names of the server and of its settings, for the error texts of package attempt.
func (s Server) side() attempt.Side {
	if s.CommandLine {
		return attempt.Side{
			Name: "the " + string(s.Kind), Here: "this machine", Certificates: "--ca-file", ClientCertificate: "--creds=SpiffeCertificate",
			Insecure: "--insecure-registry", Proxy: s.Proxy,
		}
	}
	return attempt.Side{Name: "the " + string(s.Kind), Certificates: "spec.certSecretRef", Insecure: "spec.insecure", Proxy: s.Proxy}
}

// step returns the advice for the error's code: a text that says what the user should do next. It
// is empty for an unknown code.
func (e *Error) step() string {
	if e.CommandLine {
		return e.commandStep()
	}
	s, server := e.Server, "the "+cmp.Or(string(e.Kind), "server")
	switch e.Code {
	case CodeInvalidURL, CodeInvalidReference:
		return "correct " + cmp.Or(e.Field, "the object's spec")
	case CodeUnreachable:
		return "check that " + cmp.Or(s.proxy(), "the controller") + " can reach " + server
	case CodeUnauthorized:
		return cmp.Or(s.credentialStep(), "check that the credential is for this "+string(s.Kind)+" and has not expired")
	case CodeDenied:
		return cmp.Or(s.credentialStep(), s.grantStep(e.Permission))
	case CodeNotFound:
		missing := "create the " + s.content() + " or correct the name"
		if credential := s.credentialStep(); credential != "" {
			return missing + "; if it is there but private, no credential was sent: " + credential
		}
		return missing
	case CodeTagNotFound:
		return "push this tag or digest, or correct the reference"
	case CodeBlobNotFound:
		return "push the artifact again"
	case CodeThrottled:
		if s.Anonymous {
			return "reconcile less often (spec.interval); no credential was sent, and servers allow fewer requests without one: " +
				s.credentialStep()
		}
		return "reconcile less often (spec.interval); the controller tries again"
	case CodeServer:
		return "find out what is wrong with " + both(server, s.proxy()) + "; the controller tries again"
	case CodeChanged:
		return "wait: the controller lists the bucket again"
	case CodeProtocol:
		return s.protocolStep()
	case CodeDigestMismatch:
		return "push the artifact again, and check " + cmp.Or(s.proxy(), "what stands between here and "+server)
	case CodeTruncated:
		return "check the network to " + both(server, s.proxy()) + "; the controller tries again"
	case CodeTooLarge:
		return "publish less, or ask the administrator for a higher limit"
	case CodeUnsupportedMediaType:
		return "push an OCI image manifest with a layer of type tar+gzip"
	case CodeNoMatch:
		return "push such a version or widen the range"
	}
	return ""
}

// credentialStep returns the advice to configure a credential, if none was sent. If one was sent,
// the result is empty.
func (s Server) credentialStep() string {
	secret := "name a Secret with a credential in spec.secretRef"
	switch {
	case !s.Anonymous:
		return ""
	case s.Provider != "":
		return "set spec.provider: " + s.Provider + ", with spec.serviceAccountName if the ServiceAccount has the identity; or " + secret
	case s.Kind == Registry:
		return secret + ", or in the imagePullSecrets of spec.serviceAccountName"
	default:
		return secret
	}
}

func (s Server) grantStep(permission string) string {
	step := "grant this identity access to the " + s.content()
	if s.Kind == Endpoint {
		step = "grant this identity to list the bucket and to read its objects"
	}
	if permission != "" {
		step += " (" + permission + ")"
	}
	return step
}

func (s Server) protocolStep() string {
	step := "check that the host is an OCI registry"
	if s.Kind == Endpoint {
		step = "check that the endpoint serves buckets of this provider"
	}
	// The host belongs to a cloud, whose buckets may need another protocol than S3: spec.provider
	// selects it.
	if s.Anonymous && s.Provider != "" {
		step = s.credentialStep()
	}
	if s.Proxy != "" {
		step += ", and check that " + s.proxy() + " passes on what it says"
	}
	return step
}

// content returns the noun for what the server has: a bucket or a repository.
func (s Server) content() string {
	if s.Kind == Endpoint {
		return "bucket"
	}
	return "repository"
}

// proxy returns the proxy's name in error texts; empty without a proxy.
func (s Server) proxy() string {
	if s.Proxy == "" {
		return ""
	}
	return "the proxy in " + s.Proxy
}

// both joins two nouns with "or". The second may be empty.
func both(first, second string) string {
	if second == "" {
		return first
	}
	return first + " or " + second
}
