package repo_test

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/jetkeep/jetkeep/backup/repo"
	"github.com/jetkeep/jetkeep/backup/repo/repotest"
)

var errDisk = fmt.Errorf("injected: %w", syscall.ENOSPC)

// failAt makes the nth operation fail, and with forever all after it. It reports
// which one failed.
func failAt(d *repo.Dir, n int64, forever bool) *string {
	var count atomic.Int64
	failed := new(string)
	d.SetFault(func(op, path string) error {
		if c := count.Add(1); c != n && (!forever || c < n) {
			return nil
		}
		if *failed == "" {
			*failed = op + " " + path
		}
		return errDisk
	})
	return failed
}

// TestEveryOperationFails fails each file operation of a backup in turn, until
// none is left to fail. Whatever fails, nothing lists or it lists and is sound,
// and the next run leaves nothing of what failed.
func TestEveryOperationFails(t *testing.T) {
	for _, how := range []struct {
		name           string
		forever, abort bool
	}{
		{"once, then abort", false, true},
		{"once, then death", false, false},
		{"from then on, then abort", true, true},
		{"from then on, then death", true, false},
	} {
		t.Run(how.name, func(t *testing.T) {
			for n := int64(1); ; n++ {
				r, dir := newRepo(t)
				home := newDir(t, dir)
				faulty, err := repo.Open(t.Context(), home)
				if err != nil {
					t.Fatal(err)
				}
				failed := failAt(home, n, how.forever)
				err = faultyBackup(t, faulty, how.abort)
				home.SetFault(nil)
				checkAfterFault(t, r, dir, *failed, err)
				if *failed == "" {
					if n < 15 {
						t.Errorf("only %d operations", n)
					}
					return
				}
			}
		})
	}
}

func faultyBackup(t *testing.T, r *repo.Repository, abort bool) error {
	p, err := r.Begin(t.Context(), "S", start)
	if err != nil {
		return err
	}
	_, err = write(t.Context(), p, "S", "the archive")
	if err != nil && abort {
		p.Abort()
	} else if err != nil {
		p.Die()
	}
	return err
}

func checkAfterFault(t *testing.T, r *repo.Repository, dir, failed string, err error) {
	t.Helper()
	if err != nil && !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("%s: the cause is lost: %v", failed, err)
	}
	entries, listErr := r.List(t.Context(), "S")
	if listErr != nil {
		t.Error(failed, listErr)
	}
	if want := map[bool]int{true: 1}[err == nil]; len(entries) != want {
		t.Errorf("%s: %d backups list, after error %v", failed, len(entries), err)
	}
	if _, err := r.CleanAbandoned(t.Context(), "S"); err != nil {
		t.Error(failed, err)
	}
	if err == nil {
		b, err := r.Find(t.Context(), "S", repo.Latest)
		if err != nil {
			t.Fatal(failed, err)
		}
		sound(t, b, "the archive")
		return
	}
	for _, path := range tree(t, dir) {
		if path != "jetkeep.json" && path != "S" { // an empty directory of a stream
			t.Errorf("%s: left %s", failed, path)
		}
	}
}

func TestEveryOperationOfAPlainBackupFails(t *testing.T) {
	for _, abort := range []bool{true, false} {
		for n := int64(1); ; n++ {
			dir := t.TempDir()
			parent, target := newDir(t, dir), filepath.Join(dir, "out")
			failed := failAt(parent, n, false)
			p, err := repo.BeginPlainIn(parent, target)
			if err == nil {
				_, err = write(t.Context(), p, "S", "the archive")
				if err != nil && abort {
					p.Abort()
				} else if err != nil {
					p.Die()
				}
			}
			parent.SetFault(nil)
			if b, openErr := repo.OpenPlain(target); err == nil && openErr != nil {
				t.Errorf("%s: %v", *failed, openErr)
			} else if err == nil {
				sound(t, b, "the archive")
			} else if !errors.Is(openErr, repo.ErrNotBackup) || !errors.Is(err, syscall.ENOSPC) {
				t.Errorf("%s: %v, and then %v", *failed, err, openErr)
			}
			if *failed == "" {
				break
			}
			if err != nil {
				next, err := repo.BeginPlain(target)
				if err != nil {
					t.Fatal(*failed, err)
				}
				if err := next.Abort(); err != nil {
					t.Error(*failed, err)
				}
				if left := tree(t, dir); len(left) > 0 {
					t.Errorf("%s: left %q", *failed, left)
				}
			}
		}
	}
}

// A failed write shows in one sync only, and that may be one in the background.
func TestErrorOfABackgroundSyncIsKept(t *testing.T) {
	d := newDir(t, t.TempDir())
	first := true
	d.SetFault(func(op, _ string) error {
		if op == "sync" && first {
			first = false
			return errDisk
		}
		return nil
	})
	data := strings.Repeat("x", repo.SyncEvery+1)
	if _, err := d.Put(t.Context(), "k", strings.NewReader(data)); !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("Put: %v", err)
	}
	if left := tree(t, d.String()); len(left) > 0 {
		t.Errorf("left %q", left)
	}
}

func TestDataIsSyncedWhileItArrives(t *testing.T) {
	d := newDir(t, t.TempDir())
	synced := make(chan struct{}, 10)
	d.SetFault(func(op, _ string) error {
		if op == "sync" {
			synced <- struct{}{}
		}
		return nil
	})
	r, w := io.Pipe()
	done := make(chan error)
	go func() { _, err := d.Put(t.Context(), "k", r); done <- err }()
	w.Write(make([]byte, repo.SyncEvery+1))
	<-synced // before the end of the data
	w.Close()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// Where there are no hard links, the same promises hold.
func TestDirWithoutHardLinksPassesTheSuite(t *testing.T) {
	repotest.TestStore(t, func(t *testing.T) repo.Store {
		d := newDir(t, t.TempDir())
		d.SetFault(func(op, _ string) error {
			if op == "link" {
				return &os.LinkError{Op: "link", Err: syscall.ENOSYS}
			}
			return nil
		})
		return d
	})
}

func TestErrorsNameTheFinalPath(t *testing.T) {
	d := newDir(t, t.TempDir())
	for _, op := range []string{"create", "write", "sync", "close", "link", "syncdir"} {
		d.SetFault(func(o, _ string) error {
			if o == op {
				return errDisk
			}
			return nil
		})
		_, err := d.Put(t.Context(), "k", strings.NewReader("x"))
		if err == nil || !strings.Contains(err.Error(), d.Location("k")) || strings.Contains(err.Error(), ".tmp-") {
			t.Errorf("%s: %v", op, err)
		}
		if left := tree(t, d.String()); slices.Contains(left, "k") {
			t.Errorf("%s: left %q", op, left)
		}
	}
}
