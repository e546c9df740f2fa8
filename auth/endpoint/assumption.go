package endpoint

import (
	"strconv"
	"strings"
	"time"
)

const (
	whatAssumption = "role to assume"
	fixAssumption  = "write <role ARN> [externalID=<ID>] [sessionName=<name>] [durationSeconds=<seconds>], with single spaces"
	// Limits of AWS. Source: AWS STS API reference, AssumeRole.
	minExternalID, maxExternalID   = 2, 1224
	minSessionName, maxSessionName = 2, 64
	// Limits of a session in role chaining, where a role's session assumes another role. Source:
	// IAM user guide, "Methods to assume a role", role chaining.
	minChainedSeconds, maxChainedSeconds = 900, 3600
)

// Assumption is a role that a subject assumes with the session of its own role. It is comparable;
// its zero value is no role.
type Assumption struct {
	// Role is the role to assume.
	Role RoleARN
	// ExternalID is the external ID that the role's trust policy may ask for; empty for none.
	ExternalID string
	// SessionName is the name of the session; empty for the default.
	SessionName string
	// Duration is how long the session lives; 0 for the default.
	Duration time.Duration
}

// ParseAssumption parses the ARN of a role and the optional words after it, each after one space:
//
//	arn:aws:iam::222233334444:role/reader externalID=agreed sessionName=tenant-a durationSeconds=900
//
// Errors are [*Error] and name the part that is wrong.
func ParseAssumption(s string) (Assumption, error) {
	arn, rest, more := strings.Cut(s, " ")
	role, err := ParseRoleARN(arn)
	if err != nil {
		return Assumption{}, err
	}
	assumption := Assumption{Role: role}
	seen := map[string]bool{}
	for more {
		var word string
		word, rest, more = strings.Cut(rest, " ")
		name, value, _ := strings.Cut(word, "=")
		if seen[name] {
			return Assumption{}, refuseAssumption(quote(name)+" is written twice", fixAssumption)
		}
		seen[name] = true
		if err := assumption.set(name, value); err != nil {
			return Assumption{}, err
		}
	}
	return assumption, nil
}

// set checks the value and stores it in the field that the name selects, such as ExternalID for
// externalID. It refuses an unknown name.
func (a *Assumption) set(name, value string) error {
	switch name {
	case "externalID":
		if len(value) < minExternalID || len(value) > maxExternalID || !all(value, isExternalIDByte) {
			return refuseAssumption("the external ID is not "+strconv.Itoa(minExternalID)+" to "+
				strconv.Itoa(maxExternalID)+" letters, digits and characters of _+=,.@:/-",
				"copy it from the role's trust policy")
		}
		a.ExternalID = value
	case "sessionName":
		if len(value) < minSessionName || len(value) > maxSessionName || !all(value, isRoleNameByte) {
			return refuseAssumption("the session name "+quote(value)+" is not "+strconv.Itoa(minSessionName)+" to "+
				strconv.Itoa(maxSessionName)+" letters, digits and characters of _+=,.@-",
				"write another name, or leave it out")
		}
		a.SessionName = value
	case "durationSeconds":
		seconds, err := strconv.ParseUint(value, 10, 16)
		if err != nil || seconds < minChainedSeconds || seconds > maxChainedSeconds {
			return refuseAssumption("the duration "+quote(value)+" is not a number of seconds from "+strconv.Itoa(minChainedSeconds)+" to "+
				strconv.Itoa(maxChainedSeconds),
				"AWS gives a session that is got with another session no more than an hour: write a smaller number, or leave it out")
		}
		a.Duration = time.Duration(seconds) * time.Second
	default:
		return refuseAssumption("the word "+quote(name)+" is unknown", fixAssumption)
	}
	return nil
}

func refuseAssumption(detail, fix string) error {
	return &Error{What: whatAssumption, Reason: ReasonMalformed, Detail: detail, Fix: fix}
}

func isExternalIDByte(c byte) bool { return isRoleNameByte(c) || c == ':' || c == '/' }
