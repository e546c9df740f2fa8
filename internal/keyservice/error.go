package keyservice

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode"

	"github.com/lanyard-dev/lanyard/auth"
)

// Error says why the data key of a file cannot be decrypted.
type Error struct {
	// File is the file's name.
	File string
	// Keys has an error for each key that was tried.
	Keys []KeyError
	// Fix is the next step if a key service was asked, as a sentence without a full stop. Otherwise the
	// errors of the keys say what to do.
	Fix string
}

// KeyError says why one key decrypts nothing.
type KeyError struct {
	// Key is the key's type and name.
	Key string
	// Subject is who asked a key service; empty if nobody was asked.
	Subject string
	// Err is the cause.
	Err error
}

// maxShown is how many keys the text of an [Error] names.
const maxShown = 3

// Error implements error. The text has neither a data key nor a credential.
func (e *Error) Error() string {
	var b strings.Builder
	b.WriteString(printable(e.File) + ": no key decrypts it: ")
	for i, key := range e.Keys {
		if i == maxShown {
			fmt.Fprintf(&b, "; and %d more", len(e.Keys)-maxShown)
			break
		}
		if i > 0 {
			b.WriteString("; ")
		}
		b.WriteString(key.Error())
	}
	if slices.ContainsFunc(e.Keys, func(key KeyError) bool { return key.Subject != "" }) {
		b.WriteString("; " + e.Fix)
	}
	return b.String()
}

// Error implements error.
func (e KeyError) Error() string {
	if e.Subject == "" {
		return fmt.Sprintf("%s: %v", e.Key, e.Err)
	}
	return fmt.Sprintf("%s, asked by %s: %v", e.Key, e.Subject, e.Err)
}

// Temporary reports whether another attempt may soon succeed. Otherwise somebody must first change
// the file, a Secret, an account, or a grant at the cloud.
func (e *Error) Temporary() bool {
	return slices.ContainsFunc(e.Keys, func(key KeyError) bool { return isTemporary(key.Err) })
}

// serviceError is the answer of a cloud's key service, or of the way to it.
type serviceError struct {
	service string
	status  int // 0 if there was no answer
	code    string
	message string
	err     error // only if there was no answer
}

func (e *serviceError) Error() string {
	switch {
	case e.err != nil:
		return fmt.Sprintf("%s cannot be reached: %s", e.service, printable(e.err.Error()))
	case e.code == "":
		return fmt.Sprintf("%s answered with status %d: %s", e.service, e.status, printable(e.message))
	default:
		return printable(fmt.Sprintf("%s answered %s: %s", e.service, e.code, e.message))
	}
}

func (e *serviceError) Unwrap() error { return e.err }

// throttled are the codes with which AWS KMS asks to call more slowly. Its status is 400.
func throttled() []string {
	return []string{"ThrottlingException", "LimitExceededException", "KMSInternalException", "DependencyTimeoutException", "KeyUnavailableException"}
}

func isTemporary(err error) bool {
	if answer, ok := errors.AsType[*serviceError](err); ok {
		return answer.err != nil || answer.status == 429 || answer.status >= 500 || slices.Contains(throttled(), answer.code)
	}
	passing := []auth.Code{auth.CodeUnreachable, auth.CodeUnavailable, auth.CodeThrottled, auth.CodeSubjectReplaced}
	return slices.Contains(passing, auth.CodeOf(err)) || errors.Is(err, context.DeadlineExceeded)
}

// maxAnswer bounds what is shown of an answer, in characters.
const maxAnswer = 400

// printable returns a text of one line, shortened.
func printable(text string) string {
	text = strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(text, "?"))
	text = strings.Join(strings.Fields(text), " ")
	if runes := []rune(text); len(runes) > maxAnswer {
		return string(runes[:maxAnswer]) + "…"
	}
	return text
}
