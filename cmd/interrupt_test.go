package cmd

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jetkeep/jetkeep/backup/repo"
	"github.com/jetkeep/jetkeep/internal/testnats"
)

// slowBackup starts the real binary on a backup that takes long.
func slowBackup(t *testing.T, srv *testnats.Server, stream string, args ...string) (c *exec.Cmd, out, errs *bytes.Buffer, tmp string) {
	t.Helper()
	link := testnats.Proxy(t, srv.HostPort(), testnats.ProxyOptions{Bandwidth: 64 << 10, Window: 64 << 10})
	tmp = t.TempDir()
	out, errs = &bytes.Buffer{}, &bytes.Buffer{}
	c = exec.Command("jetkeep", append([]string{"backup", stream, "-s", link.URL(), "--chunk-size", "16KiB", "--window-size", "64KiB"}, args...)...)
	c.Stdout, c.Stderr = out, errs
	c.Env = append(os.Environ(), "TMPDIR="+tmp)
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Process.Kill() })
	return c, out, errs, tmp
}

// waitFor waits until a file matches.
func waitFor(t *testing.T, pattern string) {
	t.Helper()
	testnats.Eventually(t, func() error {
		if found, _ := filepath.Glob(pattern); len(found) == 0 {
			return errors.New("nothing matches " + pattern)
		}
		return nil
	})
}

func exitOf(err error) int {
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return exit.ExitCode()
	}
	return 0
}

func TestInterruptedBackupLeavesNothing(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("signals of Unix")
	}
	srv := testnats.Single(t)
	stream := testnats.Fill(t, srv.Connect(t), testnats.FillOptions{Messages: 400, Size: 8 << 10, NoDeletes: true})
	t.Run("into a pipe", func(t *testing.T) { interruptPipe(t, srv, stream) })
	for _, sig := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP} {
		t.Run(sig.String(), func(t *testing.T) {
			home := filepath.Join(t.TempDir(), "repo")
			r, err := repo.InitDir(home)
			if err != nil {
				t.Fatal(err)
			}
			c, out, errs, _ := slowBackup(t, srv, stream, "--repo", home)
			waitFor(t, filepath.Join(home, "*", "*", ".lock"))
			if err := c.Process.Signal(sig); err != nil {
				t.Fatal(err)
			}
			if code := exitOf(c.Wait()); code != exitInterrupted {
				t.Errorf("exit code %d: %s", code, errs)
			}
			if out.Len() > 0 || !strings.HasPrefix(errs.String(), "jetkeep: interrupted: ") ||
				!strings.HasSuffix(errs.String(), ": signal "+sig.String()+"; nothing is left behind\n") {
				t.Errorf("stdout %q, stderr %q", out, errs)
			}
			if names, err := r.Streams(t.Context()); err != nil || len(names) > 0 {
				t.Errorf("streams %v, %v", names, err)
			}
			if left, _ := filepath.Glob(filepath.Join(home, "*", "*")); len(left) > 0 {
				t.Errorf("left behind: %v", left)
			}
		})
	}
}

func interruptPipe(t *testing.T, srv *testnats.Server, stream string) {
	c, out, errs, tmp := slowBackup(t, srv, stream, "-o", "-", "--json")
	waitFor(t, filepath.Join(tmp, "jetkeep-*", ".backup*", "*"))
	if err := c.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	if code := exitOf(c.Wait()); code != exitInterrupted {
		t.Errorf("exit code %d: %s", code, errs)
	}
	if out.Len() > 0 || !strings.Contains(errs.String(), `"code":130`) {
		t.Errorf("stdout %q, stderr %q", out, errs)
	}
	if left, _ := os.ReadDir(tmp); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

func TestSecondSignalExitsAtOnce(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("signals of Unix")
	}
	exited := make(chan int, 1)
	ctx, stop := withSignals(t.Context(), func(code int) { exited <- code })
	defer stop()
	self, _ := os.FindProcess(os.Getpid())
	if err := self.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	select {
	case <-ctx.Done():
	case <-time.After(10 * time.Second):
		t.Fatal("the first signal doesn't cancel")
	}
	if err := self.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	select {
	case code := <-exited:
		if code != exitInterrupted {
			t.Errorf("exit code %d", code)
		}
	case <-time.After(10 * time.Second):
		t.Fatal("the second signal doesn't exit")
	}
}
