package endpoint

import "strconv"

// Reason is why a string was refused. Its values are stable, for programs.
type Reason string

// The reasons.
const (
	// ReasonEmpty: there is nothing to parse.
	ReasonEmpty Reason = "empty"
	// ReasonMalformed: the string has a character, length or shape that its grammar does not allow.
	ReasonMalformed Reason = "malformed"
	// ReasonScheme: the URL does not have the required scheme.
	ReasonScheme Reason = "scheme"
	// ReasonCredentials: a user or password is written into the URL.
	ReasonCredentials Reason = "embedded-credentials" //nolint:gosec // a reason, no credential.
	// ReasonPort: a port is given where none, or a different one, belongs.
	ReasonPort Reason = "port"
	// ReasonPath: a path, query or fragment is given where none belongs.
	ReasonPath Reason = "path"
	// ReasonHost: the host is well-formed and in no table (nor, where one was consulted, in the list of allowed hosts).
	ReasonHost Reason = "unknown-host"
	// ReasonAccount: the account is not twelve digits.
	ReasonAccount Reason = "account"
	// ReasonRegion: no partition has regions with names of this form.
	ReasonRegion Reason = "unknown-region"
	// ReasonPartition: the partition is unknown, or the host's suffix and its region belong to different partitions.
	ReasonPartition Reason = "partition"
	// ReasonService: the ARN is of the wrong service.
	ReasonService Reason = "service"
	// ReasonResource: the ARN is of the wrong resource type.
	ReasonResource Reason = "resource"
	// ReasonName: the name in the ARN breaks the service's rules for names.
	ReasonName Reason = "name"
)

// Error is a refusal: what was wrong with which kind of input, and what to write instead. It repeats at most
// one part of the input, quoted and short, and never a whole URL or its user, which may hold a password.
type Error struct {
	// What is the kind of input, such as "STS endpoint".
	What string
	// Reason is the stable code.
	Reason Reason
	// Detail is one clause for people that names what is wrong.
	Detail string
	// Fix is one clause for people that says what to write.
	Fix string
}

// Error returns "<what> refused: <detail>; <fix>".
func (e *Error) Error() string {
	return e.What + " refused: " + e.Detail + "; " + e.Fix
}

// maxQuoted bounds what an error repeats of its input, in bytes.
const maxQuoted = 100

// quote repeats untrusted input in an error: quoted, so that it cannot pose as our own words, and short.
func quote(s string) string {
	if len(s) > maxQuoted {
		return strconv.QuoteToASCII(s[:maxQuoted]) + "…"
	}
	return strconv.QuoteToASCII(s)
}
