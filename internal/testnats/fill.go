package testnats

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// FillOptions say what goes into a stream. The zero value fills a new file
// stream with 500 messages, as messy as those of real streams.
type FillOptions struct {
	// Stream is its name. Empty: a unique one. An existing stream is added to.
	Stream string
	// Subjects are published to in turn. Empty: five below the stream's name.
	Subjects []string
	// Configure changes the configuration of the stream before it is created.
	Configure func(*jetstream.StreamConfig)
	// Messages is how many are published, before deletes. Zero: 500.
	Messages int
	// Size is the largest payload; sizes vary from 0 to Size. Zero: 512.
	Size int
	// NoDeletes leaves out the deleted messages: two of each ten, holes of
	// several, the first three and the last two.
	NoDeletes bool
	// NoHeaders leaves headers, and with them message ids, out.
	NoHeaders bool
	// TTL, if not zero, is put on every seventh message. The stream allows it.
	TTL time.Duration
	// Consumers adds those of FillConsumers.
	Consumers bool
}

func withTimeout(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 2*patience)
	t.Cleanup(cancel)
	return ctx
}

func newJetStream(t testing.TB, nc *nats.Conn) jetstream.JetStream {
	t.Helper()
	js, err := jetstream.New(nc, jetstream.WithDefaultTimeout(30*time.Second), jetstream.WithPublishAsyncMaxPending(512))
	if err != nil {
		t.Fatal(err)
	}
	return js
}

// random is the same sequence each time, so that a failure comes again.
func random(name string) *rand.Rand {
	var seed [32]byte
	copy(seed[:], name)
	return rand.New(rand.NewChaCha8(seed))
}

// Fill creates a stream, or adds to one, and returns its name.
func Fill(t testing.TB, nc *nats.Conn, o FillOptions) string {
	t.Helper()
	o.Stream = orDefault(o.Stream, Name(t))
	o.Messages = orDefault(o.Messages, 500)
	o.Size = orDefault(o.Size, 512)
	if len(o.Subjects) == 0 {
		for _, kind := range []string{"new", "paid", "packed.eu", "packed.us", "sent.späti"} {
			o.Subjects = append(o.Subjects, o.Stream+"."+kind)
		}
	}
	js := newJetStream(t, nc)
	s := openStream(t, js, o)
	first := s.CachedInfo().State.LastSeq + 1
	publishAll(t, js, o)
	if !o.NoDeletes {
		deleteSome(t, s, first, o.Messages)
	}
	if o.Consumers {
		FillConsumers(t, nc, o.Stream)
	}
	return o.Stream
}

func openStream(t testing.TB, js jetstream.JetStream, o FillOptions) jetstream.Stream {
	t.Helper()
	ctx := withTimeout(t)
	if s, err := js.Stream(ctx, o.Stream); err == nil {
		return s
	}
	cfg := jetstream.StreamConfig{
		Name:        o.Stream,
		Description: "orders, filled by a test",
		Subjects:    o.Subjects,
		Storage:     jetstream.FileStorage,
		Duplicates:  time.Minute,
		AllowDirect: true,
		AllowMsgTTL: o.TTL > 0,
		Metadata:    map[string]string{"team": "orders"},
	}
	if o.Configure != nil {
		o.Configure(&cfg)
	}
	s, err := js.CreateStream(ctx, cfg)
	if err != nil {
		t.Fatalf("create stream %s: %v", o.Stream, err)
	}
	return s
}

func publishAll(t testing.TB, js jetstream.JetStream, o FillOptions) {
	t.Helper()
	rnd := random(o.Stream)
	var acks []jetstream.PubAckFuture
	for i := range o.Messages {
		ack, err := js.PublishMsgAsync(message(rnd, o, i))
		if err != nil {
			t.Fatalf("publish to %s: %v", o.Stream, err)
		}
		acks = append(acks, ack)
	}
	select {
	case <-js.PublishAsyncComplete():
	case <-time.After(2 * patience):
		t.Fatalf("publish to %s: %d of %d unacknowledged", o.Stream, js.PublishAsyncPending(), o.Messages)
	}
	for _, ack := range acks {
		select {
		case <-ack.Ok():
		case err := <-ack.Err():
			t.Fatalf("publish to %s: %v", o.Stream, err)
		}
	}
}

