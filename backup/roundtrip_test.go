package backup_test

import (
	"bytes"
	"context"
	"encoding/json"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/jetkeep/jetkeep/backup"
	"github.com/jetkeep/jetkeep/backup/repo"
	"github.com/jetkeep/jetkeep/format"
	"github.com/jetkeep/jetkeep/internal/jsapi"
	"github.com/jetkeep/jetkeep/internal/testnats"
)

// notLive leaves out what isn't in an archive.
var notLive = cmpopts.IgnoreFields(format.ConsumerFigures{}, "Live")

// agrees checks a backup against the live stream: configuration, every message,
// and the manifest's figures.
func agrees(t testing.TB, nc *nats.Conn, stream string, res *backup.Result) {
	t.Helper()
	info := contentsAgree(t, nc, stream, res)
	file, err := res.Backup.BackupFile(t.Context())
	check(t, err)
	if d := cmp.Diff(asMap(t, info.Config), asMap(t, file.Config)); d != "" {
		t.Errorf("live and stored configurations differ:\n%s", d)
	}
}

// contentsAgree is agrees without the configuration.
func contentsAgree(t testing.TB, nc *nats.Conn, stream string, res *backup.Result) *jsapi.StreamInfo {
	t.Helper()
	js, err := jsapi.New(nc, jsapi.Options{})
	check(t, err)
	defer js.Close()
	info, err := js.StreamInfo(t.Context(), stream)
	check(t, err)
	stored, ins := inspect(t, res.Backup)
	live := testnats.Dump(t, nc, stream)
	var size, largest uint64
	for _, msg := range live.Messages {
		n := uint64(len(msg.Header) + len(msg.Data))
		size += n
		largest = max(largest, n)
	}
	live = shorten(live)
	if d := cmp.Diff(live, stored); d != "" {
		t.Errorf("live and stored messages differ:\n%s", d)
	}
	m, f := res.Manifest, res.Manifest.Figures
	if d := cmp.Diff(ins.Figures, f, notLive); d != "" {
		t.Errorf("the figures of the stored archive and of the manifest differ:\n%s", d)
	}
	if o := m.Objects[0]; len(m.Objects) != 1 || o.SHA256 != ins.SHA256 || o.Bytes != ins.Bytes || o.RawBytes != ins.RawBytes {
		t.Errorf("manifest's objects %+v, found %+v", m.Objects, ins)
	}
	st := info.State
	type figures struct {
		Messages, First, Last, Deleted, Subjects uint64
		Consumers                                int
	}
	want := figures{st.Messages, st.FirstSeq, st.LastSeq, uint64(st.NumDeleted), uint64(st.NumSubjects), st.ConsumerCount}
	if m.NoConsumers {
		want.Consumers = 0
	}
	got := figures{f.Messages, f.FirstSeq, f.LastSeq, f.Deleted, f.Subject.Count, len(f.Consumers)}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("figures of the live stream and the manifest differ:\n%s", d)
	}
	if st.Messages > 0 && (!f.FirstTime.Equal(st.FirstTime) || live.Messages[len(live.Messages)-1].Seq == st.LastSeq && !f.LastTime.Equal(st.LastTime)) {
		t.Errorf("times %v to %v, the stream has %v to %v", f.FirstTime, f.LastTime, st.FirstTime, st.LastTime)
	}
	if f.Bytes != size || f.Messages > 0 && f.Largest.Bytes != largest {
		t.Errorf("%d bytes, the largest message %v, want %d and %d", f.Bytes, f.Largest, size, largest)
	}
	if !m.Created.Equal(info.Created) || m.Stream != stream || m.Server.Version != nc.ConnectedServerVersion() {
		t.Errorf("manifest: created %v, stream %q, server %+v", m.Created, m.Stream, m.Server)
	}
	return info
}

func asMap(t testing.TB, o format.Object) map[string]any {
	t.Helper()
	var m map[string]any
	check(t, o.Decode(&m))
	if md, ok := m["metadata"].(map[string]any); ok { // what the server adds to its answers
		maps.DeleteFunc(md, func(k string, _ any) bool { return strings.HasPrefix(k, "_nats.") })
	}
	return m
}

