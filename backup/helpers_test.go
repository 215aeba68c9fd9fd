package backup_test

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/jetkeep/jetkeep/backup"
	"github.com/jetkeep/jetkeep/backup/repo"
	"github.com/jetkeep/jetkeep/format"
	"github.com/jetkeep/jetkeep/internal/testnats"
)

// check fails the test when there's an error.
func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func newJetStream(t testing.TB, nc *nats.Conn) jetstream.JetStream {
	t.Helper()
	js, err := jetstream.New(nc, jetstream.WithDefaultTimeout(30*time.Second))
	check(t, err)
	return js
}

func newRepo(t testing.TB) *repo.Repository {
	t.Helper()
	r, err := repo.InitDir(filepath.Join(t.TempDir(), "repo"))
	check(t, err)
	return r
}

// into is the destination in a repository.
func into(r *repo.Repository) backup.Destination {
	return func(ctx context.Context, stream string, start time.Time) (repo.Writer, error) {
		return r.Begin(ctx, stream, start)
	}
}

// through has f put something in front of the destination's writers.
func through(to backup.Destination, f func(repo.Writer) repo.Writer) backup.Destination {
	return func(ctx context.Context, stream string, start time.Time) (repo.Writer, error) {
		w, err := to(ctx, stream, start)
		if err != nil {
			return nil, err
		}
		return f(w), nil
	}
}

// take takes a backup that must succeed.
func take(t testing.TB, nc *nats.Conn, r *repo.Repository, o backup.Options) *backup.Result {
	t.Helper()
	res, err := backup.Take(t.Context(), nc, into(r), o)
	check(t, err)
	return res
}

// nothingIn checks that a repository lists nothing and holds no other file than
// its own.
func nothingIn(t testing.TB, r *repo.Repository) {
	t.Helper()
	streams, err := r.Streams(context.Background())
	if err != nil || len(streams) > 0 {
		t.Errorf("the repository lists %q, %v", streams, err)
	}
	check(t, filepath.WalkDir(r.Location(), func(path string, d fs.DirEntry, err error) error {
		if err == nil && path != r.Location() && d.Name() != "jetkeep.json" {
			t.Errorf("%s is left behind", path)
		}
		return err
	}))
}

// inspect reads a backup as it's stored, and returns what it holds.
func inspect(t testing.TB, b *repo.Backup) (testnats.Contents, *format.Inspection) {
	t.Helper()
	rc, err := b.Archive(t.Context())
	check(t, err)
	defer rc.Close()
	var c testnats.Contents
	ins, err := format.Inspect(t.Context(), rc, format.InspectOptions{OnMessage: func(m *format.Message) error {
		c.Messages = append(c.Messages, testnats.Message{
			Seq: m.Seq, Subject: string(m.Subject), Time: time.Unix(0, m.Time).UTC(),
			Header: string(m.Header), Data: brief(m.Payload),
		})
		return nil
	}})
	check(t, err)
	c.FirstSeq, c.LastSeq = ins.Figures.FirstSeq, ins.Figures.LastSeq
	return c, ins
}

// brief stands for a payload: cmp.Diff is slow on long ones.
func brief(p []byte) []byte {
	sum := sha256.Sum256(p)
	return fmt.Appendf(nil, "%d %x", len(p), sum[:8])
}

// dump is testnats.Dump with brief payloads.
func dump(t testing.TB, nc *nats.Conn, stream string) testnats.Contents {
	t.Helper()
	return shorten(testnats.Dump(t, nc, stream))
}

func shorten(c testnats.Contents) testnats.Contents {
	for i := range c.Messages {
		c.Messages[i].Data = brief(c.Messages[i].Data)
	}
	return c
}

// writer is a real one of which some methods are replaced.
type writer struct {
	repo.Writer
	put    func(ctx context.Context, name string, r io.Reader) (int64, error)
	commit func(ctx context.Context, m *format.Manifest) (*repo.Backup, error)
}

