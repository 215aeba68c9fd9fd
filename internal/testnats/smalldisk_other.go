//go:build !linux

package testnats

import "testing"

// SmallDisk needs tmpfs, which only Linux has: it skips the test, or fails it
// in CI.
func SmallDisk(t testing.TB, size int64) string {
	t.Helper()
	missing(t, "can't mount a disk of %d bytes on this system", size)
	return ""
}
