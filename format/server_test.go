package format

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// startServer runs a nats-server in the test's process.
func startServer(t *testing.T) (*nats.Conn, jetstream.JetStream) {
	t.Helper()
	s, err := server.NewServer(&server.Options{JetStream: true, StoreDir: t.TempDir(), DontListen: true, NoSigs: true, NoLog: true})
	if err != nil {
		t.Fatal(err)
	}
	s.Start()
	t.Cleanup(func() { s.Shutdown(); s.WaitForShutdown() })
	if !s.ReadyForConnections(10 * time.Second) {
		t.Fatal("the server doesn't start")
	}
	nc, err := nats.Connect("", nats.InProcessServer(s))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	js, err := jetstream.New(nc, jetstream.WithDefaultTimeout(30*time.Second))
	if err != nil {
		t.Fatal(err)
	}
	return nc, js
}

// takeSnapshot fetches a stream's archive through the JetStream API.
func takeSnapshot(t *testing.T, nc *nats.Conn, stream string) []byte {
	t.Helper()
	inbox := nats.NewInbox()
	sub, err := nc.SubscribeSync(inbox)
	if err != nil {
		t.Fatal(err)
	}
	defer sub.Unsubscribe()
	sub.SetPendingLimits(-1, -1)
	answer, err := nc.Request("$JS.API.STREAM.SNAPSHOT."+stream, fmt.Appendf(nil, `{"deliver_subject":%q,"chunk_size":1024}`, inbox), 10*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := ParseBackupFile(answer.Data); err != nil {
		t.Fatalf("%v: %s", err, answer.Data)
	}
	var out []byte
	for {
		m, err := sub.NextMsg(10 * time.Second)
		if err != nil {
			t.Fatal(err)
		}
		if len(m.Data) == 0 {
			if s := m.Header.Get("Status"); s != "" && s != "204" {
				t.Fatalf("status %s %s", s, m.Header.Get("Description"))
			}
			return out
		}
		out = append(out, m.Data...)
		if m.Reply != "" {
			m.Respond(nil)
		}
	}
}

// fill makes a stream with headers, TTLs, deleted messages, and consumers of
// each kind, and returns what it has to hold.
func fill(ctx context.Context, t *testing.T, js jetstream.JetStream, storage jetstream.StorageType) jetstream.Stream {
	t.Helper()
	stream, err := js.CreateStream(ctx, jetstream.StreamConfig{Name: "ORDERS", Subjects: []string{"orders.>"}, AllowMsgTTL: true, Storage: storage})
	if err != nil {
		t.Fatal(err)
	}
	for i := range 300 {
		m := nats.NewMsg(fmt.Sprintf("orders.%d.<new>", i%7))
		m.Data = bytes.Repeat([]byte{byte(i)}, i*3)
		switch {
		case i%5 == 0:
			m.Header.Set("Nats-TTL", "1h")
		case i%11 == 0:
			m.Header.Set("Nats-TTL", "never")
		case i%3 == 0:
			m.Header.Set("Nats-Msg-Id", fmt.Sprint(i))
			m.Header.Add("A", "")
			m.Header.Add("A", "é")
		}
		if _, err := js.PublishMsg(ctx, m); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []jetstream.ConsumerConfig{
		{Durable: "pull", AckPolicy: jetstream.AckExplicitPolicy},
		{Name: "ephemeral", AckPolicy: jetstream.AckExplicitPolicy, InactiveThreshold: time.Hour},
	} {
		c, err := stream.CreateConsumer(ctx, c)
		if err != nil {
			t.Fatal(err)
		}
		batch, err := c.Fetch(10)
		if err != nil {
			t.Fatal(err)
		}
		for m := range batch.Messages() {
			if meta, _ := m.Metadata(); meta.Sequence.Stream <= 4 || meta.Sequence.Stream == 7 {
				if err := m.DoubleAck(ctx); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	_, err = js.CreateOrUpdatePushConsumer(ctx, "ORDERS", jetstream.ConsumerConfig{Durable: "push", DeliverSubject: "out", AckPolicy: jetstream.AckExplicitPolicy, PauseUntil: new(time.Now().Add(time.Hour))})
	if err != nil {
		t.Fatal(err)
	}
	// Two gaps of three, one of one, a leading and a trailing one.
	for _, seq := range []uint64{1, 2, 20, 21, 22, 100, 101, 102, 200, 299, 300} {
		if err := stream.DeleteMsg(ctx, seq); err != nil {
			t.Fatal(err)
		}
	}
	return stream
}

func TestFiguresOfASnapshotAreTheServers(t *testing.T) {
	for name, storage := range map[string]jetstream.StorageType{"file": jetstream.FileStorage, "memory": jetstream.MemoryStorage} {
		t.Run(name, func(t *testing.T) {
			ctx := t.Context()
			nc, js := startServer(t)
			stream := fill(ctx, t, js, storage)
			data := takeSnapshot(t, nc, "ORDERS")
			f := mustGather(t, data)
			checkAgainstServer(t, data, f)
			checkFigures(ctx, t, stream, f, storage == jetstream.FileStorage)
		})
	}
}

func checkFigures(ctx context.Context, t *testing.T, stream jetstream.Stream, f *found, file bool) {
	t.Helper()
	info, err := stream.Info(ctx, jetstream.WithSubjectFilter(">"), jetstream.WithDeletedDetails(true))
	if err != nil {
		t.Fatal(err)
	}
	want, got := info.State, f.Figures
	if got.Messages != want.Msgs || got.FirstSeq != want.FirstSeq || got.LastSeq != want.LastSeq || got.Deleted != uint64(want.NumDeleted) {
		t.Errorf("got %+v, the server says %+v", got, want)
	}
	if !got.FirstTime.Equal(want.FirstTime) || !got.LastTime.Equal(f.time(t, got.LastSeq-2)) {
		t.Errorf("from %v to %v, the server says from %v to %v", got.FirstTime, got.LastTime, want.FirstTime, want.LastTime)
	}
	if file && got.StoreBytes != want.Bytes {
		t.Errorf("%d bytes of store, the server says %d", got.StoreBytes, want.Bytes)
	}
	if got.Gaps != 4 || len(want.Deleted) != 9 { // the leading two aren't counted: first_seq moved
		t.Errorf("%d gaps among deleted %v", got.Gaps, want.Deleted)
	}
	counts := map[string]uint64{}
	for _, s := range got.Subject.Top {
		counts[s.Subject] = s.Messages
	}
	for s, n := range want.Subjects {
		if counts[s] != n {
			t.Errorf("%d messages on %q, the server says %d", counts[s], s, n)
		}
	}
	if len(counts) != len(want.Subjects) || got.Subject.Count != want.NumSubjects || !got.Subject.Exact {
		t.Errorf("%+v, the server says %d", got.Subject, want.NumSubjects)
	}
	for _, m := range f.Messages {
		raw, err := stream.GetMsg(ctx, m.Seq)
		if err != nil {
			t.Fatal(err)
		}
		header, _ := nats.DecodeHeadersMsg([]byte(m.Header))
		if raw.Subject != m.Subject || string(raw.Data) != m.Payload || raw.Time.UnixNano() != m.Time || fmt.Sprint(raw.Header) != fmt.Sprint(header) {
			t.Fatalf("message %d is %+v, the server says %+v", m.Seq, m, raw)
		}
	}
	if len(got.Consumers) != 3 {
		t.Fatalf("consumers %+v", got.Consumers)
	}
	slices.SortFunc(got.Consumers, func(a, b ConsumerFigures) int { return cmp.Compare(a.Name, b.Name) })
	for i, want := range []ConsumerFigures{
		{Name: "ephemeral", Delivered: SequencePair{10, 10}, AckFloor: SequencePair{4, 4}, Pending: 5},
		{Name: "pull", Durable: true, Delivered: SequencePair{10, 10}, AckFloor: SequencePair{4, 4}, Pending: 5},
		{Name: "push", Durable: true, Push: true, Paused: true},
	} {
		if got.Consumers[i] != want {
			t.Errorf("consumer %+v, want %+v", got.Consumers[i], want)
		}
	}
}

// time returns when a message was stored.
func (f *found) time(t *testing.T, seq uint64) time.Time {
	t.Helper()
	for _, m := range f.Messages {
		if m.Seq == seq {
			return time.Unix(0, m.Time)
		}
	}
	t.Fatalf("no message %d", seq)
	return time.Time{}
}

func TestTTLsAreReadAsTheServerDoes(t *testing.T) {
	ctx := t.Context()
	nc, js := startServer(t)
	if _, err := js.CreateStream(ctx, jetstream.StreamConfig{Name: "T", Subjects: []string{"t"}, AllowMsgTTL: true, Storage: jetstream.MemoryStorage}); err != nil {
		t.Fatal(err)
	}
	var kept []string
	for _, v := range ttlValues {
		m := &nats.Msg{Subject: "t", Header: nats.Header{"Nats-TTL": {v}}}
		_, err := js.PublishMsg(ctx, m)
		var refused *jetstream.APIError
		if err != nil && !errors.As(err, &refused) {
			t.Fatal(err)
		}
		// nats.go trims values, so this is what went over the wire.
		wire := strings.TrimSpace(v)
		ttl, perr := MessageTTL([]byte("NATS/1.0\r\nNats-TTL: " + wire + "\r\n\r\n"))
		if (perr == nil) != (err == nil) {
			t.Errorf("%q: %v; the server says %v", v, perr, err)
		}
		if want, ok := serverTTL(wire); ok != (err == nil) || ok && ttl != want {
			t.Errorf("%q: %d; this file's oracle says %d, %v, the server %v", v, ttl, want, ok, err)
		}
		if err == nil {
			kept = append(kept, v)
		}
	}
	if len(kept) < 8 || len(kept) > len(ttlValues)-8 {
		t.Errorf("the server keeps %q only", kept)
	}
	if _, err := gather(bytes.NewReader(takeSnapshot(t, nc, "T"))); err != nil {
		t.Errorf("refused what the server wrote: %v", err)
	}
}

func TestStreamsWithoutMessagesAreSound(t *testing.T) {
	ctx := t.Context()
	nc, js := startServer(t)
	for name, prepare := range map[string]func(jetstream.Stream){
		"never":  func(jetstream.Stream) {},
		"purged": func(s jetstream.Stream) { js.Publish(ctx, "purged", nil); s.Purge(ctx) },
		"deleted": func(s jetstream.Stream) {
			for range 3 {
				js.Publish(ctx, "deleted", nil)
			}
			for seq := range uint64(3) {
				s.DeleteMsg(ctx, seq+1)
			}
		},
		"later": func(jetstream.Stream) {},
	} {
		config := jetstream.StreamConfig{Name: name, Subjects: []string{name}}
		if name == "later" {
			config.FirstSeq = 1000
		}
		s, err := js.CreateStream(ctx, config)
		if err != nil {
			t.Fatal(err)
		}
		prepare(s)
		f := mustGather(t, takeSnapshot(t, nc, name)).Figures
		info, err := s.Info(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if f.Messages != 0 || f.FirstSeq != info.State.FirstSeq || f.LastSeq != info.State.LastSeq || f.Deleted != 0 || f.Gaps != 0 {
			t.Errorf("%s: %+v; the server says %+v", name, f, info.State)
		}
	}
}

// TestServerRestoresOurWriting: what Writer and Relay write is an archive to a
// server, and a snapshot of the result holds the same.
func TestServerRestoresOurWriting(t *testing.T) {
	ctx := t.Context()
	nc, js := startServer(t)
	fill(ctx, t, js, jetstream.FileStorage)
	original := takeSnapshot(t, nc, "ORDERS")
	config, err := js.Stream(ctx, "ORDERS")
	if err != nil {
		t.Fatal(err)
	}
	want := mustGather(t, original)

	var written, relayed bytes.Buffer
	var head *Head
	w := NewWriter(&written)
	relay := NewRelay(&relayed, func() (*Head, error) { return head, nil })
	_, err = Inspect(ctx, bytes.NewReader(original), InspectOptions{
		OnHead:    func(h *Head) error { head = h; return w.WriteHead(h) },
		OnMessage: w.WriteMessage,
		OnBlock:   relay.Block,
	})
	if err := errors.Join(err, w.Close()); err != nil {
		t.Fatal(err)
	}
	for name, data := range map[string][]byte{"written": written.Bytes(), "relayed": relayed.Bytes()} {
		if err := js.DeleteStream(ctx, "ORDERS"); err != nil {
			t.Fatal(err)
		}
		// Its files are removed in the background: another name is out of their way.
		c := config.CachedInfo().Config
		c.Name = "ORDERS-" + name
		raw, _ := json.Marshal(c)
		restoreSnapshot(t, nc, c.Name, raw, want.StateJSON, data)
		got := mustGather(t, takeSnapshot(t, nc, c.Name))
		if fmt.Sprint(got.Messages) != fmt.Sprint(want.Messages) {
			t.Errorf("%s: the messages have changed", name)
		}
		for _, k := range want.Figures.Consumers {
			// The server moves one that had nothing delivered up to first_seq.
			if k.Pending > 0 && !slices.Contains(got.Figures.Consumers, k) {
				t.Errorf("%s: consumers %+v, want %+v", name, got.Figures.Consumers, k)
			}
		}
		if err := js.DeleteStream(ctx, c.Name); err != nil {
			t.Fatal(err)
		}
		c.Name = "ORDERS"
		if _, err := js.CreateStream(ctx, c); err != nil {
			t.Fatal(err)
		}
	}
}

// restoreSnapshot sends an archive to the server.
func restoreSnapshot(t *testing.T, nc *nats.Conn, stream string, config []byte, state string, data []byte) {
	t.Helper()
	request := func(subject string, body []byte) []byte {
		t.Helper()
		m, err := nc.Request(subject, body, 10*time.Second)
		if err != nil {
			t.Fatal(err)
		}
		if bytes.Contains(m.Data, []byte(`"error"`)) {
			t.Fatalf("%s", m.Data)
		}
		return m.Data
	}
	var answer struct {
		Deliver string `json:"deliver_subject"`
	}
	if err := json.Unmarshal(request("$JS.API.STREAM.RESTORE."+stream, fmt.Appendf(nil, `{"config":%s,"state":%s}`, config, state)), &answer); err != nil {
		t.Fatal(err)
	}
	for c := range slices.Chunk(data, 100_000) {
		request(answer.Deliver, c)
	}
	request(answer.Deliver, nil)
}

// TestServerRestoresTheGoodSample: without the three messages whose TTL is over.
func TestServerRestoresTheGoodSample(t *testing.T) {
	nc, js := startServer(t)
	good, err := os.ReadFile(testdata + "/good.arc.s2")
	if err != nil {
		t.Fatal(err)
	}
	state := goodEntries()[0].payload
	restoreSnapshot(t, nc, "ORDERS", []byte(`{"name":"ORDERS","subjects":["orders.>"],"retention":"limits","storage":"file","num_replicas":1,"allow_msg_ttl":true,"max_consumers":-1,"max_msgs":-1,"max_bytes":-1,"max_msg_size":-1,"max_msgs_per_subject":-1}`), state, good)
	s, err := js.Stream(t.Context(), "ORDERS")
	if err != nil {
		t.Fatal(err)
	}
	if got := s.CachedInfo().State; got.Msgs != 27 || got.FirstSeq != 11 || got.LastSeq != 60 || got.Consumers != 2 {
		t.Errorf("%+v", got)
	}
}
