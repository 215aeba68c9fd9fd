package repo

import (
	"errors"
	"os"
	"syscall"
)

// removesOpenFiles says whether a file can be removed, and a directory renamed,
// while it's open.
const removesOpenFiles = false

// syncDir does nothing: Windows keeps the names of files durable by itself.
func syncDir(string) error { return nil }

// rmdir removes an empty directory, and never a file.
func rmdir(path string) error {
	p, err := syscall.UTF16PtrFromString(path)
	if err == nil {
		err = syscall.RemoveDirectory(p)
	}
	if err != nil {
		return &os.PathError{Op: "rmdir", Path: path, Err: err}
	}
	return nil
}

// noHardLinks reports whether link failed because the file system has none.
func noHardLinks(err error) bool {
	const (
		errorInvalidFunction = syscall.Errno(1)
		errorNotSupported    = syscall.Errno(50)
	)
	return errors.Is(err, errorInvalidFunction) || errors.Is(err, errorNotSupported) ||
		errors.Is(err, syscall.EWINDOWS)
}
