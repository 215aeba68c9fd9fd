package embedded

import "fmt"

// InUseError says that a live process uses the store directory.
type InUseError struct {
	Dir     string
	PID     int
	Process string // its name, if known
	Why     string // how this is known
}

func (e *InUseError) Error() string {
	return fmt.Sprintf("in use by process %d (%s), which %s: stop it first, or reach its streams over a connection",
		e.PID, e.Process, e.Why)
}
