package endpoint

import "strings"

const fixECR = "write <account>.dkr.ecr.<region>.amazonaws.com/<repository>, its partition's suffix in place of amazonaws.com, or " +
	"public.ecr.aws/<repository>"

// Registry is a container registry of AWS or Google Cloud, made by [ParseECR] or [ParseGAR]. It is
// comparable; its zero value is no registry.
type Registry struct {
	// Host is the registry's DNS name in lower case. It has no port.
	Host string
	// Provider is the cloud that owns the host.
	Provider Provider
	// Partition is the ID of the cloud's partition, such as "aws-cn".
	Partition string
	// Account is the account that owns the registry, twelve digits for AWS; empty for a public
	// registry and at Google Cloud.
	Account string
	// Region is the region of the registry. The API of this region issues the registry's tokens.
	Region string
	// Public: the registry is the cloud's public registry (Amazon ECR Public), which has its own
	// API and tokens.
	Public bool
	// Variant distinguishes FIPS and dual-stack hosts.
	Variant
}

// String returns the registry's host.
func (r Registry) String() string { return r.Host }

// ParseECR returns the registry of an image repository, host[/path] or oci://host[/path]. The host
// must be a host of Amazon ECR in one of the partitions; it may have upper-case letters. Errors are
// [*Error], with ReasonHost if AWS does not own the host, such as a look-alike.
//
// Only the host is checked; a parser of image references checks the path.
func ParseECR(image string) (Registry, error) {
	loc, err := parseRepository(image)
	if err != nil {
		return Registry{}, err
	}
	r, err := ecrHost(loc.host)
	if err == nil && loc.port != "" {
		return Registry{}, &Error{
			What: whatRepository, Reason: ReasonPort, Detail: "a registry of AWS is named without a port", Fix: fixECR,
		}
	}
	return r, err
}

// ecrHost returns the registry of a host of Amazon ECR.
func ecrHost(host string) (Registry, error) {
	refuse := func(reason Reason, detail string) (Registry, error) {
		return Registry{}, &Error{What: whatRepository, Reason: reason, Detail: detail, Fix: fixECR}
	}
	for _, p := range awsPublicRegistries() {
		if host == p.host {
			return Registry{
				Host: host, Provider: AWS, Partition: p.partition, Region: p.region, Public: true, Variant: Variant{DualStack: p.dualStack},
			}, nil
		}
	}
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
	return Registry{Host: host, Provider: AWS, Account: account, Region: name, Partition: region.Partition.ID, Variant: form.Variant}, nil
}

// cutForm finds the form whose prefix the host begins with. It returns that form and the host
// without the prefix, or false if there is no such form.
func cutForm(host string, forms []hostForm) (hostForm, string, bool) {
	for _, f := range forms {
		if rest, ok := strings.CutPrefix(host, f.prefix); ok {
			return f, rest, true
		}
	}
	return hostForm{}, "", false
}
