package sopsfile

import (
	"errors"

	"github.com/lanyard-dev/lanyard/internal/encryptedfile"
)

// Fixes that several errors have.
const (
	fixEncrypt = "encrypt the file again with sops"
	fixSplit   = "write the documents into files of their own, and encrypt each file"
)

// guard runs a function of SOPS's library. It replaces a panic and an error of the library by an
// [*encryptedfile.Error] with the given message.
func guard(message string, run func() error) (err error) {
	defer func() {
		if recover() != nil {
			err = &encryptedfile.Error{Message: message, Fix: fixEncrypt}
		}
	}()
	err = run()
	if err == nil {
		return nil
	}
	if own, ok := errors.AsType[*encryptedfile.Error](err); ok {
		return own
	}
	return &encryptedfile.Error{Message: message, Fix: fixEncrypt}
}
