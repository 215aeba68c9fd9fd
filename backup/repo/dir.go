package repo

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
)

// Dir is a home in a directory. An object is a file; while it's put it has a
// hidden temporary name beside its final one.
type Dir struct {
	root string
	// fault, if set, is asked before every file operation: tests make one fail.
	fault func(op, path string) error
}

var (
	_ Store = (*Dir)(nil)
	_ Guard = (*Dir)(nil)
)

// NewDir returns the home in a directory, which need not exist: only [Init]
// creates it, so that a mistyped path or an unmounted disk can't pass for one.
func NewDir(path string) (*Dir, error) {
	if path == "" {
		return nil, errors.New("the path of the directory is empty")
	}
	abs, err := filepath.Abs(path)
	if err != nil {
		return nil, err
	}
	return &Dir{root: abs}, nil
}

// String returns the directory's path.
func (d *Dir) String() string { return d.root }

// Location returns the path of an object.
func (d *Dir) Location(key string) string {
	return filepath.Join(d.root, filepath.FromSlash(key))
}

// Create makes the directory, and those above it, when it's missing.
func (d *Dir) Create(context.Context) error {
	var missing []string
	for p := d.root; ; p = filepath.Dir(p) {
		if _, err := os.Stat(p); err == nil || !errors.Is(err, fs.ErrNotExist) || p == filepath.Dir(p) {
			break
		}
		missing = append(missing, p)
	}
	for _, p := range slices.Backward(missing) {
		if err := d.mkdir(p); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
		if err := d.syncDir(filepath.Dir(p)); err != nil {
			return err
		}
	}
	return nil
}

// Put writes an object. On a directory it's the same as PutIfAbsent.
func (d *Dir) Put(ctx context.Context, key string, r io.Reader) (int64, error) {
	return d.put(ctx, key, r)
}

// PutIfAbsent writes an object unless its key is taken.
func (d *Dir) PutIfAbsent(ctx context.Context, key string, r io.Reader) (int64, error) {
	return d.put(ctx, key, r)
}

// GetRange opens a part of an object.
func (d *Dir) GetRange(ctx context.Context, key string, off, n int64) (io.ReadCloser, error) {
	path, err := d.path(key)
	if err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, notFound(path, err)
	}
	if fi, err := f.Stat(); err != nil || !fi.Mode().IsRegular() {
		f.Close()
		return nil, cmp.Or(err, fmt.Errorf("%s: %w: not a regular file", path, ErrNotFound))
	}
	if _, err := f.Seek(off, io.SeekStart); err != nil {
		f.Close()
		return nil, err
	}
	var r io.Reader = f
	if n >= 0 {
		r = io.LimitReader(f, n)
	}
	return readCloser{ctxReader{ctx, r}, f}, nil
}

type readCloser struct {
	io.Reader
	io.Closer
}

// ctxReader fails once its context is done.
type ctxReader struct {
	ctx context.Context
	r   io.Reader
}

func (r ctxReader) Read(p []byte) (int, error) {
	if err := r.ctx.Err(); err != nil {
		return 0, err
	}
	return r.r.Read(p)
}

// List walks the directory. A missing directory is an error, since it's no
// empty repository.
func (d *Dir) List(ctx context.Context, prefix string) iter.Seq2[ObjectInfo, error] {
	return func(yield func(ObjectInfo, error) bool) {
		if _, err := os.ReadDir(d.root); err != nil {
			yield(ObjectInfo{}, err)
			return
		}
		base := prefix[:strings.LastIndexByte(prefix, '/')+1]
		if base != "" {
			if _, err := d.path(strings.TrimSuffix(base, "/")); err != nil {
				yield(ObjectInfo{}, err)
				return
			}
		}
		d.walk(ctx, base, prefix, yield)
	}
}

// walk yields what is below base, "" or a key with a slash at its end, and
// reports whether to go on.
func (d *Dir) walk(ctx context.Context, base, prefix string, yield func(ObjectInfo, error) bool) bool {
	keys, err := d.readDir(ctx, base)
	if err != nil {
		yield(ObjectInfo{}, err)
		return false
	}
	for _, key := range keys {
		if strings.HasSuffix(key, "/") {
			if !strings.HasPrefix(key, prefix) && !strings.HasPrefix(prefix, key) {
				continue
			}
			if !d.walk(ctx, key, prefix, yield) {
				return false
			}
			continue
		}
		if !strings.HasPrefix(key, prefix) {
			continue
		}
		fi, err := os.Lstat(d.Location(key))
		if errors.Is(err, fs.ErrNotExist) {
			continue // deleted meanwhile
		}
		if err != nil {
			yield(ObjectInfo{}, err)
			return false
		}
		if !yield(ObjectInfo{Key: key, Size: fi.Size(), ModTime: fi.ModTime()}, nil) {
			return false
		}
	}
	return true
}

