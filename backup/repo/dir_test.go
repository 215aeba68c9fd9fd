package repo_test

import (
	"errors"
	"io/fs"
	"testing"

	"github.com/jetkeep/jetkeep/backup/repo"
	"github.com/jetkeep/jetkeep/backup/repo/repotest"
)

func TestDirPassesTheSuite(t *testing.T) {
	repotest.TestStore(t, func(t *testing.T) repo.Store { return newDir(t, t.TempDir()) })
}

func newDir(t *testing.T, path string) *repo.Dir {
	t.Helper()
	d, err := repo.NewDir(path)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func TestDirThatIsMissingIsNoEmptyHome(t *testing.T) {
	path := t.TempDir() + "/missing"
	d := newDir(t, path)
	for _, err := range d.List(t.Context(), "") {
		if !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("List: %v", err)
		}
	}
	if _, err := d.Put(t.Context(), "a/b", nil); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("Put: %v", err)
	}
	if _, err := d.Hold(t.Context(), "a/b"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("Hold: %v", err)
	}
	if _, err := repo.NewDir(""); err == nil {
		t.Error("NewDir took an empty path")
	}
}
