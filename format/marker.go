package format

import (
	"errors"
	"fmt"
)

// Keys by which a stream's metadata says that it's being restored by jetkeep.
// Until they're gone the stream may hold a part of its messages only.
const (
	MarkerPrefix = "jetkeep."
	MarkerID     = MarkerPrefix + "restore.id"
	MarkerBackup = MarkerPrefix + "restore.backup"
	MarkerState  = MarkerPrefix + "restore.state"
	MarkerOwner  = MarkerPrefix + "restore.owner"
)

// ErrBeingRestored says that a stream is, or was when it was backed up, the
// unfinished work of a restore.
var ErrBeingRestored = errors.New("the stream is being restored, and may not be whole")

// CheckNotBeingRestored refuses the configuration of a stream that a restore
// hasn't finished.
func CheckNotBeingRestored(cfg Object) error {
	var m map[string]string
	if err := cfg.Get("metadata", &m); err != nil || m[MarkerID] == "" {
		return err
	}
	return fmt.Errorf("%w (restore %s of %s): run that restore again, which finishes it or begins anew", ErrBeingRestored, m[MarkerID], m[MarkerBackup])
}
