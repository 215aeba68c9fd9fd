//go:build !windows

package repo

import (
	"errors"
	"os"
	"syscall"
)

// removesOpenFiles says whether a file can be removed, and a directory renamed,
// while it's open.
const removesOpenFiles = true

// syncDir makes the names in a directory durable. Some FUSE file systems can't,
// and say so.
func syncDir(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	err = f.Sync()
	if errors.Is(err, syscall.EINVAL) || errors.Is(err, syscall.ENOTSUP) {
		err = nil
	}
	return errors.Join(err, f.Close())
}

// rmdir removes an empty directory, and never a file.
func rmdir(path string) error {
	if err := syscall.Rmdir(path); err != nil {
		return &os.PathError{Op: "rmdir", Path: path, Err: err}
	}
	return nil
}

// noHardLinks reports whether link failed because the file system has none.
func noHardLinks(err error) bool {
	for _, e := range []error{syscall.EPERM, syscall.ENOTSUP, syscall.EOPNOTSUPP, syscall.ENOSYS, syscall.EMLINK} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}
