package remote

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"strconv"
	"time"
)

const (
	// maxBody bounds an answer, in bytes. Tokens are a few kilobytes.
	maxBody = 1 << 20
	// maxRetryAfter bounds how long an answer can ask us to wait.
	maxRetryAfter = 15 * time.Minute
)

// errBrokenOff is for a connection that ended in the middle of an answer, and errTooLong for an answer of more than maxBody.
var (
	errBrokenOff = errors.New("the answer broke off")
	errTooLong   = errors.New("the answer is too long")
)

// Answer is a response that was read whole.
type Answer struct {
	// Status is the HTTP status.
	Status int
	// Header is the answer's.
	Header http.Header
	// Body is at most 1 MiB.
	Body []byte
}

// read reads an answer from the connection. After it, the response can be read again from memory.
func read(response *http.Response) (Answer, error) {
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(response.Body, maxBody+1))
	switch {
	case err != nil && isTimeout(err):
		return Answer{}, err
	case err != nil:
		return Answer{}, errBrokenOff
	case len(body) > maxBody:
		return Answer{}, errTooLong
	}
	response.Body = io.NopCloser(bytes.NewReader(body))
	return Answer{response.StatusCode, response.Header, body}, nil
}

// RetryAfter is the Retry-After header (RFC 9110 §10.2.3), in seconds or as a date: from zero to 15 minutes.
func (a Answer) RetryAfter() time.Duration {
	value := a.Header.Get("Retry-After")
	if seconds, err := strconv.Atoi(value); err == nil {
		return time.Duration(min(max(seconds, 0), int(maxRetryAfter.Seconds()))) * time.Second
	}
	if date, err := http.ParseTime(value); err == nil {
		return min(max(time.Until(date), 0), maxRetryAfter)
	}
	return 0
}