func TestRoundTrip(t *testing.T) {
	t.Parallel()
	s := testnats.Single(t, testnats.Options{Domain: "hub"})
	nc := s.Connect(t)
	storage := func(kind jetstream.StorageType) func(*jetstream.StreamConfig) {
		return func(c *jetstream.StreamConfig) { c.Storage = kind }
	}
	messy := func(kind jetstream.StorageType) func(t *testing.T) string {
		return func(t *testing.T) string {
			return testnats.Fill(t, nc, testnats.FillOptions{TTL: time.Hour, Consumers: true, Configure: storage(kind)})
		}
	}
	empty := func(first uint64) func(t *testing.T) string {
		return func(t *testing.T) string {
			return fill(t, nc, 0, func(c *jetstream.StreamConfig) { c.FirstSeq = first })
		}
	}
	for name, make := range map[string]func(t *testing.T) string{
		"file":   messy(jetstream.FileStorage),
		"memory": messy(jetstream.MemoryStorage),
		"work queue": func(t *testing.T) string {
			return testnats.Fill(t, nc, testnats.FillOptions{NoDeletes: true, Consumers: true, Configure: func(c *jetstream.StreamConfig) {
				c.Retention = jetstream.WorkQueuePolicy
			}})
		},
		"kv":           func(t *testing.T) string { return "KV_" + testnats.FillKV(t, nc) },
		"object store": func(t *testing.T) string { return "OBJ_" + testnats.FillObjects(t, nc) },
		"never used":   empty(0),
		"first 1000":   empty(1000),
		"purged": func(t *testing.T) string {
			name := fill(t, nc, 100)
			stream, err := newJetStream(t, nc).Stream(t.Context(), name)
			check(t, err)
			check(t, stream.Purge(t.Context()))
			return name
		},
		"less than a chunk": func(t *testing.T) string { return fill(t, nc, 1) },
		"many chunks":       func(t *testing.T) string { return fill(t, nc, 100) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			stream := make(t)
			r := newRepo(t)
			res := take(t, nc, r, backup.Options{Stream: stream, ChunkSize: 64 << 10})
			agrees(t, nc, stream, res)
			if res.Attempts != 1 {
				t.Errorf("%d attempts", res.Attempts)
			}
			if s := res.Manifest.Server; s.Domain != "hub" || s.Name == "" || s.Cluster != "" {
				t.Errorf("server %+v", s)
			}
			found, err := r.Find(t.Context(), stream, "")
			check(t, err)
			if d := cmp.Diff(res.Manifest, found.Manifest, cmpopts.EquateEmpty()); d != "" {
				t.Error(d)
			}
		})
	}
}

// TestConsumers compares each consumer in the archive with the live one.
func TestConsumers(t *testing.T) {
	t.Parallel()
	nc := testnats.Single(t).Connect(t)
	stream := testnats.Fill(t, nc, testnats.FillOptions{Consumers: true})
	live := testnats.DumpConsumers(t, nc, stream)
	res := take(t, nc, newRepo(t), backup.Options{Stream: stream, Account: func() string { return "ACC" }, Context: "ctx", Version: "v1"})
	m := res.Manifest
	if m.Account != "ACC" || m.Context != "ctx" || m.JetkeepVersion != "v1" || m.Started.After(m.Ended) || len(m.MissingConsumers) > 0 {
		t.Errorf("manifest %+v", m)
	}
	type row struct {
		Name                string
		Push, Paused        bool
		Delivered, AckFloor testnats.Position
		Pending             int
	}
	var want, got []row
	for _, c := range live {
		want = append(want, row{c.Name, c.Config["deliver_subject"] != nil, c.Paused, c.Delivered, c.AckFloor, c.AckPending})
	}
	for _, c := range m.Figures.Consumers {
		// On a single server the archive is exact.
		if c.Live == nil || c.Live.Delivered != c.Delivered || c.Live.AckFloor != c.AckFloor || c.Live.AckPending != c.Pending {
			t.Errorf("consumer %+v, live %+v", c, c.Live)
		}
		got = append(got, row{c.Name, c.Push, c.Paused, testnats.Position(c.Delivered), testnats.Position(c.AckFloor), int(c.Pending)})
	}
	slices.SortFunc(got, func(a, b row) int { return strings.Compare(a.Name, b.Name) })
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}

	without := take(t, nc, newRepo(t), backup.Options{Stream: stream, NoConsumers: true})
	_, ins := inspect(t, without.Backup)
	if m := without.Manifest; !m.NoConsumers || len(m.Figures.Consumers) > 0 || len(m.MissingConsumers) > 0 || len(ins.Head.Consumers) > 0 {
		t.Errorf("without consumers: %+v", m)
	}
}

