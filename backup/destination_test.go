package backup_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/jetkeep/jetkeep/backup"
	"github.com/jetkeep/jetkeep/backup/repo"
	"github.com/jetkeep/jetkeep/format"
	"github.com/jetkeep/jetkeep/internal/testnats"
)

var errTest = errors.New("made to fail by the test")

// TestFailingWriter: each step of the writer fails once.
func TestFailingWriter(t *testing.T) {
	t.Parallel()
	nc := testnats.Single(t).Connect(t)
	stream := fill(t, nc, 50)
	failPut := func(name string, after bool) func(repo.Writer) repo.Writer {
		return func(w repo.Writer) repo.Writer {
			return &writer{Writer: w, put: func(ctx context.Context, got string, r io.Reader) (n int64, err error) {
				if got != name || after {
					n, err = w.Put(ctx, got, r)
				}
				if got == name && err == nil {
					err = errTest
				}
				return n, err
			}}
		}
	}
	failCommit := func(foreign bool) func(repo.Writer) repo.Writer {
		return func(w repo.Writer) repo.Writer {
			return &writer{Writer: w, commit: func(ctx context.Context, m *format.Manifest) (*repo.Backup, error) {
				if !foreign {
					return nil, errTest
				}
				m.ID = "another"
				_, err := w.Commit(ctx, m)
				return nil, errors.Join(errTest, err)
			}}
		}
	}
	inMiddle := onRead(func(n int64) error {
		if n > 400<<10 {
			return errTest
		}
		return nil
	})
	for name, f := range map[string]func(repo.Writer) repo.Writer{
		"archive": failPut(format.ArchiveV2Name, false), "in the archive": inMiddle, "after the archive": failPut(format.ArchiveV2Name, true),
		"backup.json": failPut(format.BackupFileName, false), "after backup.json": failPut(format.BackupFileName, true),
		"commit": failCommit(false), "another manifest": failCommit(true),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRepo(t)
			o := small(stream)
			o.Retrying = func(_ int, err error, _ time.Duration) { t.Errorf("retried: %v", err) }
			_, err := backup.Take(t.Context(), nc, through(into(r), f), o)
			failure(t, err, errTest, 1)
			nothingIn(t, r)
		})
	}
	t.Run("begin", func(t *testing.T) {
		t.Parallel()
		_, err := backup.Take(t.Context(), nc, func(context.Context, string, time.Time) (repo.Writer, error) { return nil, errTest }, small(stream))
		if !errors.Is(err, errTest) {
			t.Errorf("got %v", err)
		}
	})
	t.Run("stops early", func(t *testing.T) {
		t.Parallel()
		r := newRepo(t)
		short := func(w repo.Writer) repo.Writer {
			return &writer{Writer: w, put: func(ctx context.Context, name string, from io.Reader) (int64, error) {
				return w.Put(ctx, name, io.LimitReader(from, 100<<10))
			}}
		}
		if _, err := backup.Take(t.Context(), nc, through(into(r), short), small(stream)); err == nil || !strings.Contains(err.Error(), "stopped before") {
			t.Errorf("got %v", err)
		}
		nothingIn(t, r)
	})
	t.Run("abort", func(t *testing.T) {
		t.Parallel()
		_, err := backup.Take(t.Context(), nc, through(into(newRepo(t)), func(w repo.Writer) repo.Writer {
			return noAbort{failPut(format.ArchiveV2Name, false)(w)}
		}), small(stream))
		var left *backup.LeftBehindError
		if !errors.Is(err, errTest) || !errors.As(err, &left) || left.Stream != stream || !strings.Contains(left.LeftBehind(), "remove it by hand") {
			t.Errorf("got %v", err)
		}
	})
	t.Run("removal", func(t *testing.T) {
		t.Parallel()
		r := newRepo(t)
		var at string
		_, err := backup.Take(t.Context(), nc, through(into(r), func(w repo.Writer) repo.Writer {
			at = w.(*repo.Pending).Location()
			return located{noAbort{failPut(format.ArchiveV2Name, false)(w)}, at}
		}), small(stream))
		var left *backup.LeftBehindError
		if !errors.As(err, &left) || !strings.Contains(err.Error(), at) || !strings.Contains(err.Error(), "remove that directory") {
			t.Errorf("got %v", err)
		}
	})
	t.Run("destinations that fail", func(t *testing.T) {
		t.Parallel()
		occupied := t.TempDir()
		check(t, os.WriteFile(filepath.Join(occupied, "x"), nil, 0o600))
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		for _, to := range []backup.Destination{backup.ToDir(occupied), backup.To(newRepo(t))} {
			if w, err := to(ctx, "", time.Now()); err == nil || w != nil {
				t.Errorf("%#v, %v", w, err)
			}
		}
	})
}

