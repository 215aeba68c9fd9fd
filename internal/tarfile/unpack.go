package tarfile

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/jetkeep/jetkeep/format"
)

var (
	// ErrNotTar says that the input is no tar of a backup's files.
	ErrNotTar = errors.New("not a tar of a backup")
	// ErrTruncated says that the input ends before the tar does.
	ErrTruncated = errors.New("truncated tar")
)

// blockSize is what a tar consists of; it ends with two blocks of zeros.
const blockSize = 512

// Unpack reads a backup as Pack wrote it into a new temporary directory. Call
// cleanup when done with it; after an error nothing is left.
func Unpack(ctx context.Context, r io.Reader) (dir string, cleanup func() error, err error) {
	dir, err = os.MkdirTemp("", "jetkeep-")
	if err != nil {
		return "", nil, fmt.Errorf("unpack a backup: %w", err)
	}
	if err := unpackInto(ctx, r, dir); err != nil {
		return "", nil, errors.Join(fmt.Errorf("unpack a backup: %w", err), os.RemoveAll(dir))
	}
	return dir, func() error { return os.RemoveAll(dir) }, nil
}

// input counts the bytes of a tar and says when the source fails. It hides
// whatever else the source can do: archive/tar would seek in it.
type input struct {
	ctx context.Context
	r   io.Reader
	n   int64
	err error // of the source, other than io.EOF
}

func (i *input) Read(p []byte) (int, error) {
	if err := context.Cause(i.ctx); err != nil {
		i.err = err
		return 0, err
	}
	n, err := i.r.Read(p)
	i.n += int64(n)
	if err != nil && err != io.EOF {
		i.err = err
	}
	return n, err
}

func unpackInto(ctx context.Context, r io.Reader, dir string) error {
	in := &input{ctx: ctx, r: r}
	tr := tar.NewReader(in)
	seen := map[string]bool{}
	var end int64 // of the last file, with its padding
	for {
		h, err := tr.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			return in.explain(err)
		}
		if err := check(h, seen); err != nil {
			return err
		}
		if err := unpackFile(tr, filepath.Join(dir, h.Name)); err != nil {
			return in.explain(fmt.Errorf("%s: %w", h.Name, err))
		}
		end = (in.n + blockSize - 1) / blockSize * blockSize
	}
	if in.n == 0 {
		return fmt.Errorf("%w: no data at all", ErrTruncated)
	}
	if in.n < end+2*blockSize {
		return fmt.Errorf("%w: it has no end", ErrTruncated)
	}
	if !seen[format.BackupFileName] {
		return fmt.Errorf("%w: %s is missing", ErrNotTar, format.BackupFileName)
	}
	return in.drain()
}

// check refuses what can't be a file of a backup.
func check(h *tar.Header, seen map[string]bool) error {
	if !known(h.Name) {
		return fmt.Errorf("%w: it holds %q, where only %s are expected, without any directory", ErrNotTar, h.Name, strings.Join(names, ", "))
	}
	if h.Typeflag != tar.TypeReg {
		return fmt.Errorf("%w: %s isn't a plain file", ErrNotTar, h.Name)
	}
	for key := range h.PAXRecords {
		if strings.HasPrefix(key, "GNU.sparse.") { // a few bytes would become any number of them
			return fmt.Errorf("%w: %s is a sparse file", ErrNotTar, h.Name)
		}
	}
	if seen[h.Name] {
		return fmt.Errorf("%w: %s is there twice", ErrNotTar, h.Name)
	}
	seen[h.Name] = true
	return nil
}

func unpackFile(r io.Reader, path string) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(f, r)
	return errors.Join(err, f.Close())
}

// explain prefers what the source said to what became of it.
func (i *input) explain(err error) error {
	switch {
	case i.err != nil:
		return i.err
	case errors.Is(err, io.ErrUnexpectedEOF):
		return fmt.Errorf("%w: it ends after %d bytes: %w", ErrTruncated, i.n, err)
	case errors.Is(err, tar.ErrHeader):
		return fmt.Errorf("%w: %w", ErrNotTar, err)
	}
	return err
}

// drain reads what follows the end, so that the writer of a pipe isn't killed
// by it. Tools pad a tar with zeros to a round size.
func (i *input) drain() error {
	buf := make([]byte, 64<<10)
	for {
		n, err := i.Read(buf)
		for _, c := range buf[:n] {
			if c != 0 {
				return fmt.Errorf("%w: data behind its end", ErrNotTar)
			}
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
	}
}