func (w *writer) Put(ctx context.Context, name string, r io.Reader) (int64, error) {
	if w.put == nil {
		return w.Writer.Put(ctx, name, r)
	}
	return w.put(ctx, name, r)
}

func (w *writer) Commit(ctx context.Context, m *format.Manifest) (*repo.Backup, error) {
	if w.commit == nil {
		return w.Writer.Commit(ctx, m)
	}
	return w.commit(ctx, m)
}

// onRead calls f before each read from the archive, with the bytes so far.
func onRead(f func(sofar int64) error) func(repo.Writer) repo.Writer {
	return func(w repo.Writer) repo.Writer {
		return &writer{Writer: w, put: func(ctx context.Context, name string, r io.Reader) (int64, error) {
			if name == format.ArchiveV2Name {
				r = &hookedReader{r: r, f: f}
			}
			return w.Put(ctx, name, r)
		}}
	}
}

type hookedReader struct {
	r io.Reader
	n int64
	f func(int64) error
}

func (h *hookedReader) Read(p []byte) (int, error) {
	if err := h.f(h.n); err != nil {
		return 0, err
	}
	n, err := h.r.Read(p)
	h.n += int64(n)
	return n, err
}

// once calls f the first time that so many bytes of an archive have been read.
func once(after int64, f func()) func(repo.Writer) repo.Writer {
	var o sync.Once
	return onRead(func(n int64) error {
		if n >= after {
			o.Do(f)
		}
		return nil
	})
}

// fill makes a stream of so many incompressible messages of 16 KiB.
func fill(t testing.TB, nc *nats.Conn, messages int, configure ...func(*jetstream.StreamConfig)) string {
	t.Helper()
	js := newJetStream(t, nc)
	cfg := jetstream.StreamConfig{Name: testnats.Name(t), Storage: jetstream.FileStorage}
	cfg.Subjects = []string{cfg.Name + ".>"}
	for _, f := range configure {
		f(&cfg)
	}
	_, err := js.CreateStream(t.Context(), cfg)
	check(t, err)
	publish(t, nc, cfg.Name, messages)
	return cfg.Name
}

// publish adds messages to a stream made by fill.
func publish(t testing.TB, nc *nats.Conn, stream string, messages int) {
	t.Helper()
	js, err := jetstream.New(nc, jetstream.WithDefaultTimeout(30*time.Second), jetstream.WithPublishAsyncMaxPending(256))
	check(t, err)
	data := make([]byte, 16<<10)
	for i := range messages {
		noise(data, byte(i))
		_, err := js.PublishAsync(stream+".x", data, jetstream.WithStallWait(time.Minute))
		check(t, err)
	}
	select {
	case <-js.PublishAsyncComplete():
	case <-time.After(time.Minute):
		t.Fatal("publishing takes too long")
	}
}

// noise fills p with what doesn't compress.
func noise(p []byte, seed byte) {
	_, _ = rand.NewChaCha8([32]byte{seed}).Read(p)
}

// within fails the test when f takes longer than d.
func within(t testing.TB, d time.Duration, f func()) {
	t.Helper()
	began := time.Now()
	f()
	if took := time.Since(began); took > d {
		t.Errorf("it took %v, more than %v", took, d)
	}
}

// failure checks that a backup failed for a reason, after so many attempts.
func failure(t testing.TB, err, reason error, attempts int) {
	t.Helper()
	var te *backup.TransferError
	switch {
	case !errors.As(err, &te):
		t.Errorf("want a TransferError, got %v", err)
	case !errors.Is(err, reason):
		t.Errorf("want %q, got %v", reason, err)
	case te.Attempts != attempts:
		t.Errorf("%d attempts, want %d: %v", te.Attempts, attempts, err)
	}
}

func readFile(t testing.TB, path string) []byte {
	t.Helper()
	data, err := os.ReadFile(path)
	check(t, err)
	return data
}
