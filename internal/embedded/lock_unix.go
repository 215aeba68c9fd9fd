//go:build linux || darwin || freebsd

package embedded

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// lock keeps other runs of jetkeep off a store directory, without a file in it:
// alone, or together with others that only read. A nats-server neither sees nor
// honours it. Where the file system can't lock a directory, there's no lock.
func lock(dir string, alone bool) (unlock func(), err error) {
	d, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	how := unix.LOCK_SH | unix.LOCK_NB
	if alone {
		how = unix.LOCK_EX | unix.LOCK_NB
	}
	if err := unix.Flock(int(d.Fd()), how); errors.Is(err, unix.EWOULDBLOCK) {
		pid := lockHolder(d)
		d.Close()
		return nil, &InUseError{Dir: dir, PID: pid, Process: processName(pid), Why: "has locked it"}
	}
	return func() { d.Close() }, nil
}

// lockHolder finds the process that holds a lock; 0 if that isn't known.
func lockHolder(d *os.File) int {
	var st unix.Stat_t
	if unix.Fstat(int(d.Fd()), &st) != nil {
		return 0
	}
	table, _ := os.ReadFile("/proc/locks")
	for line := range strings.Lines(string(table)) {
		var n, pid int
		var kind, mode, access, file string
		_, err := fmt.Sscanf(line, "%d: %s %s %s %d %s", &n, &kind, &mode, &access, &pid, &file)
		if err == nil && kind == "FLOCK" && strings.HasSuffix(file, fmt.Sprintf(":%d", st.Ino)) {
			return pid
		}
	}
	return 0
}
