//go:build !unix

package testnats

import "syscall"

// Zero stands for a signal that the system doesn't have.
const (
	sigStop = syscall.Signal(0)
	sigCont = syscall.Signal(0)
)
