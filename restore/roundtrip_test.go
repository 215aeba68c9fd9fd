package restore_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/jetkeep/jetkeep/internal/testnats"
	"github.com/jetkeep/jetkeep/restore"
)

// Every kind of stream comes back as it was: messages with exact headers,
// sequences and times, consumers with their state, the configuration; and the
// next message gets the next sequence.
func TestRoundTrips(t *testing.T) {
	t.Parallel()
	s := testnats.Single(t)
	configured := func(f func(*jetstream.StreamConfig)) func(testing.TB, *nats.Conn) string {
		return func(t testing.TB, nc *nats.Conn) string {
			return testnats.Fill(t, nc, testnats.FillOptions{Messages: 150, Configure: f, Consumers: true})
		}
	}
	for name, setUp := range map[string]func(testing.TB, *nats.Conn) string{
		"file":       configured(nil),
		"memory":     configured(func(c *jetstream.StreamConfig) { c.Storage = jetstream.MemoryStorage }),
		"compressed": configured(func(c *jetstream.StreamConfig) { c.Compression = jetstream.S2Compression }),
		"no ack":     configured(func(c *jetstream.StreamConfig) { c.NoAck = false; c.DenyPurge = true; c.AllowRollup = false }),
		"consumer limits": configured(func(c *jetstream.StreamConfig) {
			c.MaxConsumers = 8
			c.ConsumerLimits = jetstream.StreamConsumerLimits{InactiveThreshold: 2 * time.Hour, MaxAckPending: 2000}
		}),
		"limits that don't bite": configured(func(c *jetstream.StreamConfig) {
			c.MaxAge, c.MaxMsgs, c.MaxBytes, c.MaxMsgsPerSubject, c.MaxMsgSize = time.Hour, 1000, 1<<20, 100, 1000
		}),
		"discard new": configured(func(c *jetstream.StreamConfig) {
			c.Discard, c.DiscardNewPerSubject, c.MaxMsgsPerSubject = jetstream.DiscardNew, true, 30
		}),
		"own TTLs": func(t testing.TB, nc *nats.Conn) string {
			return testnats.Fill(t, nc, testnats.FillOptions{Messages: 150, TTL: time.Hour, Consumers: true})
		},
		"work queue": func(t testing.TB, nc *nats.Conn) string {
			return testnats.Fill(t, nc, testnats.FillOptions{Messages: 100, Consumers: true, Configure: func(c *jetstream.StreamConfig) {
				c.Retention = jetstream.WorkQueuePolicy
			}})
		},
		"interest": func(t testing.TB, nc *nats.Conn) string {
			name := testnats.Name(t)
			stream := create(t, nc, jetstream.StreamConfig{Name: name, Retention: jetstream.InterestPolicy})
			for _, c := range []string{"one", "two"} {
				must(newJetStream(t, nc).CreateConsumer(ctx(t), stream, jetstream.ConsumerConfig{Durable: c, AckPolicy: jetstream.AckExplicitPolicy, AckWait: time.Hour}))(t)
			}
			testnats.Fill(t, nc, testnats.FillOptions{Stream: name, Messages: 60, NoDeletes: true})
			ackEvery(t, nc, stream, "one", 30, 2)
			ackEvery(t, nc, stream, "two", 40, 3)
			return stream
		},
		"named like its subject": func(t testing.TB, nc *nats.Conn) string {
			name := testnats.Name(t)
			create(t, nc, jetstream.StreamConfig{Name: name, Subjects: []string{name}})
			publish(t, nc, name, "x")
			return name
		},
		"exact max_bytes": func(t testing.TB, nc *nats.Conn) string {
			stream := testnats.Fill(t, nc, testnats.FillOptions{Messages: 100, NoDeletes: true})
			info := must(client(t, nc).StreamInfo(ctx(t), stream))(t)
			update(t, nc, stream, map[string]any{"max_bytes": info.State.Bytes, "max_msgs": info.State.Messages})
			return stream
		},
		"sealed":            closed(map[string]any{"sealed": true}),
		"sealed by memory":  closed(map[string]any{"sealed": true}, func(c *jetstream.StreamConfig) { c.Storage = jetstream.MemoryStorage }),
		"deny":              closed(map[string]any{"deny_delete": true, "deny_purge": true}),
		"not acknowledging": closed(map[string]any{"no_ack": true}),
		"schedules and TTL": configured(func(c *jetstream.StreamConfig) {
			c.AllowMsgSchedules, c.AllowMsgTTL, c.SubjectDeleteMarkerTTL, c.AllowRollup = true, true, time.Hour, true
		}),
		"batches": configured(func(c *jetstream.StreamConfig) { c.AllowAtomicPublish = true; c.MirrorDirect = false }),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			nc := s.Connect(t)
			stream := setUp(t, nc)
			plan, res := again(t, nc, stream)
			if plan.Rewrite {
				t.Error("the archive was encoded anew")
			}
			if res.Sent < plan.Source.Bytes/2 {
				t.Errorf("%d bytes sent", res.Sent)
			}
			cfg := testnats.StreamConfig(t, nc, stream)
			subject, _ := cfg["subjects"].([]any)[0].(string)
			if len(subject) > 2 && subject[len(subject)-1] == '>' {
				subject = subject[:len(subject)-1] + "next"
			}
			if cfg["sealed"] == true || cfg["no_ack"] == true || cfg["max_bytes"] != -1. {
				return
			}
			if seq := publish(t, nc, subject, "next"); seq != plan.Expected.LastSeq+1 {
				t.Errorf("the next message gets %d after %d", seq, plan.Expected.LastSeq)
			}
		})
	}
}

