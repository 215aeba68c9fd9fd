package repo_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/jetkeep/jetkeep/backup/repo"
	"github.com/jetkeep/jetkeep/format"
)

func TestPermissionsWhateverTheUmask(t *testing.T) {
	for _, mask := range []int{0, 0o022, 0o377} {
		parent := t.TempDir()
		dir := filepath.Join(parent, "made", "repo")
		old := syscall.Umask(mask)
		r, err := repo.InitDir(dir)
		if err == nil {
			take(t, r, "S", start, "the archive")
			var p *repo.Pending
			p, err = r.Begin(t.Context(), "S", start) // its lock stays
			if err == nil {
				defer p.Abort()
			}
		}
		syscall.Umask(old)
		if err != nil {
			t.Fatal(err)
		}
		filepath.WalkDir(filepath.Join(parent, "made"), func(path string, e fs.DirEntry, err error) error {
			fi, statErr := os.Lstat(path)
			if err = errors.Join(err, statErr); err != nil {
				t.Fatal(err)
			}
			want := fs.FileMode(0o600)
			if e.IsDir() {
				want = 0o700
			}
			if fi.Mode().Perm() != want {
				t.Errorf("umask %o: %s is %o", mask, path, fi.Mode().Perm())
			}
			return nil
		})
	}
}

func TestFullDisk(t *testing.T) {
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=1m"); err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatal("mount a tmpfs: ", err)
		}
		t.Skip("can't mount a tmpfs: ", err)
	}
	defer syscall.Unmount(dir, syscall.MNT_DETACH) // even if the test left a file open
	r, err := repo.InitDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	p, err := r.Begin(t.Context(), "S", start)
	if err != nil {
		t.Fatal(err)
	}
	_, err = p.Put(t.Context(), format.ArchiveV2Name, strings.NewReader(strings.Repeat("x", 2<<20)))
	if !errors.Is(err, syscall.ENOSPC) || !strings.Contains(err.Error(), format.ArchiveV2Name) {
		t.Errorf("Put: %v", err)
	}
	if err := p.Abort(); err != nil {
		t.Error(err)
	}
	if left := tree(t, dir); len(left) != 1 {
		t.Errorf("left %q", left)
	}
	sound(t, take(t, r, "S", start, "one that fits"), "one that fits")
}
