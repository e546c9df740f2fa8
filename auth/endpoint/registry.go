package endpoint

import "strings"

const (
	whatRegistry = "image repository"
	schemeOCI    = "oci"
	fixRegistry  = "write <account>.dkr.ecr.<region>.amazonaws.com/<repository>, its partition's suffix in place of amazonaws.com, or public.ecr.aws/<repository>"
)

// Registry is a container registry that a cloud owns, or that an administrator listed. It is comparable; its zero value is
// no registry.
type Registry struct {
	// Host is the registry's DNS name in lower case. It is an IP address only when listed.
	Host string
	// Port is empty, meaning 443, unless listed with another one.
	Port string
	// Provider is the cloud that owns the host; empty when listed.
	Provider Provider
	// Partition is the ID of the cloud's partition, such as "aws-cn"; empty when listed.
	Partition string
	// Account is the account that owns the registry, twelve digits for AWS; empty for a public registry and when listed.
	Account string
	// Region is the region of the registry, and the region whose API mints its tokens; empty when listed.
	Region string
	// Public: it is the cloud's public registry (Amazon ECR Public), which has an API and tokens of its own.
	Public bool
	// Listed: the host is in no table; it was accepted because an administrator listed it (see [Allowed]).
	Listed bool
	// Variant tells FIPS and dual-stack hosts.
	Variant
}

// String is the registry's host[:port].
func (r Registry) String() string {
	if r.Port == "" {
		return r.Host
	}

	return joinHostPort(r.Host, r.Port)
}

// ParseRegistry returns the registry of an image repository, host[/path] or oci://host[/path], whose host is in a cloud's
// table. Upper-case letters of the host count as lower-case ones. Errors are [*Error]; a host that no cloud owns, a
// look-alike included, has ReasonHost.
//
// Only the host is judged: the path's grammar is the reference parser's business.
func ParseRegistry(image string) (Registry, error) {
	var none Allowed

	return none.ParseRegistry(image)
}

// ParseRegistry is the package's ParseRegistry, except that a host[:port] of the list is accepted too.
func (a *Allowed) ParseRegistry(image string) (Registry, error) {
	raw := image
	if raw != "" && !strings.Contains(raw, "://") {
		raw = schemeOCI + "://" + raw
	}

	loc, err := parseLocation(whatRegistry, schemeOCI, raw)
	if err != nil {
		return Registry{}, err
	}

	r, err := awsRegistry(loc)
	if err != nil && a.Contains(loc.authority()) {
		return Registry{Host: loc.host, Port: nonDefault(loc.port), Listed: true}, nil
	}

	return r, err
}

// nonDefault is the port, unless it is the one that leaving it out means.
func nonDefault(port string) string {
	if port == httpsPort {
		return ""
	}

	return port
}

// awsRegistry finds the location's host among ECR's.
func awsRegistry(loc location) (Registry, error) {
	refuse := func(reason Reason, detail string) (Registry, error) {
		return Registry{}, &Error{What: whatRegistry, Reason: reason, Detail: detail, Fix: fixRegistry}
	}

	host := loc.host
	r := Registry{Host: host, Provider: AWS}
	found := false

	for _, p := range awsPublicRegistries() {
		if host == p.host {
			r.Partition, r.Region, r.Public, r.DualStack = p.partition, p.region, true, p.dualStack
			found = true
		}
	}

	if !found {
		account, rest, _ := strings.Cut(host, ".")

		form, rest, ok := cutForm(rest, ecrForms())
		if !ok || !hasAWSSuffix(host) {
			return refuse(ReasonHost, quote(host)+" is not a registry host of AWS")
		}

		name, suffix, _ := strings.Cut(rest, ".")

		region, ok := awsRegion(name)
		if !ok {
			return refuse(ReasonRegion, "the region "+quote(name)+" of its host has the form of no AWS partition's regions")
		}

		want := region.Partition.DNSSuffix
		if form.DualStack {
			want = region.Partition.RegistryDualStackSuffix
		}

		switch {
		case suffix != want:
			return refuse(ReasonPartition, "a registry host in "+name+" ends in "+want+", not in "+quote(suffix))
		case !isAWSAccount(account):
			return refuse(ReasonAccount, "the account "+quote(account)+" of its host is not twelve digits")
		}

		r.Account, r.Region, r.Partition, r.Variant = account, name, region.Partition.ID, form.Variant
	}

	if loc.port != "" {
		return refuse(ReasonPort, "a registry of AWS is named without a port")
	}

	return r, nil
}

// cutForm removes the form that the host begins with.
func cutForm(host string, forms []hostForm) (hostForm, string, bool) {
	for _, f := range forms {
		if rest, ok := strings.CutPrefix(host, f.prefix); ok {
			return f, rest, true
		}
	}

	return hostForm{}, "", false
}
