// Package audit counts the requests of programs in the audit log of the API server.
package audit

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

// Request describes requests that are counted together.
type Request struct {
	Verb     string
	Resource string // with the subresource; empty for requests such as discovery
	DryRun   bool   // the request changes nothing
	Failed   bool   // the API server's answer was no success
}

// Counts has the number of requests of each description.
type Counts map[Request]int

// Since returns the difference between c and an earlier count.
func (c Counts) Since(before Counts) Counts {
	made := Counts{}
	for request, n := range c {
		made[request] = n - before[request]
	}
	return made
}

// Sum returns the number of requests that fulfill a condition.
func (c Counts) Sum(fulfills func(Request) bool) int {
	sum := 0
	for request, n := range c {
		if fulfills(request) {
			sum += n
		}
	}
	return sum
}

// Log reads the API server's audit log, and counts the requests of one user. Requests in which the
// user impersonates somebody else count too.
type Log struct {
	file  *os.File
	lines *bufio.Reader
	begun []byte // the beginning of a line whose end was not written yet
	user  string
	made  Counts
}

// Open opens an audit log. The caller closes it.
func Open(path, user string) (*Log, error) {
	file, err := os.Open(path) //nolint:gosec // the log of the cluster that the command has started
	if err != nil {
		return nil, err
	}
	return &Log{file: file, lines: bufio.NewReader(file), user: user, made: Counts{}}, nil
}

// Read returns the counts of all requests that are complete. A watch is complete when it ends.
func (l *Log) Read() (Counts, error) {
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
func (l *Log) count(line []byte) error {
	var event auditv1.Event
	if err := json.Unmarshal(line, &event); err != nil {
		return err
	}
	complete := event.Stage == auditv1.StageResponseComplete && event.ResponseStatus != nil
	if event.User.Username != l.user || !complete {
		return nil
	}
	request := Request{
		Verb:   event.Verb,
		DryRun: strings.Contains(event.RequestURI, "dryRun=All"),
		Failed: event.ResponseStatus.Code >= http.StatusMultipleChoices,
	}
	if ref := event.ObjectRef; ref != nil {
		request.Resource = strings.TrimSuffix(ref.Resource+"/"+ref.Subresource, "/")
	}
	l.made[request]++
	return nil
}

// Close closes the file.
func (l *Log) Close() error { return l.file.Close() }
