package endpoint

import (
	"slices"
	"strconv"
	"strings"
)

const (
	whatCloudKMSKey = "Cloud KMS key"
	fixCloudKMSKey  = "write projects/<project>/locations/<location>/keyRings/<key ring>/cryptoKeys/<key>"
	// maxCloudKMSID bounds the ID of a key ring or a key, in bytes. Source: Cloud KMS API,
	// projects.locations.keyRings.create and projects.locations.keyRings.cryptoKeys.create.
	maxCloudKMSID = 63
)

// CloudKMSKey is the resource name of a key of Google Cloud KMS. It is comparable; its zero value
// is no key.
//
// The name does not decide the host. The host is [GCPUniverse.CloudKMSHost] of the caller's own
// universe, for all projects and locations.
type CloudKMSKey struct {
	// Project is the ID or number of the key's project, with the prefix of its domain or universe
	// if it has one: "project", "example.com:project".
	Project string
	// Location is the location of the key, such as "europe-west1", "eur4" or "global".
	Location string
	// KeyRing and Key are the IDs of the key ring and of the key.
	KeyRing, Key string
}

// String returns the key's resource name, which is the string that was parsed.
func (k CloudKMSKey) String() string {
	return "projects/" + k.Project + "/locations/" + k.Location + "/keyRings/" + k.KeyRing + "/cryptoKeys/" + k.Key
}

// CloudKMSHost returns the host of Cloud KMS in the universe.
func (u GCPUniverse) CloudKMSHost() string { return u.APIHost("cloudkms") }

// isCloudKMSHost reports whether the host is Cloud KMS's own in some universe.
func isCloudKMSHost(host string) bool {
	return slices.ContainsFunc(GCPUniverses(), func(u GCPUniverse) bool { return host == u.CloudKMSHost() })
}

// ParseCloudKMSKey parses a key's resource name,
// projects/<project>/locations/<location>/keyRings/<key ring>/cryptoKeys/<key>. It refuses the name
// of a key's version, as SOPS does. Errors are [*Error] and name the part that is wrong.
//
// Only the form of the location is checked, because Cloud KMS has more sorts of locations than
// regions. Source: Cloud KMS, "Cloud KMS locations".
func ParseCloudKMSKey(name string) (CloudKMSKey, error) {
	refuse := func(reason Reason, detail, fix string) (CloudKMSKey, error) {
		return CloudKMSKey{}, &Error{What: whatCloudKMSKey, Reason: reason, Detail: detail, Fix: fix}
	}
	parts := strings.Split(name, "/")
	switch {
	case name == "":
		return refuse(ReasonEmpty, "it is empty", fixCloudKMSKey)
	case strings.Contains(name, "/cryptoKeyVersions"):
		return refuse(ReasonResource, "it names a version of a key",
			"remove /cryptoKeyVersions and what follows, because Cloud KMS finds the version in the ciphertext")
	case len(parts) != 8 || parts[0] != "projects" || parts[2] != "locations" || parts[4] != "keyRings" || parts[6] != "cryptoKeys":
		return refuse(ReasonResource, quote(name)+" is not the name of a key", fixCloudKMSKey)
	}
	k := CloudKMSKey{Project: parts[1], Location: parts[3], KeyRing: parts[5], Key: parts[7]}
	idRule := " is not 1 to " + strconv.Itoa(maxCloudKMSID) + " letters, digits, hyphens and underscores"
	switch {
	case !isGCPProject(k.Project):
		return refuse(ReasonAccount, "the project "+quote(k.Project)+" is neither a project ID nor a number", fixCloudKMSKey)
	case len(k.Location) > maxLabel || !isGCPName(k.Location):
		return refuse(ReasonRegion, "the location "+quote(k.Location)+" is not the name of a location",
			`write a location such as "europe-west1" or "global"`)
	case !isCloudKMSID(k.KeyRing):
		return refuse(ReasonName, "the key ring "+quote(k.KeyRing)+idRule, fixCloudKMSKey)
	case !isCloudKMSID(k.Key):
		return refuse(ReasonName, "the key "+quote(k.Key)+idRule, fixCloudKMSKey)
	}
	return k, nil
}

func isCloudKMSID(s string) bool { return len(s) <= maxCloudKMSID && all(s, isWordByte) }