// TestConsumersMissingFromTheArchive: whatever the server lists is in the
// archive or named as missing.
func TestConsumersMissingFromTheArchive(t *testing.T) {
	t.Parallel()
	nc := testnats.Single(t).Connect(t)
	stream := testnats.Fill(t, nc, testnats.FillOptions{Consumers: true})
	s, err := newJetStream(t, nc).Stream(t.Context(), stream)
	check(t, err)
	_, err = s.CreateConsumer(t.Context(), jetstream.ConsumerConfig{Durable: "inmemory", MemoryStorage: true, AckPolicy: jetstream.AckExplicitPolicy})
	check(t, err)
	m := take(t, nc, newRepo(t), backup.Options{Stream: stream}).Manifest
	var names []string
	for _, c := range m.Figures.Consumers {
		names = append(names, c.Name)
	}
	names = append(names, m.MissingConsumers...)
	slices.Sort(names)
	var want []string
	for _, c := range testnats.DumpConsumers(t, nc, stream) {
		want = append(want, c.Name)
	}
	if d := cmp.Diff(want, names); d != "" {
		t.Error(d)
	}
	t.Logf("missing from the archive: %q", m.MissingConsumers)
}

// TestUnknownFieldsSurvive: backup.json holds each field of the server's answer,
// whether we know it or not.
func TestUnknownFieldsSurvive(t *testing.T) {
	t.Parallel()
	nc := testnats.Single(t).Connect(t)
	stream := testnats.Fill(t, nc, testnats.FillOptions{Messages: 20})
	js, err := jsapi.New(nc, jsapi.Options{})
	check(t, err)
	defer js.Close()
	raw, err := nc.Request(js.Subject("STREAM.SNAPSHOT."+stream), []byte(`{"deliver_subject":"nobody.listens"}`), 5*time.Second)
	check(t, err)
	var want, got map[string]any
	check(t, json.Unmarshal(raw.Data, &want))
	delete(want, "type")
	res := take(t, nc, newRepo(t), backup.Options{Stream: stream})
	check(t, json.Unmarshal(readFile(t, filepath.Join(res.Backup.Location(), format.BackupFileName)), &got))
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}

func TestPeerRestoresOurs(t *testing.T) {
	t.Parallel()
	peer := testnats.Peer(t)
	nc := testnats.Single(t).Connect(t)
	stream := testnats.Fill(t, nc, testnats.FillOptions{TTL: time.Hour, Consumers: true})
	dir := filepath.Join(t.TempDir(), "plain")
	_, err := backup.Take(t.Context(), nc, func(context.Context, string, time.Time) (repo.Writer, error) {
		return repo.BeginPlain(dir)
	}, backup.Options{Stream: stream})
	check(t, err)
	want, consumers := dump(t, nc, stream), testnats.DumpConsumers(t, nc, stream)

	other := testnats.Single(t)
	runPeer(t, peer, other, "backup", "restore", "stream", "--no-progress", dir)
	to := other.Connect(t)
	if d := cmp.Diff(want, dump(t, to, stream)); d != "" {
		t.Error(d)
	}
	ignore := cmp.FilterPath(func(p cmp.Path) bool { return p.String() == "Config" || p.String() == "Redelivered" }, cmp.Ignore())
	if d := cmp.Diff(consumers, testnats.DumpConsumers(t, to, stream), ignore); d != "" {
		t.Error(d)
	}
}

