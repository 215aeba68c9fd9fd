//go:build unix

// Command bench measures jetkeep against the nats CLI, in turn, on the same
// streams and the same server:
//
//	go run ./bench
//
// It builds both tools and nats-server (.ci/tools), starts a server on loopback
// with a store in a temporary directory, fills a stream, and runs backup,
// verification and restore several times each, on loopback and through a proxy
// that adds latency. It prints medians, ratios and peak memory as a table in
// Markdown. Every restore is counted afterwards: a fast wrong result is none.
package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/jetkeep/jetkeep/internal/slowlink"
)

type options struct {
	messages, farMessages, runs int
	size                        int
	delay                       time.Duration
	dir                         string
	memory, only                string
}

func main() {
	var o options
	flag.IntVar(&o.messages, "messages", 1_000_000, "messages of the stream on loopback")
	flag.IntVar(&o.farMessages, "far-messages", 250_000, "messages of the stream behind the slow link")
	flag.IntVar(&o.size, "size", 1024, "bytes of a payload")
	flag.IntVar(&o.runs, "runs", 3, "counted runs of each tool")
	flag.DurationVar(&o.delay, "delay", 25*time.Millisecond, "latency each way of the slow link")
	flag.StringVar(&o.dir, "dir", "", "where to work (a temporary directory, removed at the end)")
	flag.StringVar(&o.memory, "memory", "", "instead: peak memory of jetkeep alone, for `sizes` such as 1GB,4GB,subjects")
	flag.StringVar(&o.only, "only", "", "only the rows whose name contains this")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, o); err != nil {
		log.Fatal("bench: ", err)
	}
}

func run(ctx context.Context, o options) (err error) {
	if o.dir == "" {
		if o.dir, err = os.MkdirTemp("", "jetkeep-bench-"); err != nil {
			return err
		}
		defer os.RemoveAll(o.dir)
	}
	t, err := buildTools(ctx, o.dir)
	if err != nil {
		return err
	}
	fmt.Printf("%s/%s, %d cores, %s, %s\n\n", runtime.GOOS, runtime.GOARCH, runtime.NumCPU(), runtime.Version(), time.Now().UTC().Format(time.DateOnly))
	if o.memory != "" {
		return measureMemory(ctx, t, o)
	}
	return compare(ctx, t, o)
}

// compare runs both tools in turn.
func compare(ctx context.Context, t *tools, o options) error {
	s, err := startServer(ctx, t, filepath.Join(o.dir, "store"))
	if err != nil {
		return err
	}
	defer s.stop()
	link, err := slowlink.Start(s.addr, slowlink.Options{Delay: o.delay})
	if err != nil {
		return err
	}
	defer link.Close()
	far := link.URL()

	var rows []*row
	for _, c := range []struct {
		name, stream, url string
		messages          int
	}{
		{"loopback", "NEAR", s.url, o.messages},
		{fmt.Sprintf("%v round trip", 2*o.delay), "FAR", far, o.farMessages},
	} {
		b := &bench{t: t, s: s, o: o, stream: c.stream, url: c.url, messages: c.messages, dir: filepath.Join(o.dir, c.stream)}
		if !b.wanted(c.name) {
			continue
		}
		if err := s.fill(ctx, c.stream, c.messages, o.size, 50); err != nil {
			return err
		}
		r, err := b.all(ctx, c.name)
		if err != nil {
			return err
		}
		rows = append(rows, r...)
	}
	printTable(rows)
	return nil
}

// bench compares the tools on one stream.
type bench struct {
	t           *tools
	s           *server
	o           options
	stream, url string
	messages    int
	dir         string
}

func (b *bench) wanted(where string) bool {
	for _, what := range []string{"backup", "verify", "restore"} {
		if strings.Contains(what+", "+where, b.o.only) {
			return true
		}
	}
	return false
}

