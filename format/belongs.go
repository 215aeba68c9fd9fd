package format

import (
	"errors"
	"fmt"
)

// ErrMismatch says that an archive and its backup.json or manifest aren't of
// one backup.
var ErrMismatch = errors.New("the parts of the backup don't belong together")

// Belongs checks that an archive is the one that backup.json came with: the
// snapshot API's answer and state.json are made from one state.
func Belongs(file *BackupFile, ins *Inspection) error {
	said, err := file.StreamState()
	if err != nil {
		return err
	}
	in := ins.Head.State
	for _, f := range []struct {
		name          string
		file, archive any
	}{
		{"first_seq", said.FirstSeq, in.FirstSeq},
		{"last_seq", said.LastSeq, in.LastSeq},
		{"messages", said.Messages, in.Messages},
		{"bytes", said.Bytes, in.Bytes},
		{"first_ts", said.FirstTime.UnixNano(), in.FirstTime.UnixNano()},
		{"last_ts", said.LastTime.UnixNano(), in.LastTime.UnixNano()},
	} {
		if f.file != f.archive {
			return fmt.Errorf("%w: %s is %v in %s and %v in the archive", ErrMismatch, f.name, f.file, BackupFileName, f.archive)
		}
	}
	return nil
}
