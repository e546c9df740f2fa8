package sopsfile

import "errors"

// Error says why a file cannot be read or decrypted. It has nothing of the file's content.
type Error struct {
	// Message says what is wrong with the file.
	Message string
	// Fix is the next step for the user, as a sentence without a full stop.
	Fix string
}

// Error implements error.
func (e *Error) Error() string { return e.Message + "; " + e.Fix }

// Fixes that several errors have.
const (
	fixEncrypt = "encrypt the file again with sops"
	fixSplit   = "write the documents into files of their own, and encrypt each file"
)

// guard runs a function of SOPS's library. It replaces a panic and an error of the library by an
// [*Error] with the given message.
func guard(message string, run func() error) (err error) {
	defer func() {
		if recover() != nil {
			err = &Error{Message: message, Fix: fixEncrypt}
		}
	}()
	err = run()
	if err == nil {
		return nil
	}
	if own, ok := errors.AsType[*Error](err); ok {
		return own
	}
	return &Error{Message: message, Fix: fixEncrypt}
}
