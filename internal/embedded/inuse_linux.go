package embedded

import (
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"github.com/nats-io/nats-server/v2/server"
)

// inode identifies a file, however it is reached: through links, bind mounts, or
// from a container.
type inode struct{ dev, ino uint64 }

func inodeOf(fi fs.FileInfo) (inode, bool) {
	st, ok := fi.Sys().(*syscall.Stat_t)
	if !ok || !fi.Mode().IsRegular() {
		return inode{}, false
	}
	return inode{uint64(st.Dev), st.Ino}, true
}

// checkUnused looks for a process that uses the store directory: one that has a
// file of it open, or a nats-server whose command line or configuration names
// it, since an idle server closes all its files. Other users' processes can be
// looked into only by root: finding nothing proves nothing.
func checkUnused(storeDir string) error {
	files := make(map[inode]string)
	err := walk(filepath.Join(storeDir, server.JetStreamStoreDir), func(path string, fi fs.FileInfo) error {
		if id, ok := inodeOf(fi); ok {
			files[id] = path
		}
		return nil
	})
	if err != nil {
		return err
	}
	procs, err := os.ReadDir("/proc")
	if err != nil {
		return nil // no /proc: unknown, hence allowed
	}
	for _, p := range procs {
		pid, err := strconv.Atoi(p.Name())
		if err != nil {
			continue
		}
		var why string
		if file := openBy(pid, files); file != "" {
			why = "has " + file + " open"
		} else if configuredBy(pid, storeDir) {
			why = "is configured to store there"
		}
		if why != "" {
			return &InUseError{Dir: storeDir, PID: pid, Process: processName(pid), Why: why}
		}
	}
	return nil
}

func procFile(pid int, name string) string {
	return filepath.Join("/proc", strconv.Itoa(pid), name)
}

func processName(pid int) string {
	b, _ := os.ReadFile(procFile(pid, "comm"))
	return strings.TrimSpace(string(b))
}

// openBy returns one of the files that the process has open. Processes that end
// meanwhile, or that can't be looked into, have none.
func openBy(pid int, files map[inode]string) string {
	if len(files) == 0 {
		return ""
	}
	dir := procFile(pid, "fd")
	fds, err := os.ReadDir(dir)
	if err != nil {
		return ""
	}
	for _, fd := range fds {
		fi, err := os.Stat(filepath.Join(dir, fd.Name()))
		if err != nil {
			continue
		}
		if id, ok := inodeOf(fi); ok && files[id] != "" {
			return files[id]
		}
	}
	return ""
}
