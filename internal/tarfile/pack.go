package tarfile

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/jetkeep/jetkeep/format"
)

// names are the files of a backup, in the order in which Pack writes them.
var names = []string{format.BackupFileName, format.ManifestName, format.ArchiveV2Name, format.ArchiveV1Name}

func known(name string) bool { return slices.Contains(names, name) }

// Pack writes the files of the backup in dir to w as a tar.
func Pack(ctx context.Context, w io.Writer, dir string) error {
	tw := tar.NewWriter(w)
	for _, name := range names {
		err := packFile(ctx, tw, dir, name)
		if errors.Is(err, fs.ErrNotExist) && name != format.BackupFileName {
			continue // which of the others there are is up to the backup
		}
		if err != nil {
			return fmt.Errorf("write %s as tar: %w", name, err)
		}
	}
	if err := tw.Close(); err != nil {
		return fmt.Errorf("write the end of the tar: %w", err)
	}
	return nil
}

func packFile(ctx context.Context, tw *tar.Writer, dir, name string) error {
	f, err := os.Open(filepath.Join(dir, name))
	if err != nil {
		return err
	}
	defer f.Close()
	fi, err := f.Stat()
	if err != nil {
		return err
	}
	err = tw.WriteHeader(&tar.Header{
		Typeflag: tar.TypeReg, Name: name, Size: fi.Size(), Mode: 0o600, ModTime: fi.ModTime().UTC(),
	})
	if err != nil {
		return err
	}
	_, err = io.Copy(tw, ctxReader{ctx, f})
	return err
}

// ctxReader fails once its context is done.
type ctxReader struct {
	ctx context.Context
	r   io.Reader
}

func (r ctxReader) Read(p []byte) (int, error) {
	if err := context.Cause(r.ctx); err != nil {
		return 0, err
	}
	return r.r.Read(p)
}