// all measures every operation. A backup of each tool remains for the others.
func (b *bench) all(ctx context.Context, where string) ([]*row, error) {
	repo := filepath.Join(b.dir, "repo")
	peer := filepath.Join(b.dir, "peer")
	backup := &row{name: "backup, " + where}
	verify := &row{name: "verify, " + where}
	restore := &row{name: "restore, " + where}
	log.Printf("%s: %d messages of %d bytes", backup.name, b.messages, b.o.size)
	for n := range b.o.runs + 1 { // the first is a warm-up
		os.RemoveAll(repo)
		os.RemoveAll(peer)
		if err := backup.pair(ctx, n,
			[]string{b.t.peer, "-s", b.url, "backup", "stream", "--no-progress", b.stream, peer},
			[]string{b.t.jetkeep, "-s", b.url, "backup", b.stream, "--repo", repo, "--init"}, nil); err != nil {
			return nil, err
		}
	}
	if strings.Contains(where, "loopback") && strings.Contains(verify.name, b.o.only) {
		for n := range b.o.runs + 1 {
			if err := verify.pair(ctx, n,
				[]string{b.t.peer, "backup", "validate", "--no-progress", peer},
				[]string{b.t.jetkeep, "verify", b.stream, "--repo", repo}, nil); err != nil {
				return nil, err
			}
		}
	}
	if strings.Contains(restore.name, b.o.only) {
		if err := b.restores(ctx, restore, repo, peer); err != nil {
			return nil, err
		}
	}
	var out []*row
	for _, r := range []*row{backup, verify, restore} {
		if len(r.ours) > 0 && strings.Contains(r.name, b.o.only) {
			out = append(out, r)
		}
	}
	return out, nil
}

// restores measures restoring. The warm-up, by which the server gets its memory,
// is one of jetkeep's alone: over a long line the peer's takes minutes.
func (b *bench) restores(ctx context.Context, r *row, repo, peer string) error {
	theirs := []string{b.t.peer, "-s", b.url, "--timeout", "30s", "backup", "restore", "stream", "--no-progress", peer}
	ours := []string{b.t.jetkeep, "-s", b.url, "restore", b.stream, "--repo", repo}
	remove := func() error { return b.s.remove(ctx, b.stream) }
	if err := remove(); err != nil {
		return err
	}
	if _, err := measure(ctx, ours); err != nil {
		return err
	}
	for n := range b.o.runs {
		if err := r.pair(ctx, n+1, theirs, ours, &around{
			before: remove,
			after:  func() error { return b.s.count(ctx, b.stream, uint64(b.messages)) },
		}); err != nil {
			return err
		}
	}
	return nil
}

// measureMemory shows that peak memory doesn't depend on the stream's size.
func measureMemory(ctx context.Context, t *tools, o options) error {
	s, err := startServer(ctx, t, filepath.Join(o.dir, "store"))
	if err != nil {
		return err
	}
	defer s.stop()
	fmt.Println("| stream | archive | backup | verify | restore |")
	fmt.Println("| --- | --- | --- | --- | --- |")
	for i, what := range strings.Split(o.memory, ",") {
		stream := fmt.Sprintf("M%d", i)
		n, size, subjects, err := memoryCase(what)
		if err != nil {
			return err
		}
		if err := s.fill(ctx, stream, n, size, subjects); err != nil {
			return err
		}
		repo := filepath.Join(o.dir, "repo"+stream)
		var peaks []string
		for _, args := range [][]string{
			{"-s", s.url, "backup", stream, "--repo", repo, "--init"},
			{"verify", stream, "--repo", repo},
			{"-s", s.url, "restore", stream, "--repo", repo},
		} {
			if args[2] == "restore" {
				if err := s.remove(ctx, stream); err != nil {
					return err
				}
			}
			m, err := measure(ctx, append([]string{t.jetkeep}, args...))
			if err != nil {
				return err
			}
			peaks = append(peaks, fmt.Sprintf("%.0f MiB", float64(m.rss)/(1<<20)))
		}
		if err := s.count(ctx, stream, uint64(n)); err != nil {
			return err
		}
		fmt.Printf("| %s: %d messages of %d bytes, %d subjects | %s | %s |\n", what, n, size, subjects, archiveSize(repo), strings.Join(peaks, " | "))
		if err := s.remove(ctx, stream); err != nil {
			return err
		}
		os.RemoveAll(repo)
	}
	return nil
}

func memoryCase(what string) (messages, size, subjects int, err error) {
	if what == "subjects" {
		return 5_000_000, 64, 5_000_000, nil
	}
	var gb int
	if _, err := fmt.Sscanf(what, "%dGB", &gb); err != nil {
		return 0, 0, 0, fmt.Errorf("-memory %q: not a number of GB, nor \"subjects\"", what)
	}
	return gb * 1_000_000, 1024, 50, nil
}
