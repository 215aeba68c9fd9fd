package restore

import "os"

// processAlive reports whether a process of this machine is running.
func processAlive(pid int) bool {
	p, err := os.FindProcess(pid) // on Windows this opens it
	if err != nil {
		return false
	}
	p.Release()
	return true
}
