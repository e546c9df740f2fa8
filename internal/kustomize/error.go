package kustomize

import (
	"strings"
	"unicode"
)

// Reason says why a build failed.
type Reason string

// The reasons.
const (
	// ReasonRefused means that the manifests ask for something that is never allowed, such as a
	// URL or a plugin.
	ReasonRefused Reason = "refused"
	// ReasonInvalid means that the archive, a file or a field has a mistake.
	ReasonInvalid Reason = "invalid"
	// ReasonSubstitution means that variables could not be substituted.
	ReasonSubstitution Reason = "substitution"
	// ReasonDecryption means that an encrypted file cannot be decrypted, although its data key is
	// known, or that nobody asked for its decryption.
	ReasonDecryption Reason = "decryption"
	// ReasonTooLarge means that the build needs more than its limits.
	ReasonTooLarge Reason = "too large"
)

// Error is a failed build. Its text never contains a value that was substituted
// or decrypted.
type Error struct {
	// Reason is the cause, for programs.
	Reason Reason `json:"reason"`
	// Place is the file and the field, or the object, with the mistake. It may be empty.
	Place string `json:"place,omitempty"`
	// Message says what is wrong.
	Message string `json:"message"`
	// Fix is the next step for the user, as a sentence without a full stop.
	Fix string `json:"fix"`
}

// maxMessage bounds the message of an error, in bytes. kustomize repeats its input in some errors.
const maxMessage = 1000

// Error implements error.
func (e *Error) Error() string {
	var b strings.Builder
	if e.Place != "" {
		b.WriteString(e.Place + ": ")
	}
	b.WriteString(e.Message)
	if e.Fix != "" {
		b.WriteString("; " + e.Fix)
	}
	return b.String()
}

// invalid returns an error about a mistake in a file or a field.
func invalid(place, message, fix string) *Error {
	return &Error{Reason: ReasonInvalid, Place: place, Message: clip(message), Fix: fix}
}

// refused returns an error about something that is never allowed.
func refused(place, message, fix string) *Error {
	return &Error{Reason: ReasonRefused, Place: place, Message: clip(message), Fix: fix}
}

// clip shortens a text to maxMessage bytes, and puts it on one line.
func clip(text string) string {
	end := ""
	if len(text) > maxMessage {
		text, end = text[:maxMessage], "…"
	}
	text = strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(text, ""))
	return strings.Join(strings.Fields(text), " ") + end
}
