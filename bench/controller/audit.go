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

	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
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

// since returns the difference between c and an earlier count, for each kind of call.
func (c calls) since(before calls) calls {
	made := calls{}
	for k, n := range c {
		made[k] = n - before[k]
	}
	return made
}

// auditLog reads the API server's audit log, and counts the calls of one user.
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
	var event auditv1.Event
	if err := json.Unmarshal(line, &event); err != nil {
		return err
	}
	complete := event.Stage == auditv1.StageResponseComplete && event.ResponseStatus != nil
	if event.User.Username != l.user || !complete || event.ResponseStatus.Code >= http.StatusMultipleChoices {
		return nil
	}
	resource := "" // empty for requests such as discovery
	if ref := event.ObjectRef; ref != nil {
		resource = strings.TrimSuffix(ref.Resource+"/"+ref.Subresource, "/")
	}
	l.made[anyCall]++
	l.made[kindOf(event.Verb, resource)]++
	return nil
}

func (l *auditLog) close() error { return l.file.Close() }
