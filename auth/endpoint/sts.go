package endpoint

import "strings"

const (
	whatSTS = "STS endpoint"
	fixSTS  = "write https://sts.<region>.amazonaws.com, or its partition's suffix in place of amazonaws.com, or have the " +
		"administrator list the host of another service in --allowed-endpoint-hosts (identity.allowedEndpointHosts of the Helm chart)"
)

// awsSTSAudience is the audience that STS expects in a web identity token, in every partition.
// Source: Amazon EKS user guide, "IAM roles for service accounts".
const awsSTSAudience = "sts.amazonaws.com"

// STS is an endpoint of AWS STS, or an endpoint that an administrator listed. It is comparable; its
// zero value is no endpoint.
type STS struct {
	// Host is the endpoint's DNS name in lower case. It can be an IP address if the field Listed is
	// true.
	Host string
	// Port is empty for 443. It can be another port only if the field Listed is true.
	Port string
	// Provider is [AWS]. It is empty if the field Listed is true.
	Provider Provider
	// Partition is the ID of the partition, such as "aws-cn". It is empty if the field Listed is
	// true.
	Partition string
	// Region is the endpoint's region, or us-east-1 for the global endpoint. Requests are signed
	// for this region. Region is empty if the field Listed is true.
	Region string
	// Global: the endpoint belongs to no region.
	Global bool
	// Listed: the host is not a host of AWS, but an administrator listed it (see [Allowed]).
	Listed bool
	// Variant distinguishes FIPS and dual-stack hosts.
	Variant
}

// URL returns the endpoint as https://host[:port].
func (s STS) URL() string {
	return location{host: s.Host, port: s.Port}.url()
}

// Audience returns the audience of a proof that is sent to the endpoint. For AWS's own hosts it is
// sts.amazonaws.com. If the field Listed is true, it is host, or host:port if the port is not 443.
// So the endpoint cannot use the proof at AWS or at another service of the same host.
func (s STS) Audience() string {
	if s.Provider == AWS {
		return awsSTSAudience
	}
	return location{host: s.Host, port: s.Port}.String()
}

// ParseSTS returns the STS endpoint of a URL. The scheme must be https, the host must be a host of
// AWS STS, and the port must be 443. User, path and query are refused. Errors are [*Error], with
// ReasonHost if AWS does not own the host.
func ParseSTS(rawURL string) (STS, error) {
	var none Allowed
	return none.ParseSTS(rawURL)
}

// ParseSTS is like the function [ParseSTS], but also accepts a host[:port] that an administrator
// listed. The URL must still be https.
func (a *Allowed) ParseSTS(rawURL string) (STS, error) {
	loc, err := parseRoot(whatSTS, rawURL)
	if err != nil {
		return STS{}, err
	}
	s, err := awsSTS(loc)
	if err != nil && a.Contains(loc.authority()) {
		return STS{Host: loc.host, Port: loc.ownPort(), Listed: true}, nil
	}
	return s, err
}

// awsSTS returns the STS endpoint at the location, which must be a host of AWS STS at port 443.
func awsSTS(loc location) (STS, error) {
	s, err := stsHost(loc.host)
	if err == nil && loc.ownPort() != "" {
		return STS{}, &Error{What: whatSTS, Reason: ReasonPort, Detail: "an STS endpoint of AWS has no port but 443", Fix: fixSTS}
	}
	return s, err
}

// stsHost returns the STS endpoint with this host. It refuses hosts that are not AWS STS's own.
func stsHost(host string) (STS, error) {
	refuse := func(reason Reason, detail string) (STS, error) {
		return STS{}, &Error{What: whatSTS, Reason: reason, Detail: detail, Fix: fixSTS}
	}
	for _, p := range awsPartitions() {
		if p.GlobalSTSHost != "" && host == p.GlobalSTSHost {
			return STS{Host: host, Provider: AWS, Partition: p.ID, Region: p.GlobalRegion, Global: true}, nil
		}
	}
	label, regional := "", host
	if isInterfaceEndpoint(host) {
		label, regional, _ = strings.Cut(host, ".")
	}
	form, rest, ok := cutForm(regional, stsForms())
	if !ok || !hasAWSSuffix(host) {
		return refuse(ReasonHost, quote(host)+" is not an STS host of AWS")
	}
	name, suffix, _ := strings.Cut(rest, ".")
	region, ok := awsRegion(name)
	if !ok {
		return refuse(ReasonRegion, "the region "+quote(name)+" of its host has the form of no AWS partition's regions")
	}
	p := region.Partition
	s := STS{Host: host, Provider: AWS, Partition: p.ID, Region: name, Variant: form.Variant}
	switch {
	case label != "" && suffix == "vpce."+p.DNSSuffix && isVPCELabel(label, name):
	case label == "" && suffix == p.DNSSuffix:
		s.FIPS = s.FIPS || p.STSIsFIPS
	case label == "" && suffix == p.DualStackDNSSuffix:
		s.DualStack = true
	case label != "":
		return refuse(ReasonHost, quote(host)+" is not a VPC endpoint of STS in "+name)
	default:
		return refuse(ReasonPartition, "an STS host in "+name+" ends in "+p.DNSSuffix+" or "+p.DualStackDNSSuffix+", not in "+quote(suffix))
	}
	return s, nil
}

// isInterfaceEndpoint reports whether the host has the form of a VPC interface endpoint (AWS
// PrivateLink).
func isInterfaceEndpoint(host string) bool { return strings.HasPrefix(host, "vpce-") }

// isVPCELabel reports whether the label belongs to a VPC interface endpoint:
// vpce-<hex>-<id>[-<zone>], with a zone of the region. Source: AWS PrivateLink guide, "Access an
// AWS service using an interface VPC endpoint".
func isVPCELabel(label, region string) bool {
	rest, ok := strings.CutPrefix(label, "vpce-")
	endpointID, rest, _ := strings.Cut(rest, "-")
	suffix, zone, zonal := strings.Cut(rest, "-")
	return ok && all(endpointID, isHex) && all(suffix, isLowerOrDigit) && (!zonal || strings.HasPrefix(zone, region))
}
