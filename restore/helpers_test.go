package restore_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"iter"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/jetkeep/jetkeep/backup"
	"github.com/jetkeep/jetkeep/backup/repo"
	"github.com/jetkeep/jetkeep/format"
	"github.com/jetkeep/jetkeep/internal/jsapi"
	"github.com/jetkeep/jetkeep/internal/testnats"
	"github.com/jetkeep/jetkeep/restore"
)

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func must[T any](v T, err error) func(testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		check(t, err)
		return v
	}
}

func newJetStream(t testing.TB, nc *nats.Conn) jetstream.JetStream {
	t.Helper()
	return must(jetstream.New(nc, jetstream.WithDefaultTimeout(30*time.Second)))(t)
}

// take backs a stream up into a new repository.
func take(t testing.TB, nc *nats.Conn, stream string) *repo.Backup {
	t.Helper()
	return takeInto(t, nc, must(repo.InitDir(t.TempDir()+"/repo"))(t), stream)
}

func takeInto(t testing.TB, nc *nats.Conn, r *repo.Repository, stream string) *repo.Backup {
	t.Helper()
	res, err := backup.Take(ctx(t), nc, func(ctx context.Context, stream string, start time.Time) (repo.Writer, error) {
		return r.Begin(ctx, stream, start)
	}, backup.Options{Stream: stream})
	check(t, err)
	return res.Backup
}

func ctx(t testing.TB) context.Context {
	c, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	t.Cleanup(cancel)
	return c
}

func client(t testing.TB, nc *nats.Conn) *jsapi.Client {
	t.Helper()
	js := must(jsapi.New(nc, jsapi.Options{}))(t)
	t.Cleanup(js.Close)
	return js
}

func remove(t testing.TB, nc *nats.Conn, stream string) {
	t.Helper()
	check(t, client(t, nc).DeleteStream(ctx(t), stream))
}

// prepare makes a plan.
func prepare(t testing.TB, nc *nats.Conn, b *repo.Backup, o restore.Options) *restore.Plan {
	t.Helper()
	p := must(restore.Prepare(ctx(t), nc, b, o))(t)
	for _, f := range p.Findings {
		if f.Level == restore.Warning || f.Level == restore.Refusal {
			t.Logf("%s %s: %s", f.Level, f.Check, f.Text)
		}
	}
	return p
}

// run prepares and carries out a restore.
func run(t testing.TB, nc *nats.Conn, b *repo.Backup, o restore.Options) (*restore.Plan, *restore.Result, error) {
	t.Helper()
	p := prepare(t, nc, b, o)
	res, err := restore.Run(ctx(t), nc, p)
	return p, res, err
}

// mustRun is run for a restore that succeeds.
func mustRun(t testing.TB, nc *nats.Conn, b *repo.Backup, o restore.Options) (*restore.Plan, *restore.Result) {
	t.Helper()
	p, res, err := run(t, nc, b, o)
	check(t, err)
	if len(res.Warnings) > 0 {
		t.Errorf("warnings: %q", res.Warnings)
	}
	return p, res
}

// looks is all that can be seen of a stream.
type looks struct {
	Contents  testnats.Contents
	Consumers []testnats.Consumer
	Config    map[string]any
}

func look(t testing.TB, nc *nats.Conn, stream string) looks {
	t.Helper()
	return looks{testnats.Dump(t, nc, stream), testnats.DumpConsumers(t, nc, stream), testnats.StreamConfig(t, nc, stream)}
}

func same(t testing.TB, what string, want, got any) {
	t.Helper()
	if d := cmp.Diff(want, got, cmp.Comparer(bytes.Equal)); d != "" { // byte by byte takes minutes
		t.Errorf("%s (-want +got):\n%s", what, d)
	}
}