func TestOursOpensPeers(t *testing.T) {
	t.Parallel()
	peer := testnats.Peer(t)
	s := testnats.Single(t)
	nc := s.Connect(t)
	stream := testnats.Fill(t, nc, testnats.FillOptions{TTL: time.Hour, Consumers: true})
	dir := filepath.Join(t.TempDir(), "peer")
	runPeer(t, peer, s, "backup", "stream", "--no-progress", stream, dir)
	b, err := repo.OpenPlain(dir)
	check(t, err)
	got, ins := inspect(t, b)
	if d := cmp.Diff(dump(t, nc, stream), got); d != "" {
		t.Error(d)
	}
	file, err := b.BackupFile(t.Context())
	check(t, err)
	check(t, format.Belongs(file, ins))
	ours := take(t, nc, newRepo(t), backup.Options{Stream: stream})
	if d := cmp.Diff(ours.Manifest.Figures, ins.Figures, notLive); d != "" {
		t.Errorf("ours and the peer's differ:\n%s", d)
	}
}

func runPeer(t testing.TB, peer string, s *testnats.Server, args ...string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), peer, append([]string{"--no-context", "--server", s.URL()}, args...)...)
	cmd.Env = append(os.Environ(), "HOME="+t.TempDir(), "XDG_CONFIG_HOME="+t.TempDir())
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("nats %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}

func TestOldServersAreRefused(t *testing.T) {
	t.Parallel()
	nc := testnats.Process(t, testnats.ServerBinary(t, "2.14.9")).Connect(t)
	small := fill(t, nc, 1)
	large := fill(t, nc, 1000)
	memory := fill(t, nc, 10, func(c *jetstream.StreamConfig) { c.Storage = jetstream.MemoryStorage })
	for _, stream := range []string{small, large, memory} {
		r := newRepo(t)
		_, err := backup.Take(t.Context(), nc, into(r), backup.Options{Stream: stream})
		failure(t, err, backup.ErrNeedsV2, 1)
		nothingIn(t, r)
	}
}

func TestStreamThatDoesNotExist(t *testing.T) {
	t.Parallel()
	nc := testnats.Single(t).Connect(t)
	r := newRepo(t)
	for _, name := range []string{"NONE", "", "a.b", "*"} {
		_, err := backup.Take(t.Context(), nc, into(r), backup.Options{Stream: name})
		if err == nil || name == "NONE" && !jsapi.IsCode(err, jsapi.CodeStreamNotFound) {
			t.Errorf("%q: %v", name, err)
		}
	}
	nothingIn(t, r)
}

// TestProgress: it grows, comes to the archive's figures, and ends with Take.
func TestProgress(t *testing.T) {
	t.Parallel()
	nc := testnats.Single(t).Connect(t)
	stream := fill(t, nc, 50)
	var all []backup.Progress // unguarded: the race detector shows a late call
	res := take(t, nc, newRepo(t), backup.Options{Stream: stream, Progress: func(p backup.Progress) { all = append(all, p) }})
	last := all[len(all)-1]
	o := res.Manifest.Objects[0]
	if last.Bytes != o.Bytes || last.RawBytes != o.RawBytes || last.Messages != 50 || last.Total <= 0 {
		t.Errorf("the last progress is %+v, the archive %+v", last, o)
	}
}

// TestUnsoundMessages: what a client can store is what a backup holds.
func TestUnsoundMessages(t *testing.T) {
	t.Parallel()
	nc := testnats.Single(t).Connect(t)
	stream := fill(t, nc, 0)
	js := newJetStream(t, nc)
	m := nats.NewMsg(stream + ".x")
	m.Header["X-Binary"] = []string{"\xff\xfe\x01"}
	m.Data = bytes.Repeat([]byte{0}, 100)
	_, err := js.PublishMsg(t.Context(), m)
	check(t, err)
	m = nats.NewMsg(stream + "." + strings.Repeat("long.", 200) + "end")
	_, err = js.PublishMsg(t.Context(), m)
	check(t, err)
	res := take(t, nc, newRepo(t), backup.Options{Stream: stream})
	agrees(t, nc, stream, res)
}