// readDir returns the keys below base, in the order of the keys in them:
// directories have a slash at their end. A directory that isn't there is empty.
func (d *Dir) readDir(ctx context.Context, base string) ([]string, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	entries, err := os.ReadDir(d.Location(base))
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var keys []string
	for _, e := range entries {
		switch {
		case strings.HasPrefix(e.Name(), "."):
		case e.IsDir():
			keys = append(keys, base+e.Name()+"/")
		case e.Type().IsRegular():
			keys = append(keys, base+e.Name())
		}
	}
	slices.Sort(keys)
	return keys, nil
}

// Delete removes a file, and the directories that it leaves empty.
func (d *Dir) Delete(ctx context.Context, key string) error {
	path, err := d.path(key)
	if err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	fi, err := os.Lstat(path)
	if err != nil {
		return notFound(path, err)
	}
	if fi.IsDir() {
		return fmt.Errorf("%s: %w: a directory", path, ErrNotFound)
	}
	if err := d.remove(path); err != nil {
		return notFound(path, err)
	}
	dir := filepath.Dir(path)
	// Another Delete may have pruned the directory meanwhile, and synced that.
	if err := d.syncDir(dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	d.prune(dir)
	return nil
}

// path returns the file path of a key.
func (d *Dir) path(key string) (string, error) {
	local, err := filepath.Localize(key)
	if err != nil || strings.HasPrefix(key, ".") || strings.Contains(key, "/.") {
		return "", fmt.Errorf("%q isn't a valid key", key)
	}
	return filepath.Join(d.root, local), nil
}

// The file operations, each of which a test can make fail.

func (d *Dir) step(op, path string) error {
	if d.fault == nil {
		return nil
	}
	if err := d.fault(op, path); err != nil {
		return &fs.PathError{Op: op, Path: path, Err: err}
	}
	return nil
}

// mkdir makes one directory. Chmod gives back what the umask took away.
func (d *Dir) mkdir(path string) error {
	if err := d.step("mkdir", path); err != nil {
		return err
	}
	if err := os.Mkdir(path, 0o700); err != nil {
		return err
	}
	return os.Chmod(path, 0o700)
}

// makeDirs makes the missing directories between the root and dir. It begins
// again when one that it relied on is pruned at the same moment.
func (d *Dir) makeDirs(dir string) error {
	if _, err := os.Stat(d.root); err != nil {
		return err
	}
	rel, err := filepath.Rel(d.root, dir)
	if err != nil || rel == "." {
		return err
	}
	for try := 0; ; try++ {
		if err = d.makeDirsOnce(rel); try == maxTries || !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
}

// maxTries bounds how often an operation is begun again because directories
// come and go.
const maxTries = 20

func (d *Dir) makeDirsOnce(rel string) error {
	path := d.root
	for elem := range strings.SplitSeq(rel, string(filepath.Separator)) {
		parent := path
		path = filepath.Join(path, elem)
		if fi, err := os.Stat(path); err == nil && fi.IsDir() {
			continue
		}
		if err := d.mkdir(path); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
		if err := d.syncDir(parent); err != nil {
			return err
		}
	}
	return nil
}

// prune removes dir and the directories above it as far as they are empty. What
// can't be removed isn't empty, or does no harm.
func (d *Dir) prune(dir string) {
	for dir != d.root && strings.HasPrefix(dir, d.root) {
		if d.step("rmdir", dir) != nil || rmdir(dir) != nil {
			return
		}
		dir = filepath.Dir(dir)
		_ = d.syncDir(dir) // an empty directory that comes back does no harm
	}
}

func (d *Dir) remove(path string) error {
	if err := d.step("remove", path); err != nil {
		return err
	}
	return os.Remove(path)
}

func (d *Dir) syncDir(path string) error {
	if err := d.step("syncdir", path); err != nil {
		return err
	}
	return syncDir(path)
}

// notFound marks the errors of a missing file with ErrNotFound.
func notFound(path string, err error) error {
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) {
		return fmt.Errorf("%s: %w", path, ErrNotFound)
	}
	return err
}

// exists reports whether there's something at path. A doubt is an error.
func exists(path string) (bool, error) {
	_, err := os.Lstat(path)
	if err == nil {
		return true, nil
	}
	if errors.Is(notFound(path, err), ErrNotFound) {
		return false, nil
	}
	return false, err
}
