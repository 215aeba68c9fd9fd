package repo_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jetkeep/jetkeep/backup/repo"
	"github.com/jetkeep/jetkeep/format"
)

const helperEnv = "JETKEEP_REPO_TEST_HELPER"

// TestMain lets the test binary be a writer in another process.
func TestMain(m *testing.M) {
	if os.Getenv(helperEnv) == "" {
		os.Exit(m.Run())
	}
	if err := helper(os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// helper takes a backup and kills itself before its nth file operation; with
// "live" it waits, unfinished, for the end of its input.
func helper(dir, at string) error {
	home, err := repo.NewDir(dir)
	if err != nil {
		return err
	}
	ctx := context.Background()
	r, err := repo.Open(ctx, home)
	if err != nil {
		return err
	}
	if n, err := strconv.ParseInt(at, 10, 64); err == nil {
		var count atomic.Int64
		home.SetFault(func(op, path string) error {
			if count.Add(1) == n {
				fmt.Println(op, path)
				self, _ := os.FindProcess(os.Getpid())
				self.Kill()
				select {}
			}
			return nil
		})
	}
	p, err := r.Begin(ctx, "S", start)
	if err != nil {
		return err
	}
	if at == "live" {
		if _, err := p.Put(ctx, format.ArchiveV2Name, strings.NewReader("half")); err != nil {
			return err
		}
		fmt.Println(p.ID())
		_, err := io.ReadAll(os.Stdin)
		return err
	}
	_, err = write(ctx, p, "S", "the archive")
	return err
}

func helperCommand(t *testing.T, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(t.Context(), os.Args[0], args...)
	cmd.Env = append(os.Environ(), helperEnv+"=1")
	cmd.Stderr = os.Stderr
	return cmd
}

// TestKilledAtEveryOperation kills a writer with kill -9 before each of its file
// operations in turn: in the middle of a put, before and after the manifest.
func TestKilledAtEveryOperation(t *testing.T) {
	listed := 0
	for n := 1; ; n++ {
		r, dir := newRepo(t)
		where, err := helperCommand(t, dir, strconv.Itoa(n)).Output()
		killed := strings.TrimSpace(string(where))
		if err == nil {
			if n < 15 || listed == 0 {
				t.Errorf("%d operations, the backup listed after %d kills", n, listed)
			}
			return
		}
		if _, ok := errors.AsType[*exec.ExitError](err); !ok || killed == "" {
			t.Fatal(err)
		}
		entries, err := r.List(t.Context(), "S")
		if err != nil {
			t.Fatal(killed, err)
		}
		if _, err := r.CleanAbandoned(t.Context(), "S"); err != nil {
			t.Error(killed, err)
		}
		if len(entries) > 0 { // the manifest was there already
			listed++
			b, err := r.Find(t.Context(), "S", "")
			if err != nil {
				t.Fatal(killed, err)
			}
			sound(t, b, "the archive")
			continue
		}
		for _, path := range tree(t, dir) {
			if path != "jetkeep.json" && path != "S" {
				t.Errorf("killed before %s: left %s", killed, path)
			}
		}
	}
}

func TestLiveWriterOfAnotherProcessIsLeftAlone(t *testing.T) {
	r, dir := newRepo(t)
	cmd := helperCommand(t, dir, "live")
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	defer stdin.Close()
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(stdout).ReadString('\n')
	id := strings.TrimSpace(line)
	if err != nil || !repo.ValidID(id) {
		t.Fatalf("%q, %v", line, err)
	}
	take(t, r, "S", start, "another one meanwhile")
	if removed, err := r.CleanAbandoned(t.Context(), "S"); err != nil || len(removed) > 0 {
		t.Errorf("of a live writer removed %q, %v", removed, err)
	}
	if _, err := os.Stat(filepath.Join(dir, "S", id, format.ArchiveV2Name)); err != nil {
		t.Error(err)
	}
	cmd.Process.Kill()
	cmd.Wait()
	p, err := r.Begin(t.Context(), "S", start)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Abort()
	if removed, err := p.Cleaned(); err != nil || !slices.Equal(removed, []string{id}) {
		t.Errorf("of a dead writer removed %q, %v", removed, err)
	}
}

// Every Begin cleans, also while others are between their steps.
func TestCleanersNeverHurtWriters(t *testing.T) {
	r, _ := newRepo(t)
	const writers, each = 6, 8
	var wg sync.WaitGroup
	stop := make(chan struct{})
	var cleaner sync.WaitGroup
	cleaner.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
			}
			if _, err := r.CleanAbandoned(t.Context(), "S"); err != nil {
				t.Error(err)
			}
		}
	})
	for range writers {
		wg.Go(func() {
			for range each {
				p, err := r.Begin(t.Context(), "S", start)
				if err != nil {
					t.Error(err)
					return
				}
				if _, err := write(t.Context(), p, "S", "the archive"); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	close(stop)
	cleaner.Wait()
	entries, err := r.List(t.Context(), "S")
	if err != nil || len(entries) != writers*each {
		t.Errorf("%d backups, %v", len(entries), err)
	}
	for _, e := range entries {
		if e.Err != nil {
			t.Error(e.Err)
		}
	}
}

func TestWhatCleaningLeavesAlone(t *testing.T) {
	r, dir := newRepo(t)
	b := take(t, r, "S", start, "the archive")
	// A lock that its writer didn't live to remove, in a complete backup.
	writeFile(t, filepath.Join(b.Location(), ".lock"), "")
	// A backup that is being copied into the repository: no lock of ours.
	copied := filepath.Join(dir, "S", repo.NewID(start))
	writeFile(t, filepath.Join(copied, format.BackupFileName), "{}")
	// A directory of someone else's.
	writeFile(t, filepath.Join(dir, "S", "notes", "x"), "")
	before := tree(t, dir)
	if removed, err := r.CleanAbandoned(t.Context(), "S"); err != nil || len(removed) > 0 {
		t.Errorf("removed %q, %v", removed, err)
	}
	if after := tree(t, dir); !slices.Equal(before, after) {
		t.Errorf("before %q\nafter  %q", before, after)
	}
	old := time.Now().Add(-repo.ForeignMinAge - time.Minute)
	os.Chtimes(filepath.Join(copied, format.BackupFileName), old, old)
	os.Chtimes(copied, old, old)
	if removed, err := r.CleanAbandoned(t.Context(), "S"); err != nil || len(removed) != 1 {
		t.Errorf("of an old one removed %q, %v", removed, err)
	}
}