// message makes the i-th message: payloads that compress half-way, and headers
// with repeated names, empty values and odd characters on some.
func message(rnd *rand.Rand, o FillOptions, i int) *nats.Msg {
	m := nats.NewMsg(o.Subjects[i%len(o.Subjects)])
	size := rnd.IntN(o.Size + 1)
	m.Data = make([]byte, size)
	for j := range m.Data {
		if j < size/2 {
			m.Data[j] = "jetkeep "[j%8]
		} else {
			m.Data[j] = byte(rnd.Uint32())
		}
	}
	if !o.NoHeaders {
		switch i % 4 {
		case 1:
			m.Header.Set(nats.MsgIdHdr, fmt.Sprintf("%s-%d-%d", o.Stream, i, rnd.Uint32()))
		case 2:
			m.Header["trace"] = []string{"a=1", "b=2"}
			m.Header["X-Empty"] = []string{""}
		case 3:
			m.Header["Umlaut"] = []string{"Straße; q=\"0,5\""}
		}
	}
	if o.TTL > 0 && i%7 == 0 {
		m.Header.Set("Nats-TTL", o.TTL.String())
	}
	return m
}

// deleteSome makes holes at the start, inside and at the end.
func deleteSome(t testing.TB, s jetstream.Stream, first uint64, n int) {
	t.Helper()
	ctx := withTimeout(t)
	gone := make(map[uint64]bool)
	last := first + uint64(n) - 1
	for seq := first; seq <= last; seq++ {
		at := seq - first
		hole := n >= 100 && at >= 40 && at < 53
		edge := n >= 10 && (at < 3 || seq > last-2)
		if hole || edge || n >= 10 && (at%10 == 4 || at%10 == 8) {
			gone[seq] = true
		}
	}
	for seq := range gone {
		if err := s.DeleteMsg(ctx, seq); err != nil {
			t.Fatalf("delete message %d: %v", seq, err)
		}
	}
}

// FillConsumers adds consumers with all kinds of state to a stream that has
// messages:
//
//	fresh      nothing delivered
//	pending    ten delivered, none acknowledged
//	odd        thirty delivered, acknowledged out of order, gaps above the floor
//	naked      five delivered, refused and delivered again
//	filtered   on the subject of the last message, ten acknowledged
//	paused     paused for a day
//	push       a durable push consumer that nobody listens to
//	and an ephemeral one that lives for an hour, partly acknowledged
//
// Work queues refuse more than one consumer and get "odd" only.
func FillConsumers(t testing.TB, nc *nats.Conn, stream string) {
	t.Helper()
	js, ctx := newJetStream(t, nc), withTimeout(t)
	s, err := js.Stream(ctx, stream)
	if err != nil {
		t.Fatal(err)
	}
	create := func(cfg jetstream.ConsumerConfig) jetstream.Consumer {
		cfg.AckPolicy = jetstream.AckExplicitPolicy
		cfg.AckWait = time.Hour
		c, err := s.CreateConsumer(ctx, cfg)
		if err != nil {
			t.Fatalf("consumer %s > %s: %v", stream, cfg.Durable, err)
		}
		return c
	}
	ackOdd(t, create(jetstream.ConsumerConfig{Durable: "odd", MaxAckPending: 100}))
	if s.CachedInfo().Config.Retention == jetstream.WorkQueuePolicy {
		return
	}
	create(jetstream.ConsumerConfig{Durable: "fresh", Description: "nothing yet"})
	fetch(t, create(jetstream.ConsumerConfig{Durable: "pending"}), 10)
	// With its limit reached it can get nothing but what it has refused.
	naked := create(jetstream.ConsumerConfig{Durable: "naked", MaxDeliver: 5, MaxAckPending: 5})
	refused := fetch(t, naked, 5)
	for _, m := range refused {
		check(t, m.Nak())
	}
	again, err := naked.Fetch(len(refused), jetstream.FetchMaxWait(patience))
	check(t, err)
	for m := range again.Messages() {
		if meta, err := m.Metadata(); err != nil || meta.NumDelivered != 2 {
			t.Fatalf("refused message came again as %+v, %v", meta, err)
		}
	}
	check(t, again.Error())
	last, err := s.GetMsg(ctx, s.CachedInfo().State.LastSeq, jetstream.WithGetMsgSubject(">"))
	if err != nil {
		last, err = s.GetMsg(ctx, s.CachedInfo().State.FirstSeq)
	}
	check(t, err)
	ackAll(t, fetch(t, create(jetstream.ConsumerConfig{Durable: "filtered", FilterSubject: last.Subject}), 10))
	until := time.Now().Add(24 * time.Hour).UTC().Truncate(time.Second)
	create(jetstream.ConsumerConfig{Durable: "paused", PauseUntil: &until})
	ackOdd(t, create(jetstream.ConsumerConfig{InactiveThreshold: time.Hour}))
	_, err = s.CreatePushConsumer(ctx, jetstream.ConsumerConfig{
		Durable: "push", DeliverSubject: "deliver." + stream, AckPolicy: jetstream.AckExplicitPolicy,
	})
	check(t, err)
}

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// fetch takes up to n messages that are there. In a cluster a new consumer may
// not be known everywhere yet.
func fetch(t testing.TB, c jetstream.Consumer, n int) (msgs []jetstream.Msg) {
	t.Helper()
	Eventually(t, func() error {
		batch, err := c.FetchNoWait(n)
		check(t, err)
		for m := range batch.Messages() {
			msgs = append(msgs, m)
		}
		if err := batch.Error(); !errors.Is(err, nats.ErrNoResponders) || len(msgs) > 0 {
			check(t, err)
			return nil
		}
		return nats.ErrNoResponders
	})
	return msgs
}

