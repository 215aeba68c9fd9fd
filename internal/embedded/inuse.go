package embedded

import "fmt"

// InUseError says that a live process uses the store directory.
type InUseError struct {
	Dir     string
	PID     int    // 0 if it isn't known
	Process string // its name, if known
	Why     string // how this is known
}

func (e *InUseError) Error() string {
	if e.PID == 0 {
		return fmt.Sprintf("in use by another process, which %s: wait for it, or stop it first", e.Why)
	}
	return fmt.Sprintf("in use by process %d (%s), which %s: stop it first, or reach its streams over a connection",
		e.PID, e.Process, e.Why)
}
