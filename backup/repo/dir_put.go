package repo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/gofrs/flock"
)

const (
	tempPrefix = ".tmp-"
	// putLockName is locked for the moment of a rename, where hard links aren't
	// supported.
	putLockName = ".put"
	copyBuffer  = 256 << 10
	// syncEvery is how much is written before it's synced in the background, so
	// that the sync at the end has little left to do.
	syncEvery = 16 << 20
)

// put writes a temporary file, syncs it, links it to its final name, removes
// the temporary one, and syncs the directory.
func (d *Dir) put(ctx context.Context, key string, r io.Reader) (int64, error) {
	path, err := d.path(key)
	if err != nil {
		return 0, err
	}
	if there, err := exists(path); err != nil || there {
		if there {
			err = fmt.Errorf("%s: %w", path, ErrExists)
		}
		return 0, err // rather now than after a large copy
	}
	if err := ctx.Err(); err != nil {
		return 0, writeError(path, err)
	}
	f, err := d.createTemp(filepath.Dir(path))
	if err != nil {
		return 0, writeError(path, err)
	}
	n, err := d.fill(ctx, f, r)
	if err == nil {
		err = ctx.Err()
	}
	if err == nil {
		err = d.publish(ctx, f.Name(), path)
	}
	if err != nil {
		// What can't be removed stays hidden, and goes with the directory.
		_ = os.Remove(f.Name())
		d.prune(filepath.Dir(path))
		return 0, writeError(path, err)
	}
	return n, nil
}

// writeError names the final path instead of the temporary one.
func writeError(path string, err error) error {
	if pe, ok := err.(*fs.PathError); ok {
		return &fs.PathError{Op: pe.Op, Path: path, Err: pe.Err}
	}
	return fmt.Errorf("write %s: %w", path, err)
}

// createTemp makes a temporary file in dir, and dir when it's missing. The file
// keeps dir from being pruned.
func (d *Dir) createTemp(dir string) (*os.File, error) {
	for try := 0; ; try++ {
		f, err := d.tryTemp(dir)
		if !errors.Is(err, fs.ErrNotExist) || try == maxTries {
			return f, err
		}
		if err := d.makeDirs(dir); err != nil {
			return nil, err
		}
	}
}

func (d *Dir) tryTemp(dir string) (*os.File, error) {
	path := filepath.Join(dir, tempPrefix+randomHex(8))
	if err := d.step("create", path); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return nil, err
	}
	err = d.step("chmod", path)
	if err == nil {
		err = f.Chmod(0o600)
	}
	if err != nil {
		f.Close()
		os.Remove(path)
		return nil, err
	}
	return f, nil
}

// fill copies r to f, syncs and closes it.
func (d *Dir) fill(ctx context.Context, f *os.File, r io.Reader) (n int64, err error) {
	s := syncer{sync: func() error {
		if err := d.step("sync", f.Name()); err != nil {
			return err
		}
		return f.Sync()
	}}
	n, err = d.copy(ctx, f, r, &s)
	if e := s.wait(); err == nil {
		err = e
	}
	if err == nil {
		err = s.sync()
	}
	e := d.step("close", f.Name())
	if closeErr := f.Close(); e == nil {
		e = closeErr
	}
	if err == nil {
		err = e
	}
	return n, err
}

func (d *Dir) copy(ctx context.Context, f *os.File, r io.Reader, s *syncer) (n int64, err error) {
	buf := make([]byte, copyBuffer)
	for {
		if err := ctx.Err(); err != nil {
			return n, err
		}
		got, readErr := r.Read(buf)
		if got > 0 {
			if err := d.step("write", f.Name()); err != nil {
				return n, err
			}
			wrote, err := f.Write(buf[:got])
			n += int64(wrote)
			if err != nil {
				return n, err
			}
			if err := s.wrote(wrote); err != nil {
				return n, err
			}
		}
		if readErr == io.EOF {
			return n, nil
		}
		if readErr != nil {
			return n, readErr
		}
	}
}

// syncer syncs a file in the background, one sync at a time. It keeps every
// error: the kernel reports a failed write to one sync only.
type syncer struct {
	sync    func() error
	running chan error
	since   int
}

// wrote counts what was written and syncs when it's due.
func (s *syncer) wrote(n int) error {
	s.since += n
	if s.running != nil {
		select {
		case err := <-s.running:
			s.running = nil
			if err != nil {
				return err
			}
		default:
			return nil
		}
	}
	if s.since >= syncEvery {
		s.since = 0
		done := make(chan error, 1)
		s.running = done
		go func() { done <- s.sync() }()
	}
	return nil
}

// wait waits for the sync that is running, if any.
func (s *syncer) wait() error {
	if s.running == nil {
		return nil
	}
	err := <-s.running
	s.running = nil
	return err
}

// publish gives a finished file its final name, unless that is taken. When the
// name can't be made durable it is taken back.
func (d *Dir) publish(ctx context.Context, tmp, path string) error {
	err := d.link(tmp, path)
	switch {
	case err == nil:
		_ = d.remove(tmp) // a second, hidden name of the same file does no harm
	case noHardLinks(err):
		err = d.renameNew(ctx, tmp, path)
	}
	if errors.Is(err, fs.ErrExist) {
		return ErrExists
	}
	if err != nil {
		return err
	}
	if err := d.syncDir(filepath.Dir(path)); err != nil {
		return errors.Join(err, os.Remove(path))
	}
	return nil
}

// link makes a hard link, which fails when the name is taken.
func (d *Dir) link(tmp, path string) error {
	if err := d.step("link", path); err != nil {
		return err
	}
	err := os.Link(tmp, path)
	if errors.Is(err, fs.ErrExist) && sameFile(tmp, path) {
		return nil // NFS: the request was sent twice, the first one did it
	}
	if le, ok := err.(*os.LinkError); ok {
		return &fs.PathError{Op: "link", Path: path, Err: le.Err}
	}
	return err
}

func sameFile(a, b string) bool {
	fa, errA := os.Lstat(a)
	fb, errB := os.Lstat(b)
	return errA == nil && errB == nil && os.SameFile(fa, fb)
}

// renameNew renames unless the name is taken. Without hard links only a lock
// makes looking and renaming one step.
func (d *Dir) renameNew(ctx context.Context, tmp, path string) (err error) {
	lock := flock.New(filepath.Join(filepath.Dir(path), putLockName), flock.SetPermissions(0o600))
	if _, err := lock.TryLockContext(ctx, 5*time.Millisecond); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, lock.Close()) }()
	if there, err := exists(path); err != nil || there {
		if there {
			err = ErrExists
		}
		return err
	}
	if err := d.step("rename", path); err != nil {
		return err
	}
	return os.Rename(tmp, path)
}
