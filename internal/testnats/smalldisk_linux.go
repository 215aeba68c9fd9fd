package testnats

import (
	"fmt"
	"testing"

	"golang.org/x/sys/unix"
)

// SmallDisk mounts a new tmpfs of so many bytes and returns its directory. It
// is unmounted at the end of the test. Where mounting isn't possible the test
// is skipped; in CI it fails.
func SmallDisk(t testing.TB, size int64) string {
	t.Helper()
	dir := t.TempDir()
	err := unix.Mount("tmpfs", dir, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, fmt.Sprintf("size=%d,mode=0700", size))
	if err != nil {
		missing(t, "can't mount a small tmpfs: %v", err)
	}
	t.Cleanup(func() {
		// Lazily: a server that the test has left running may still have files open.
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Errorf("unmount %s: %v", dir, err)
		}
	})
	return dir
}
