//go:build linux || darwin || freebsd

package embedded

import "golang.org/x/sys/unix"

// diskFree is how many bytes we may still write to dir's disk.
func diskFree(dir string) (int64, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return 0, err
	}
	return int64(uint64(st.Bavail) * uint64(st.Bsize)), nil
}