// noAbort fails to remove what it wrote.
type noAbort struct{ repo.Writer }

func (noAbort) Abort() error { return errTest }

// located says where it is, as the repository's writers do.
type located struct {
	repo.Writer
	at string
}

func (l located) Location() string { return l.at }

// TestFullDisk: nothing is left, the cause is known, and with room it works.
func TestFullDisk(t *testing.T) {
	t.Parallel()
	dir := testnats.SmallDisk(t, 2<<20)
	nc := testnats.Single(t).Connect(t)
	large, little := fill(t, nc, 200), fill(t, nc, 60)
	r, err := repo.InitDir(filepath.Join(dir, "repo"))
	check(t, err)
	_, err = backup.Take(t.Context(), nc, into(r), backup.Options{Stream: large})
	failure(t, err, syscall.ENOSPC, 1)
	nothingIn(t, r)

	ballast := filepath.Join(dir, "ballast")
	check(t, os.WriteFile(ballast, bytes.Repeat([]byte("x"), 1400<<10), 0o600))
	_, err = backup.Take(t.Context(), nc, into(r), backup.Options{Stream: little})
	failure(t, err, syscall.ENOSPC, 1)
	nothingIn(t, r)
	check(t, os.Remove(ballast))
	agrees(t, nc, little, take(t, nc, r, backup.Options{Stream: little}))
}

// TestNoGoroutineStays looks for goroutines of ours, and of subscriptions, after
// backups that succeeded, failed and were cancelled. It isn't parallel, so that
// those of other tests can't be meant.
func TestNoGoroutineStays(t *testing.T) {
	nc := testnats.Single(t).Connect(t)
	stream := fill(t, nc, 50)
	run := func(ctx context.Context, f func(repo.Writer) repo.Writer) {
		o := small(stream)
		o.Progress = func(backup.Progress) {}
		_, err := backup.Take(ctx, nc, through(into(newRepo(t)), f), o)
		t.Log(err)
	}
	ours := func() map[string]int {
		n := map[string]int{}
		buf := make([]byte, 4<<20)
		for g := range strings.SplitSeq(string(buf[:runtime.Stack(buf, true)]), "\n\n") {
			for _, what := range []string{"internal/snapshot.", "format.", "jetkeep/backup.", "waitForMsgs"} {
				if strings.Contains(g, what) {
					n[what]++
				}
			}
		}
		return n
	}
	run(t.Context(), func(w repo.Writer) repo.Writer { return w })
	before := ours()
	for range 3 {
		ctx, cancel := context.WithCancel(t.Context())
		run(ctx, once(100<<10, cancel))
		run(t.Context(), func(w repo.Writer) repo.Writer { return w })
		run(t.Context(), onRead(func(n int64) error {
			if n > 100<<10 {
				return errTest
			}
			return nil
		}))
	}
	testnats.Eventually(t, func() error {
		if d := cmp.Diff(before, ours()); d != "" {
			return errors.New(d)
		}
		return nil
	})
}
