package cmd

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/jetkeep/jetkeep/format"
	"github.com/jetkeep/jetkeep/internal/connect"
	"github.com/jetkeep/jetkeep/internal/tarfile"
	"github.com/jetkeep/jetkeep/restore"
)

// TestSpooledErrorsNameStandardInput: nobody can do anything with the name of a
// directory that is gone.
func TestSpooledErrorsNameStandardInput(t *testing.T) {
	for name, files := range map[string]map[string]string{
		"no manifest, no archive": {format.BackupFileName: "{}"},
		"broken manifest":         {format.BackupFileName: "{}", format.ManifestName: "{", format.ArchiveV2Name: "x"},
		"broken backup.json":      {format.BackupFileName: "{", format.ArchiveV2Name: "x"},
		"broken archive":          {format.BackupFileName: `{"config":{"name":"S","subjects":["s"]},"state":{}}`, format.ArchiveV2Name: "x"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			for file, content := range files {
				if err := os.WriteFile(filepath.Join(dir, file), []byte(content), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			var tar, out, errs bytes.Buffer
			if err := tarfile.Pack(t.Context(), &tar, dir); err != nil {
				t.Fatal(err)
			}
			code := Run(t.Context(), []string{"verify", "-"}, Streams{In: &tar, Out: &out, Err: &errs}, Build{})
			if code != exitDamaged || strings.Contains(errs.String(), os.TempDir()) || !strings.Contains(errs.String(), stdinName) {
				t.Errorf("exit %d: %s", code, &errs)
			}
		})
	}
}

// TestCopyThatStaysIsTold: the link to a copy of a store directory passes on
// that the copy couldn't be removed.
func TestCopyThatStaysIsTold(t *testing.T) {
	stay := func() error { return &os.PathError{Op: "unlinkat", Path: "/tmp/copy", Err: syscall.EBUSY} }
	l := &link{Connection: &connect.Connection{Resolved: &connect.Resolved{}}, stop: stay, undo: stay}
	err := l.Close()
	if exitCode(err) != exitLeftBehind || !errors.Is(err, syscall.EBUSY) {
		t.Errorf("exit code %d: %v", exitCode(err), err)
	}
	if line := newErrorLine(err); !strings.Contains(line.LeftBehind, "/tmp/copy") {
		t.Errorf("%+v", line)
	}
	if err := l.Close(); err != nil {
		t.Errorf("a second time: %v", err)
	}
}

func TestEveryExistingTargetHasItsText(t *testing.T) {
	for _, e := range []string{
		restore.TargetNone, restore.TargetEmpty, restore.TargetAbandoned, restore.TargetActivating, restore.TargetOccupied, restore.TargetMissing,
	} {
		if existingText(e) == e {
			t.Errorf("%q has no text", e)
		}
	}
}