func ackAll(t testing.TB, msgs []jetstream.Msg) {
	t.Helper()
	for _, m := range msgs {
		check(t, m.DoubleAck(withTimeout(t)))
	}
}

// ackOdd acknowledges the first two, and then every third of thirty.
func ackOdd(t testing.TB, c jetstream.Consumer) {
	t.Helper()
	var some []jetstream.Msg
	for i, m := range fetch(t, c, 30) {
		if i < 2 || i%3 == 2 {
			some = append(some, m)
		}
	}
	ackAll(t, some)
}

// FillKV creates a key-value bucket, with keys of several revisions up to a
// history of five, deleted and purged keys, and a value of 200 KB. It returns
// the bucket's name; its stream is "KV_" and the name.
func FillKV(t testing.TB, nc *nats.Conn, configure ...func(*jetstream.KeyValueConfig)) string {
	t.Helper()
	js, ctx := newJetStream(t, nc), withTimeout(t)
	cfg := jetstream.KeyValueConfig{Bucket: Name(t), History: 5, Description: "settings"}
	for _, f := range configure {
		f(&cfg)
	}
	kv, err := js.CreateKeyValue(ctx, cfg)
	check(t, err)
	for rev := range 7 {
		for key := range 20 {
			if key%7 >= rev {
				_, err := kv.PutString(ctx, fmt.Sprintf("app.%d.setting", key), fmt.Sprintf("value %d.%d", key, rev))
				check(t, err)
			}
		}
	}
	_, err = kv.Put(ctx, "large", bytes.Repeat([]byte("0123456789"), 20_000))
	check(t, err)
	_, err = kv.PutString(ctx, "empty", "")
	check(t, err)
	check(t, kv.Delete(ctx, "app.3.setting"))
	check(t, kv.Purge(ctx, "app.5.setting"))
	check(t, kv.Delete(ctx, "app.6.setting"))
	_, err = kv.PutString(ctx, "app.6.setting", "again")
	check(t, err)
	return cfg.Bucket
}

// FillObjects creates an object store with an empty, a small, a replaced and a
// deleted object, one of several chunks, and a link. It returns the bucket's
// name; its stream is "OBJ_" and the name.
func FillObjects(t testing.TB, nc *nats.Conn) string {
	t.Helper()
	js, ctx := newJetStream(t, nc), withTimeout(t)
	bucket := Name(t)
	obs, err := js.CreateObjectStore(ctx, jetstream.ObjectStoreConfig{Bucket: bucket, Description: "files"})
	check(t, err)
	big := make([]byte, 500_000)
	rnd := random(bucket)
	for i := range big {
		big[i] = byte(rnd.Uint32())
	}
	put := func(name string, data []byte) *jetstream.ObjectInfo {
		info, err := obs.Put(ctx, jetstream.ObjectMeta{
			Name: name, Description: "of a test", Metadata: map[string]string{"kind": "sample"},
			Headers: nats.Header{"Content-Type": []string{"application/octet-stream"}},
		}, bytes.NewReader(data))
		check(t, err)
		return info
	}
	put("empty", nil)
	put("dir/small file.txt", []byte("a few bytes"))
	put("replaced", []byte("first"))
	put("replaced", big[:200_000])
	put("deleted", []byte("soon gone"))
	check(t, obs.Delete(ctx, "deleted"))
	_, err = obs.AddLink(ctx, "link", put("big", big))
	check(t, err)
	return bucket
}
