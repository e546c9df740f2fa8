package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"strings"
)

// call is a kind of request: a verb, and a resource with its subresource.
type call struct{ verb, resource string }

// calls are the successful requests of one user, by kind.
type calls map[call]int

// since returns the calls that were made after earlier ones.
func (c calls) since(before calls) calls {
	made := calls{}
	for kind, n := range c {
		if n -= before[kind]; n > 0 {
			made[kind] = n
		}
	}
	return made
}

// sum adds up the kinds of calls that is accepts.
func (c calls) sum(is func(call) bool) int {
	total := 0
	for kind, n := range c {
		if is(kind) {
			total += n
		}
	}
	return total
}

// Resources of the calls.
const (
	secretResource  = "secrets"
	bindingResource = "workloadidentitybindings"
	statusResource  = bindingResource + "/status"
	leaseResource   = "leases"
	tokenResource   = "workloadidentities/token"
)

// writes reports whether a call changes what the cluster stores. Tokens are stored nowhere.
func (c call) writes() bool {
	switch c.verb {
	case "create", "update", "patch", "delete", "deletecollection":
		return !strings.HasSuffix(c.resource, "/token")
	}
	return false
}

// all counts all calls.
func (c calls) all() int { return c.sum(func(call) bool { return true }) }

// renewals counts the tokens that were made.
func (c calls) renewals() int { return c[call{"create", tokenResource}] }

// reads counts the Secrets that were read.
func (c calls) reads() int { return c[call{"get", secretResource}] }

// secrets counts the writes of Secrets.
func (c calls) secrets() int { return c.writesOf(secretResource) }

// statuses counts the writes of the statuses of bindings.
func (c calls) statuses() int { return c.writesOf(statusResource) }

// written counts the writes of Secrets and of bindings.
func (c calls) written() int { return c.secrets() + c.statuses() + c.writesOf(bindingResource) }

// others counts the writes of anything but the Secrets, the statuses of bindings and the lease.
func (c calls) others() int {
	return c.sum(call.writes) - c.secrets() - c.statuses() - c.writesOf(leaseResource)
}

func (c calls) writesOf(resource string) int {
	return c.sum(func(k call) bool { return k.writes() && k.resource == resource })
}

// auditLog counts the calls of a user from the API server's audit log.
type auditLog struct {
	file  *os.File
	lines *bufio.Reader
	begun []byte // the beginning of a line whose end was not written yet
	user  string
	made  calls
}

func openAuditLog(path, user string) (*auditLog, error) {
	file, err := os.Open(path) //nolint:gosec // the log of the cluster that the command has started
	if err != nil {
		return nil, err
	}
	return &auditLog{file: file, lines: bufio.NewReader(file), user: user, made: calls{}}, nil
}

// read returns all calls until now.
func (l *auditLog) read() (calls, error) {
	for {
		line, err := l.lines.ReadBytes('\n')
		l.begun = append(l.begun, line...)
		if errors.Is(err, io.EOF) {
			return maps.Clone(l.made), nil
		}
		if err != nil {
			return nil, err
		}
		if err := l.count(l.begun); err != nil {
			return nil, fmt.Errorf("read the audit log: %w", err)
		}
		l.begun = l.begun[:0]
	}
}

// count counts an event of audit.k8s.io/v1.
func (l *auditLog) count(line []byte) error {
	var event struct {
		Stage string `json:"stage"`
		Verb  string `json:"verb"`
		User  struct {
			Username string `json:"username"`
		} `json:"user"`
		ObjectRef struct {
			Resource    string `json:"resource"`
			Subresource string `json:"subresource"`
		} `json:"objectRef"`
		ResponseStatus struct {
			Code int `json:"code"`
		} `json:"responseStatus"`
	}
	if err := json.Unmarshal(line, &event); err != nil {
		return err
	}
	if event.User.Username != l.user || event.Stage != "ResponseComplete" || event.ResponseStatus.Code >= http.StatusMultipleChoices {
		return nil
	}
	kind := call{event.Verb, event.ObjectRef.Resource}
	if event.ObjectRef.Subresource != "" {
		kind.resource += "/" + event.ObjectRef.Subresource
	}
	l.made[kind]++
	return nil
}

func (l *auditLog) close() error { return l.file.Close() }