// again loses a stream, restores it with the full check, and expects it to look
// as before.
func again(t testing.TB, nc *nats.Conn, stream string) (*restore.Plan, *restore.Result) {
	t.Helper()
	before := look(t, nc, stream)
	b := take(t, nc, stream)
	remove(t, nc, stream)
	p, res := mustRun(t, nc, b, restore.Options{FullCheck: true})
	same(t, stream, before, look(t, nc, stream))
	same(t, "messages of the plan", uint64(len(before.Contents.Messages)), p.Expected.Messages)
	return p, res
}

// userInfo is for a user whose password is the name.
func userInfo(name string) nats.Option { return nats.UserInfo(name, name) }

// create makes a stream.
func create(t testing.TB, nc *nats.Conn, cfg jetstream.StreamConfig) string {
	t.Helper()
	if cfg.Name == "" {
		cfg.Name = testnats.Name(t)
	}
	if len(cfg.Subjects) == 0 && cfg.Mirror == nil && len(cfg.Sources) == 0 {
		cfg.Subjects = []string{cfg.Name + ".>"}
	}
	must(newJetStream(t, nc).CreateStream(ctx(t), cfg))(t)
	return cfg.Name
}

// publish publishes to a subject and returns the sequence.
func publish(t testing.TB, nc *nats.Conn, subject, data string, headers ...string) uint64 {
	t.Helper()
	ack, err := tryPublish(t, nc, subject, data, headers...)
	check(t, err)
	return ack.Sequence
}

func tryPublish(t testing.TB, nc *nats.Conn, subject, data string, headers ...string) (*jetstream.PubAck, error) {
	t.Helper()
	m := nats.NewMsg(subject)
	m.Data = []byte(data)
	for i := 0; i < len(headers); i += 2 {
		m.Header.Set(headers[i], headers[i+1])
	}
	return newJetStream(t, nc).PublishMsg(ctx(t), m)
}

// update changes fields of a stream's configuration.
func update(t testing.TB, nc *nats.Conn, stream string, fields map[string]any) {
	t.Helper()
	js := client(t, nc)
	cfg := must(js.StreamInfo(ctx(t), stream))(t).Config
	for k, v := range fields {
		cfg.Set(k, v)
	}
	must(js.UpdateStream(ctx(t), cfg))(t)
}

// everything is what can be seen of the account: names, configurations, states,
// creation times.
func everything(t testing.TB, nc *nats.Conn) map[string]string {
	t.Helper()
	all := map[string]string{}
	for _, s := range must(client(t, nc).Streams(ctx(t)))(t).Streams {
		cfg := must(json.Marshal(s.Config))(t)
		state := must(json.Marshal(s.State))(t)
		all[s.Name()] = string(cfg) + string(state) + s.Created.String()
	}
	return all
}

// absent checks that a stream doesn't exist.
func absent(t testing.TB, nc *nats.Conn, stream string) {
	t.Helper()
	info, err := client(t, nc).StreamInfo(ctx(t), stream)
	if !jsapi.IsCode(err, jsapi.CodeStreamNotFound) {
		t.Errorf("stream %s is there: %v %+v", stream, err, info)
	}
}

// finding returns the finding of a check, and fails the test when there's none
// with all the words.
func finding(t testing.TB, p *restore.Plan, check string, level restore.Level, words ...string) {
	t.Helper()
	for _, f := range p.Findings {
		if f.Check == check && f.Level == level && !slices.ContainsFunc(words, func(w string) bool { return !strings.Contains(f.Text, w) }) {
			return
		}
	}
	t.Errorf("no finding %s of level %s with %q in %+v", check, level, words, p.Findings)
}

// refused checks that a restore is refused for a reason and that nothing is
// touched.
func refused(t testing.TB, nc *nats.Conn, b *repo.Backup, o restore.Options, name string, words ...string) *restore.Plan {
	t.Helper()
	before := everything(t, nc)
	p, res, err := run(t, nc, b, o)
	var r *restore.Refused
	if !errors.As(err, &r) {
		t.Fatalf("not refused: %v %+v", err, res)
	}
	finding(t, p, name, restore.Refusal, words...)
	for _, w := range words {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("the error doesn't say %q: %v", w, err)
		}
	}
	same(t, "the account", before, everything(t, nc))
	return p
}

