package artifacts

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// exchange swaps two paths in one atomic step. The error is errors.ErrUnsupported where the kernel
// or the file system does not support that.
func exchange(a, b string) error {
	err := unix.Renameat2(unix.AT_FDCWD, a, unix.AT_FDCWD, b, unix.RENAME_EXCHANGE)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, unix.EINVAL): // renameat2(2): the file system does not support the flag
		return errors.ErrUnsupported
	default:
		// ENOSYS also matches errors.ErrUnsupported.
		return &os.LinkError{Op: "exchange", Old: a, New: b, Err: err}
	}
}
