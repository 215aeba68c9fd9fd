package repo_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jetkeep/jetkeep/backup/repo"
	"github.com/jetkeep/jetkeep/format"
)

var start = time.Date(2026, 11, 30, 15, 52, 0, 123e6, time.UTC)

func backupJSON(stream string) string {
	return fmt.Sprintf(`{"config":{"name":%q},"state":{"messages":1,"consumer_count":0}}`, stream)
}

func digest(s string) string {
	sum := sha256.Sum256([]byte(s))
	return hex.EncodeToString(sum[:])
}

func manifest(id, stream string, archive ...string) *format.Manifest {
	m := &format.Manifest{
		Version: format.ManifestVersion, ID: id, Stream: stream, Started: start, Ended: start,
		Format: "v2", BackupFileSHA256: digest(backupJSON(stream)),
	}
	for i, a := range archive {
		key := format.ArchiveV2Name
		if i > 0 {
			key = fmt.Sprintf("stream.%d.arc.s2", i)
		}
		m.Objects = append(m.Objects, format.ArchiveObject{Key: key, Bytes: int64(len(a)), SHA256: digest(a)})
	}
	return m
}

// write puts all parts of a backup and commits it.
func write(ctx context.Context, w repo.Writer, stream string, archive ...string) (*repo.Backup, error) {
	m := manifest(w.ID(), stream, archive...)
	for i, a := range archive {
		if _, err := w.Put(ctx, m.Objects[i].Key, strings.NewReader(a)); err != nil {
			return nil, err
		}
	}
	if _, err := w.Put(ctx, format.BackupFileName, strings.NewReader(backupJSON(stream))); err != nil {
		return nil, err
	}
	return w.Commit(ctx, m)
}

// take takes a whole backup.
func take(t *testing.T, r *repo.Repository, stream string, at time.Time, archive ...string) *repo.Backup {
	t.Helper()
	p, err := r.Begin(t.Context(), stream, at)
	if err != nil {
		t.Fatal(err)
	}
	b, err := write(t.Context(), p, stream, archive...)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func newRepo(t *testing.T) (*repo.Repository, string) {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "repo")
	r, err := repo.InitDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	return r, dir
}

// sound reads all of a backup and compares it.
func sound(t *testing.T, b *repo.Backup, archive string) {
	t.Helper()
	if _, err := b.BackupFile(t.Context()); err != nil {
		t.Error(err)
	}
	r, err := b.Archive(t.Context())
	if err != nil {
		t.Error(err)
		return
	}
	defer r.Close()
	if got, err := io.ReadAll(r); err != nil || !bytes.Equal(got, []byte(archive)) {
		t.Errorf("the archive has %d bytes and differs, %v", len(got), err)
	}
	if size, err := b.ArchiveSize(t.Context()); err != nil || size != int64(len(archive)) {
		t.Errorf("ArchiveSize = %d, %v", size, err)
	}
}

// tree names all that is below dir, hidden or not.
func tree(t *testing.T, dir string) []string {
	t.Helper()
	var paths []string
	err := filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		if rel, _ := filepath.Rel(dir, path); rel != "." {
			paths = append(paths, filepath.ToSlash(rel))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return paths
}

func writeFile(t *testing.T, path, data string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(data), 0o600); err != nil {
		t.Fatal(err)
	}
}
