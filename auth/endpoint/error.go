package endpoint

import (
	"strconv"
	"strings"
)

// Reason says, for programs, why a string was refused. Its values are stable.
type Reason string

// Values of [Reason].
const (
	// ReasonEmpty: the string or its host is empty.
	ReasonEmpty Reason = "empty"
	// ReasonMalformed: the string has a character, length or shape that its grammar does not allow.
	ReasonMalformed Reason = "malformed"
	// ReasonScheme: the URL does not have the required scheme.
	ReasonScheme Reason = "scheme"
	// ReasonCredentials: a user or password is written into the URL.
	ReasonCredentials Reason = "embedded-credentials" //nolint:gosec // a reason, no credential.
	// ReasonPort: the port is not valid, or not allowed for this host.
	ReasonPort Reason = "port"
	// ReasonPath: the string has a path, query or fragment that is not allowed.
	ReasonPath Reason = "path"
	// ReasonHost: the host is well-formed, but is not an accepted host of a cloud. The methods of
	// [Allowed] also accept the hosts in their list.
	ReasonHost Reason = "unknown-host"
	// ReasonAccount: the account or the project is malformed, or the service has no accounts.
	ReasonAccount Reason = "account"
	// ReasonRegion: no partition has regions with names of this form.
	ReasonRegion Reason = "unknown-region"
	// ReasonPartition: the partition is unknown, or the host's suffix and its region belong to
	// different partitions.
	ReasonPartition Reason = "partition"
	// ReasonService: the ARN is of the wrong service.
	ReasonService Reason = "service"
	// ReasonResource: the ARN or resource name is of the wrong resource type.
	ReasonResource Reason = "resource"
	// ReasonName: a name in the string breaks the service's rules for names.
	ReasonName Reason = "name"
)

// Error says why a string was refused. It names the kind of input, the fault and the correction. It
// repeats at most one part of the input, quoted and short. It never repeats the user or the
// password of a URL, such as https://user:password@host.
type Error struct {
	// What names the kind of input, such as "STS endpoint".
	What string
	// Reason is the code of the refusal, for programs. Its values are stable.
	Reason Reason
	// Detail is one clause that tells people what is wrong.
	Detail string
	// Fix is one clause that tells people how to correct the string.
	Fix string
}

// Error returns "<what> refused: <detail>; <fix>".
func (e *Error) Error() string {
	return e.What + " refused: " + e.Detail + "; " + e.Fix
}

// maxQuoted bounds the part of the input that an error repeats, in bytes.
const maxQuoted = 100

// quote returns untrusted input for an error: short, and in quotes. The quotes distinguish the
// input from the error's own text. quote leaves out everything after "//", because a URL may have a
// password there. A caller may quote a part of the input only if the part does not lie between the
// "//" and the "@" of a URL.
func quote(s string) string {
	end := min(len(s), maxQuoted)
	if slashes := strings.Index(s, "//"); slashes >= 0 {
		end = min(end, slashes+len("//"))
	}
	quoted := strconv.QuoteToASCII(s[:end])
	if end < len(s) {
		quoted += "..."
	}
	return quoted
}