// closed fills a stream and then updates it.
func closed(fields map[string]any, f ...func(*jetstream.StreamConfig)) func(testing.TB, *nats.Conn) string {
	return func(t testing.TB, nc *nats.Conn) string {
		o := testnats.FillOptions{Messages: 60, Consumers: true}
		if len(f) > 0 {
			o.Configure = f[0]
		}
		stream := testnats.Fill(t, nc, o)
		update(t, nc, stream, fields)
		return stream
	}
}

// ackEvery fetches n messages and acknowledges every so-many-th.
func ackEvery(t testing.TB, nc *nats.Conn, stream, consumer string, n, every int) {
	t.Helper()
	c := must(newJetStream(t, nc).Consumer(ctx(t), stream, consumer))(t)
	batch := must(c.FetchNoWait(n))(t)
	i := 0
	for m := range batch.Messages() {
		if i%every == 0 {
			check(t, m.DoubleAck(ctx(t)))
		}
		i++
	}
	check(t, batch.Error())
}

func TestRoundTripOnAnEncryptedServer(t *testing.T) {
	t.Parallel()
	s := testnats.Single(t, testnats.Options{EncryptionKey: "secret", Cipher: "aes"})
	nc := s.Connect(t)
	stream := testnats.Fill(t, nc, testnats.FillOptions{Messages: 200, Consumers: true})
	again(t, nc, stream)
	before := look(t, nc, stream)
	s.Restart(t)
	same(t, "after a restart", before, look(t, s.Connect(t), stream))
}

// C1: whatever was there or never was, no sequence is used twice.
func TestNextSequence(t *testing.T) {
	t.Parallel()
	s := testnats.Single(t)
	for name, c := range map[string]struct {
		first     uint64
		published int
		purge     bool
		next      uint64
	}{
		"never used":         {0, 0, false, 1},
		"begins at 1000":     {1000, 0, false, 1000},
		"all purged":         {0, 100, true, 101},
		"from 1000, purged":  {1000, 10, true, 1010},
		"from 1000, used":    {1000, 10, false, 1010},
		"one message":        {0, 1, false, 2},
		"one message purged": {0, 1, true, 2},
	} {
		for _, storage := range []jetstream.StorageType{jetstream.FileStorage, jetstream.MemoryStorage} {
			t.Run(fmt.Sprint(name, " ", storage), func(t *testing.T) {
				t.Parallel()
				nc := s.Connect(t)
				stream := create(t, nc, jetstream.StreamConfig{FirstSeq: c.first, Storage: storage})
				for range c.published {
					publish(t, nc, stream+".a", "x")
				}
				if c.purge {
					check(t, must(newJetStream(t, nc).Stream(ctx(t), stream))(t).Purge(ctx(t)))
				}
				cfg := testnats.StreamConfig(t, nc, stream)
				b := take(t, nc, stream)
				remove(t, nc, stream)
				mustRun(t, nc, b, restore.Options{FullCheck: true})
				same(t, "configuration", cfg, testnats.StreamConfig(t, nc, stream))
				if seq := publish(t, nc, stream+".a", "next"); seq != c.next {
					t.Errorf("the next message gets %d instead of %d", seq, c.next)
				}
			})
		}
	}
}

// C2, in small: almost all is deleted, the end as well.
func TestManyDeletes(t *testing.T) {
	t.Parallel()
	nc := testnats.Single(t).Connect(t)
	stream := create(t, nc, jetstream.StreamConfig{})
	js := newJetStream(t, nc)
	for range 5000 {
		must(js.PublishAsync(stream+".a", nil, jetstream.WithStallWait(time.Minute)))(t)
	}
	<-js.PublishAsyncComplete()
	st := must(js.Stream(ctx(t), stream))(t)
	for seq := uint64(1); seq <= 5000; seq++ {
		if seq%500 != 7 || seq > 4500 {
			check(t, st.DeleteMsg(ctx(t), seq))
		}
	}
	before := must(client(t, nc).StreamInfo(ctx(t), stream))(t).State
	again(t, nc, stream)
	after := must(client(t, nc).StreamInfo(ctx(t), stream))(t).State
	if before.NumDeleted != after.NumDeleted || after.NumDeleted == 0 || before.FirstSeq != after.FirstSeq || after.LastSeq != 5000 {
		t.Errorf("before %+v\nafter  %+v", before, after)
	}
}

// The third trigger of facts.md: a first_seq that was raised by an update stands
// above the messages.
func TestFirstSeqRaisedByAnUpdate(t *testing.T) {
	t.Parallel()
	nc := testnats.Single(t).Connect(t)
	stream := raisedFirstSeq(t, nc)
	plan, _ := again(t, nc, stream)
	if seq := publish(t, nc, stream+".a", "next"); seq != plan.Expected.LastSeq+1 {
		t.Errorf("the next message gets %d", seq)
	}
}

// raisedFirstSeq is a stream with messages below its configured first_seq.
func raisedFirstSeq(t testing.TB, nc *nats.Conn) string {
	t.Helper()
	stream := create(t, nc, jetstream.StreamConfig{})
	for range 10 {
		publish(t, nc, stream+".a", "x")
	}
	update(t, nc, stream, map[string]any{"first_seq": 1000})
	return stream
}
