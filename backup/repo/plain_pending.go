package repo

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/jetkeep/jetkeep/format"
)

// PlainPending is a backup that is being written into a directory of its own.
// Until Commit it's in a hidden directory beside it.
type PlainPending struct {
	writer
	target string
	parent *Dir
	stage  *dirHold
}

// BeginPlain starts a backup in the directory at path, which must not exist or
// be empty; the one above it must exist. What dead writers left of the same path
// is removed.
func BeginPlain(path string) (*PlainPending, error) {
	target, err := NewDir(path)
	if err != nil {
		return nil, err
	}
	return beginPlain(&Dir{root: filepath.Dir(target.root)}, target.root)
}

func beginPlain(parent *Dir, target string) (*PlainPending, error) {
	if _, err := os.Stat(parent.root); err != nil {
		return nil, err
	}
	if err := checkVacant(target); err != nil {
		return nil, err
	}
	mark := "." + PathName(filepath.Base(target)) + ".jetkeep-"
	if err := cleanStages(parent, mark); err != nil {
		return nil, err
	}
	p := &PlainPending{target: target, parent: parent}
	for try := 0; ; try++ {
		p.id = NewID(time.Now())
		stage, err := parent.hold(filepath.Join(parent.root, mark+p.id))
		if err == nil {
			p.stage = stage
			p.home = &Dir{root: stage.path, fault: parent.fault}
			return p, nil
		}
		if !errors.Is(err, ErrExists) || try == maxTries {
			return nil, err
		}
	}
}

// cleanStages removes the hidden directories of dead writers.
func cleanStages(parent *Dir, mark string) error {
	entries, err := os.ReadDir(parent.root)
	if err != nil {
		return err
	}
	for _, e := range entries {
		id, ok := strings.CutPrefix(e.Name(), mark)
		if !ok || !ValidID(id) {
			continue
		}
		if _, err := parent.discard(filepath.Join(parent.root, e.Name()), ""); err != nil {
			return fmt.Errorf("remove an abandoned backup: %w", err)
		}
	}
	return nil
}

// checkVacant refuses a target that isn't free to be written.
func checkVacant(target string) error {
	fi, err := os.Lstat(target)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if !fi.IsDir() {
		return fmt.Errorf("%s: %w, and isn't a directory", target, ErrExists)
	}
	entries, err := os.ReadDir(target)
	if err == nil && len(entries) > 0 {
		err = fmt.Errorf("%s: %w, and isn't empty", target, ErrExists)
	}
	return err
}

// Commit puts the manifest and gives the directory its name.
func (p *PlainPending) Commit(ctx context.Context, m *format.Manifest) (*Backup, error) {
	err := p.putManifest(ctx, m)
	if err == nil {
		err = p.publish()
	}
	if err != nil {
		return nil, fmt.Errorf("commit the backup in %s: %w", p.target, err)
	}
	p.finish()
	if removesOpenFiles {
		p.stage.path = p.target
		_ = p.stage.Finish() // the backup exists; a lock that nobody holds does no harm
	}
	return &Backup{Manifest: m, home: &Dir{root: p.target}}, nil
}

// publish renames the hidden directory. The lock is held meanwhile, unless that
// keeps it from being renamed.
func (p *PlainPending) publish() error {
	if err := checkVacant(p.target); err != nil {
		return err
	}
	if !removesOpenFiles {
		if err := p.stage.Finish(); err != nil {
			return err
		}
	}
	// An empty directory has to go first; one that isn't empty any more won't.
	if err := rmdir(p.target); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := p.parent.step("rename", p.target); err != nil {
		return err
	}
	if err := os.Rename(p.stage.path, p.target); err != nil {
		return err
	}
	if err := p.parent.syncDir(p.parent.root); err != nil {
		return errors.Join(err, os.Rename(p.target, p.stage.path))
	}
	return nil
}

// Abort removes the hidden directory.
func (p *PlainPending) Abort() error {
	if !p.finish() {
		return nil
	}
	if err := p.stage.Drop(); err != nil {
		return fmt.Errorf("remove the unfinished backup of %s: %w", p.target, err)
	}
	return nil
}
