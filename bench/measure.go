//go:build unix

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

// tools are the programs under test.
type tools struct{ jetkeep, peer, server string }

func buildTools(ctx context.Context, dir string) (*tools, error) {
	t := &tools{jetkeep: filepath.Join(dir, "jetkeep")}
	build := exec.CommandContext(ctx, "go", "build", "-trimpath", "-ldflags=-s -w", "-o", t.jetkeep, ".")
	build.Stderr = os.Stderr
	if err := build.Run(); err != nil {
		return nil, fmt.Errorf("building jetkeep (run bench from the repository's root): %w", err)
	}
	cmd := exec.CommandContext(ctx, "bash", ".ci/tools", "-p", "nats@0.5.0", "nats-server@2.15.3")
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("building the peer and the server: %w", err)
	}
	paths := strings.Fields(string(out))
	if len(paths) != 2 {
		return nil, fmt.Errorf("building the peer and the server: unexpected output %q", out)
	}
	t.peer, t.server = paths[0], paths[1]
	return t, nil
}

// sample is one run of a program, by the operating system's account.
type sample struct {
	wall, cpu time.Duration
	rss       int64 // peak, in bytes
}

// measure runs a program to its end.
func measure(ctx context.Context, args []string) (sample, error) {
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	start := time.Now()
	err := cmd.Run()
	s := sample{wall: time.Since(start)}
	if err != nil {
		return s, fmt.Errorf("%s: %w\n%s", strings.Join(args, " "), err, out.Bytes())
	}
	s.cpu = cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
	if u, ok := cmd.ProcessState.SysUsage().(*syscall.Rusage); ok {
		s.rss = u.Maxrss << 10 // KiB on Linux
	}
	return s, nil
}

// row compares one operation.
type row struct {
	name       string
	peer, ours []sample
}

// around prepares and checks each run.
type around struct{ before, after func() error }

// pair runs both tools once, the first of them in turn. Run 0 isn't counted.
func (r *row) pair(ctx context.Context, n int, peer, ours []string, a *around) error {
	one := func(args []string) (s sample, err error) {
		if a != nil {
			if err := a.before(); err != nil {
				return s, err
			}
		}
		syncDisks()
		if s, err = measure(ctx, args); err == nil && a != nil {
			err = a.after()
		}
		return s, err
	}
	first, second := peer, ours
	if n%2 == 1 {
		first, second = ours, peer
	}
	f, err := one(first)
	if err != nil {
		return err
	}
	s, err := one(second)
	if err != nil {
		return err
	}
	if n%2 == 1 {
		f, s = s, f
	}
	log.Printf("  %s: peer %.2fs, jetkeep %.2fs", r.name, f.wall.Seconds(), s.wall.Seconds())
	if n > 0 {
		r.peer, r.ours = append(r.peer, f), append(r.ours, s)
	}
	return nil
}

func median[T int64 | float64](v []T) T {
	s := slices.Clone(v)
	slices.Sort(s)
	if len(s)%2 == 1 {
		return s[len(s)/2]
	}
	return (s[len(s)/2-1] + s[len(s)/2]) / 2
}

func (r *row) ratios() []float64 {
	out := make([]float64, len(r.ours))
	for i := range out {
		out[i] = r.ours[i].wall.Seconds() / r.peer[i].wall.Seconds()
	}
	return out
}

func walls(s []sample) float64 {
	v := make([]float64, len(s))
	for i := range s {
		v[i] = s[i].wall.Seconds()
	}
	return median(v)
}

func cpus(s []sample) float64 {
	v := make([]float64, len(s))
	for i := range s {
		v[i] = s[i].cpu.Seconds()
	}
	return median(v)
}

func peak(s []sample) float64 {
	var most int64
	for _, x := range s {
		most = max(most, x.rss)
	}
	return float64(most) / (1 << 20)
}

func printTable(rows []*row) {
	fmt.Println("| | peer | jetkeep | ratio (min to max) | CPU peer | CPU jetkeep | memory peer | memory jetkeep |")
	fmt.Println("| --- | --- | --- | --- | --- | --- | --- | --- |")
	for _, r := range rows {
		q := r.ratios()
		fmt.Printf("| %s | %.2f s | %.2f s | %.3f (%.3f to %.3f) | %.2f s | %.2f s | %.0f MiB | %.0f MiB |\n", r.name,
			walls(r.peer), walls(r.ours), median(q), slices.Min(q), slices.Max(q), cpus(r.peer), cpus(r.ours), peak(r.peer), peak(r.ours))
	}
}

// archiveSize sums up what a repository holds.
func archiveSize(dir string) string {
	var n int64
	_ = filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			if i, ierr := d.Info(); ierr == nil {
				n += i.Size()
			}
		}
		return nil
	})
	return fmt.Sprintf("%.0f MB", float64(n)/1e6)
}

// syncDisks keeps one run's dirty pages out of the next one's time.
func syncDisks() {
	if _, err := exec.LookPath("sync"); errors.Is(err, exec.ErrNotFound) {
		return
	}
	_ = exec.Command("sync").Run()
}
