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

	"github.com/gofrs/flock"
)

// A group is a directory, and its writer holds a lock on a file in it. Making
// the directory and locking the file are two steps, between which a cleaner may
// come: it locks the file, or removes the directory, and either way the writer
// notices and takes another name. So a cleaner need not guess by age who lives.
//
// The lock file is there before anything else in the directory and goes last,
// or after the manifest. Content without one isn't of our making: someone
// copies a backup into the repository just now, or deletes one by hand. Such a
// directory is left alone until nothing in it has changed for an hour.

const (
	lockName      = ".lock"
	foreignMinAge = time.Hour
)

// Hold makes a group's directory and locks it.
func (d *Dir) Hold(ctx context.Context, group string) (Hold, error) {
	path, err := d.path(group)
	if err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	h, err := d.hold(path)
	if err != nil {
		return nil, err
	}
	return h, nil
}

func (d *Dir) hold(path string) (*dirHold, error) {
	if err := d.mkdirNew(path); err != nil {
		return nil, err
	}
	h, err := d.lock(path)
	if err != nil || h == nil {
		d.prune(path)
		if err == nil {
			err = fmt.Errorf("%s: %w", path, ErrExists)
		}
		return nil, err
	}
	// Those above may have been made by others, and not be durable yet.
	for dir := filepath.Dir(path); ; dir = filepath.Dir(dir) {
		if err := d.syncDir(dir); err != nil {
			return nil, errors.Join(err, h.Drop())
		}
		if dir == d.root {
			return h, nil
		}
	}
}

// mkdirNew makes a directory that must be new, and those above it.
func (d *Dir) mkdirNew(path string) error {
	for try := 0; ; try++ {
		if err := d.makeDirs(filepath.Dir(path)); err != nil {
			return err
		}
		err := d.mkdir(path)
		if errors.Is(err, fs.ErrExist) {
			return fmt.Errorf("%s: %w", path, ErrExists)
		}
		if !errors.Is(err, fs.ErrNotExist) || try == maxTries {
			return err
		}
	}
}

// lock locks a directory. It returns nil when another has the lock, or when the
// directory or the lock's file went away meanwhile.
func (d *Dir) lock(path string) (*dirHold, error) {
	file := filepath.Join(path, lockName)
	if err := d.step("lock", file); err != nil {
		return nil, err
	}
	l := flock.New(file, flock.SetPermissions(0o600))
	switch ok, err := l.TryLock(); {
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("lock %s: %w", file, err)
	case !ok:
		return nil, nil
	}
	if err := d.step("check lock", file); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	mine, err := l.Stat()
	if err == nil {
		var there fs.FileInfo
		there, err = os.Stat(file)
		if errors.Is(err, fs.ErrNotExist) || err == nil && !os.SameFile(mine, there) {
			return nil, l.Close()
		}
	}
	if err == nil {
		err = os.Chmod(file, 0o600)
	}
	if err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return &dirHold{dir: d, path: path, lock: l}, nil
}

// dirHold is a locked directory.
type dirHold struct {
	dir  *Dir
	path string
	lock *flock.Flock
}

// Finish removes the lock's file and unlocks.
func (h *dirHold) Finish() error {
	file := filepath.Join(h.path, lockName)
	if !removesOpenFiles {
		return errors.Join(h.lock.Close(), h.dir.remove(file))
	}
	// Removed while locked: nobody can lock a file that is about to go.
	return errors.Join(h.dir.remove(file), h.lock.Close())
}

// Drop removes everything, the lock's file last, and unlocks. When something
// can't be removed the lock's file stays too: it tells the next cleaner that
// this is ours to remove.
func (h *dirHold) Drop() error {
	entries, err := os.ReadDir(h.path)
	for _, e := range entries {
		if e.Name() == lockName {
			continue
		}
		path := filepath.Join(h.path, e.Name())
		stepErr := h.dir.step("remove", path)
		if stepErr == nil {
			stepErr = os.RemoveAll(path)
		}
		err = errors.Join(err, stepErr)
	}
	if err != nil {
		return errors.Join(err, h.lock.Close())
	}
	if err := h.Finish(); err != nil {
		return err
	}
	h.dir.prune(h.path)
	return nil
}

// Groups names the directories below parent.
func (d *Dir) Groups(ctx context.Context, parent string) ([]string, error) {
	if _, err := d.path(parent); err != nil {
		return nil, err
	}
	keys, err := d.readDir(ctx, parent+"/")
	if err != nil {
		return nil, err
	}
	var names []string
	for _, key := range keys {
		if dir, ok := strings.CutSuffix(key, "/"); ok {
			names = append(names, dir[len(parent)+1:])
		}
	}
	return names, nil
}

// Discard removes what a dead writer left.
func (d *Dir) Discard(ctx context.Context, group, unless string) (bool, error) {
	path, err := d.path(group)
	if err != nil {
		return false, err
	}
	if err := ctx.Err(); err != nil {
		return false, err
	}
	return d.discard(path, filepath.Join(path, unless))
}

// discard removes the directory at path, unless there's a file of the name
// unless (which is ignored when empty).
func (d *Dir) discard(path, unless string) (bool, error) {
	if ours, err := unfinished(path, time.Now()); err != nil || !ours {
		return false, err
	}
	if unless != "" {
		if there, err := exists(unless); err != nil || there {
			return false, err
		}
	}
	h, err := d.lock(path)
	if err != nil || h == nil {
		return false, err
	}
	// Its writer may have finished since: look again, now that it can't.
	if unless != "" {
		if there, err := exists(unless); err != nil || there {
			return false, errors.Join(err, h.Finish())
		}
	}
	if err := h.Drop(); err != nil {
		return false, err
	}
	return true, nil
}

// unfinished reports whether a directory is one that a writer of ours makes or
// made, or one that nobody has touched for long.
func unfinished(path string, now time.Time) (bool, error) {
	entries, err := os.ReadDir(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	if len(entries) == 0 {
		return true, nil
	}
	newest, err := os.Stat(path)
	if err != nil {
		return false, err
	}
	last := newest.ModTime()
	for _, e := range entries {
		if e.Name() == lockName {
			return true, nil
		}
		fi, err := e.Info()
		if err != nil {
			return false, nil // it changes just now
		}
		if fi.ModTime().After(last) {
			last = fi.ModTime()
		}
	}
	return now.Sub(last) > foreignMinAge, nil
}
