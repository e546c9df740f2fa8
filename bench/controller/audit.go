package main

import (
	"strings"

	"github.com/lanyard-dev/lanyard/bench/internal/audit"
)

// kind classifies the successful requests.
type kind int

const (
	anyCall      kind = iota // every request
	renewal                  // request for a token
	secretRead               // get of one Secret
	secretWrite              // write of a Secret; requests for tokens are not writes
	statusWrite              // write of a binding's status
	bindingWrite             // write of a binding, without its status
	leaseWrite
	otherWrite
	otherRead
)

// kindOf returns the kind of a request. The name of the resource includes the subresource.
func kindOf(verb, resource string) kind {
	switch {
	case verb == "create" && resource == "workloadidentities/token":
		return renewal
	case verb == "get" && resource == "secrets":
		return secretRead
	case verb == "get" || verb == "list" || verb == "watch" || strings.HasSuffix(resource, "/token"):
		return otherRead
	}
	switch resource {
	case "secrets":
		return secretWrite
	case "workloadidentitybindings/status":
		return statusWrite
	case "workloadidentitybindings":
		return bindingWrite
	case "leases":
		return leaseWrite
	}
	return otherWrite
}

// calls has the number of one user's successful requests of each kind.
type calls map[kind]int

// readCalls returns all calls in a log until now.
func readCalls(log *audit.Log) (calls, error) {
	counts, err := log.Read()
	if err != nil {
		return nil, err
	}
	made := calls{}
	for request, n := range counts {
		if !request.Failed {
			made[anyCall] += n
			made[kindOf(request.Verb, request.Resource)] += n
		}
	}
	return made, nil
}

// since returns the difference between c and an earlier count, for each kind of call.
func (c calls) since(before calls) calls {
	made := calls{}
	for k, n := range c {
		made[k] = n - before[k]
	}
	return made
}