// transferFailed checks that a restore failed for a reason and left nothing.
func transferFailed(t testing.TB, nc *nats.Conn, stream string, err error, causes ...error) {
	t.Helper()
	var failed *restore.TransferError
	if !errors.As(err, &failed) {
		t.Fatalf("not a TransferError: %v", err)
	}
	for _, cause := range causes {
		if !errors.Is(err, cause) {
			t.Errorf("not for %q: %v", cause, err)
		}
	}
	absent(t, nc, stream)
}

// fill makes a file stream of n messages that don't compress, of so many bytes.
func fill(t testing.TB, nc *nats.Conn, n, size int) string {
	t.Helper()
	stream := create(t, nc, jetstream.StreamConfig{Storage: jetstream.FileStorage})
	js := must(jetstream.New(nc, jetstream.WithDefaultTimeout(30*time.Second), jetstream.WithPublishAsyncMaxPending(128)))(t)
	x := uint64(88172645463325252)
	for range n {
		data := make([]byte, size)
		for j := range data {
			x ^= x << 13
			x ^= x >> 7
			x ^= x << 17
			data[j] = byte(x)
		}
		must(js.PublishAsync(stream+".x", data, jetstream.WithStallWait(time.Minute)))(t)
	}
	select {
	case <-js.PublishAsyncComplete():
	case <-time.After(time.Minute):
		t.Fatal("publishing takes too long")
	}
	return stream
}

// home is a repository's home in memory, whose reads can be tampered with.
type home struct {
	objects map[string][]byte
	// read stands in front of each read of an archive, if set.
	read func(ctx context.Context, data []byte) io.ReadCloser
}

// inMemory copies a backup into a home in memory and returns it with the backup
// in it.
func inMemory(t testing.TB, nc *nats.Conn, stream string) (*home, *repo.Backup) {
	t.Helper()
	h := &home{objects: map[string][]byte{}}
	r := must(repo.Init(ctx(t), h))(t)
	return h, takeInto(t, nc, r, stream)
}

// archive is the key of the only archive.
func (h *home) archive() string {
	for k := range h.objects {
		if strings.HasSuffix(k, format.ArchiveV2Name) {
			return k
		}
	}
	return ""
}

func (h *home) Put(_ context.Context, key string, r io.Reader) (int64, error) {
	if _, ok := h.objects[key]; ok {
		return 0, repo.ErrExists
	}
	data, err := io.ReadAll(r)
	if err == nil {
		h.objects[key] = data
	}
	return int64(len(data)), err
}

func (h *home) PutIfAbsent(ctx context.Context, key string, r io.Reader) (int64, error) {
	return h.Put(ctx, key, r)
}

func (h *home) GetRange(ctx context.Context, key string, off, n int64) (io.ReadCloser, error) {
	data, ok := h.objects[key]
	if !ok {
		return nil, repo.ErrNotFound
	}
	data = data[min(off, int64(len(data))):]
	if n >= 0 {
		data = data[:min(n, int64(len(data)))]
	}
	if h.read != nil && key == h.archive() {
		return h.read(ctx, data), nil
	}
	return io.NopCloser(bytes.NewReader(data)), nil
}

func (h *home) List(_ context.Context, prefix string) iter.Seq2[repo.ObjectInfo, error] {
	return func(yield func(repo.ObjectInfo, error) bool) {
		for _, k := range slices.Sorted(func(yield func(string) bool) {
			for k := range h.objects {
				if strings.HasPrefix(k, prefix) && !yield(k) {
					return
				}
			}
		}) {
			if !yield(repo.ObjectInfo{Key: k, Size: int64(len(h.objects[k]))}, nil) {
				return
			}
		}
	}
}

func (h *home) Delete(_ context.Context, key string) error {
	delete(h.objects, key)
	return nil
}
