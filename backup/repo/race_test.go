package repo_test

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/jetkeep/jetkeep/backup/repo"
	"github.com/jetkeep/jetkeep/format"
)

// A writer commits after the cleaner saw no manifest, and before it has the
// lock.
func TestCleanerLooksAgainOnceItHasTheLock(t *testing.T) {
	writer, dir := newRepo(t)
	p, err := writer.Begin(t.Context(), "S", start)
	if err != nil {
		t.Fatal(err)
	}
	home := newDir(t, dir)
	cleaner, err := repo.Open(t.Context(), home)
	if err != nil {
		t.Fatal(err)
	}
	home.SetFault(func(op, _ string) error {
		if op == "lock" {
			if _, err := write(t.Context(), p, "S", "the archive"); err != nil {
				t.Error(err)
			}
		}
		return nil
	})
	if removed, err := cleaner.CleanAbandoned(t.Context(), "S"); err != nil || len(removed) > 0 {
		t.Errorf("removed %q, %v", removed, err)
	}
	b, err := writer.Find(t.Context(), "S", p.ID())
	if err != nil {
		t.Fatal(err)
	}
	sound(t, b, "the archive")
	if left := tree(t, b.Location()); len(left) != 3 {
		t.Errorf("%q", left)
	}
}

// A cleaner comes between the steps in which a writer makes its directory and
// locks it: the writer notices, and takes another.
func TestWriterWhoseDirectoryIsTakenBeginsAgain(t *testing.T) {
	for _, c := range []struct {
		name, op string
		take     func(dir string) error
	}{
		{"directory removed before the lock", "lock", os.RemoveAll},
		{"directory removed before the lock is checked", "check lock", os.RemoveAll},
		{"lock's file replaced", "check lock", func(dir string) error {
			file := filepath.Join(dir, ".lock")
			if err := os.Rename(file, file+".old"); err != nil { // so that its inode isn't used again
				return err
			}
			return os.WriteFile(file, nil, 0o600)
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, dir := newRepo(t)
			home := newDir(t, dir)
			r, err := repo.Open(t.Context(), home)
			if err != nil {
				t.Fatal(err)
			}
			var taken string
			home.SetFault(func(op, path string) error {
				if op != c.op || taken != "" {
					return nil
				}
				taken = filepath.Dir(path)
				return c.take(taken)
			})
			p, err := r.Begin(t.Context(), "S", start)
			if err != nil {
				t.Fatal(err)
			}
			if p.ID() == filepath.Base(taken) {
				t.Error("it kept a directory that isn't its own")
			}
			b, err := write(t.Context(), p, "S", "the archive")
			if err != nil {
				t.Fatal(err)
			}
			sound(t, b, "the archive")
		})
	}
}

// An Abort that fails half-way leaves what the next run recognises as dead.
func TestFailedAbortIsCleanedByTheNextRun(t *testing.T) {
	_, dir := newRepo(t)
	home := newDir(t, dir)
	r, err := repo.Open(t.Context(), home)
	if err != nil {
		t.Fatal(err)
	}
	p, err := r.Begin(t.Context(), "S", start)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.Put(t.Context(), format.ArchiveV2Name, strings.NewReader("half")); err != nil {
		t.Fatal(err)
	}
	home.SetFault(func(op, path string) error {
		if op == "remove" && filepath.Base(path) == format.ArchiveV2Name {
			return errDisk
		}
		return nil
	})
	if err := p.Abort(); !errors.Is(err, errDisk) {
		t.Errorf("Abort: %v", err)
	}
	home.SetFault(nil)
	if removed, err := r.CleanAbandoned(t.Context(), "S"); err != nil || !slices.Equal(removed, []string{p.ID()}) {
		t.Errorf("removed %q, %v", removed, err)
	}
}
