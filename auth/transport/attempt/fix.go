package attempt

import (
	"cmp"
	"net/http"
)

// Side describes the other side of a connection, for texts that people read.
type Side struct {
	// Name is the other side's name in a sentence, such as "the registry" or
	// "sts.eu-west-1.amazonaws.com".
	Name string
	// Certificates is the setting for the other side's certificate authority and for a client
	// certificate, such as "spec.certSecretRef". It is empty if there is no such setting. Then the
	// connection uses the certificate authorities that the controller trusts.
	Certificates string
	// Insecure is the setting that allows a connection without TLS; empty if there is no such
	// setting.
	Insecure string
	// ClientCertificate names the setting for a client certificate, such as
	// "--creds=SpiffeCertificate". It is empty in two cases:
	//   - There is no such setting.
	//   - The setting that Certificates names is also for the client certificate.
	ClientCertificate string
	// Here names the sender in a sentence, such as "this machine"; empty means "the controller".
	Here string
	// Proxy is the setting for the connection's proxy, such as "spec.proxySecretRef". It is empty
	// if there is no proxy, or if the setting is unknown.
	Proxy string
}

func (s Side) here() string { return cmp.Or(s.Here, "the controller") }

// Fix returns what people can do about the failure, as the last part of an error message. The
// argument side describes the other side of the connection, such as a registry. Fix mentions a
// setting of side, such as Certificates, only if that field is set.
func (f *Failure) Fix(side Side) string {
	switch {
	case f.Cause == AddressNotAllowed:
		return f.refusal().Fix()
	case f.Cause == ProxyRefused:
		return proxyFix(f.ProxyStatus, side)
	case f.AtProxy:
		return "check the proxy's URL and certificate" + side.inProxySetting() + ", and that " + side.here() + " can reach the proxy"
	}
	switch f.Cause {
	case NoSuchHost:
		return "check the host's name, and that " + side.here() + "'s DNS knows the name"
	case ResolverFailed, ResolverTimedOut:
		return "check the DNS servers that " + side.here() + " asks"
	case TooSlow:
		return slowFix(side)
	case NoTLS:
		return noTLSFix(side)
	case AuthorityUnknown:
		return authorityFix(side)
	case CertificateOfOtherHost:
		return "name a host that the certificate of " + side.Name + " is for, or check what answers in its place"
	case CertificateExpired:
		return "renew the certificate of " + side.Name + ", or correct " + side.here() + "'s clock"
	case CertificateInvalid:
		return "correct the certificate of " + side.Name + ", or check what answers in its place"
	case HandshakeRefused:
		return handshakeFix(side)
	case HandshakeFailed:
		return "check that " + side.Name + " speaks TLS 1.2 or later"
	default:
		return reachFix(side)
	}
}

func slowFix(side Side) string {
	if side.Proxy != "" {
		return "find out why the proxy" + side.inProxySetting() + " or " + side.Name + " is slow"
	}
	return "find out why " + side.Name + ", or the network between " + side.here() + " and it, is slow"
}

func reachFix(side Side) string {
	if side.Proxy != "" {
		return "check that the proxy" + side.inProxySetting() + " can reach " + side.Name
	}
	return "check that " + side.Name + " can be reached from " + side.here()
}

// inProxySetting returns " in " and the proxy's setting, to follow the words "the proxy". It
// returns an empty string if the setting is unknown.
func (s Side) inProxySetting() string {
	if s.Proxy == "" {
		return ""
	}
	return " in " + s.Proxy
}

func proxyFix(status int, side Side) string {
	proxy := "the proxy" + side.inProxySetting()
	switch {
	case status == http.StatusProxyAuthRequired && side.Proxy != "":
		return "correct the user and password of " + proxy
	case status == http.StatusProxyAuthRequired:
		return "correct the proxy's user and password: in the object's proxy Secret if it names one, else in the controller's HTTPS_PROXY"
	case status == http.StatusForbidden:
		return "have " + proxy + " allow " + side.Name
	case isPassing(status):
		return "check that " + proxy + " can reach " + side.Name
	default:
		return "check that " + proxy + " accepts CONNECT requests to " + side.Name
	}
}

func noTLSFix(side Side) string {
	if side.Insecure == "" {
		return "check which server answers as " + side.Name
	}
	fix := "give " + side.Name + " a certificate, or set " + side.Insecure
	if side.Here == "" {
		fix += ", which needs provider generic"
	}
	return fix
}

func authorityFix(side Side) string {
	if side.Certificates == "" {
		return "check which server answers as " + side.Name + ", or have the administrator add its CA to those that " + side.here() + " trusts"
	}
	return "set " + side.Certificates + " to the CA of " + side.Name + ", or correct the certificate of " + side.Name
}

func handshakeFix(side Side) string {
	setting := cmp.Or(side.ClientCertificate, side.Certificates)
	if setting == "" {
		return "check which server answers as " + side.Name + ", and which TLS versions it supports"
	}
	if side.ClientCertificate != "" {
		return "if " + side.Name + " asks for a client certificate, use " + setting + "; otherwise check which TLS versions it supports"
	}
	return "if " + side.Name + " asks for a client certificate, put one that it accepts into " + setting +
		"; otherwise check which TLS versions it supports"
}
