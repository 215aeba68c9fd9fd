package restore_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/jetkeep/jetkeep/format"
	"github.com/jetkeep/jetkeep/restore"
)

// stored is a message of the model store.
type stored struct {
	Subject, Header, Payload string
	Seq                      uint64
	Time, TTL                int64
}

// model is a store as a model: it refuses what isn't in order, and fails at the
// operation that it's told to.
type model struct {
	next     uint64
	messages []stored
	skipped  map[uint64]bool

	ops, failAt int // failAt counts from 1
	failed      string
}

var errModel = errors.New("the model store fails")

func (s *model) op(what string) error {
	s.ops++
	if s.ops == s.failAt {
		s.failed = what
		return errModel
	}
	return nil
}

func (s *model) StoreRawMsg(subject, hdr, msg []byte, seq uint64, ts, ttl int64) error {
	if err := s.op(fmt.Sprintf("failed to store message sequence %d", seq)); err != nil {
		return err
	}
	if seq != s.next {
		return fmt.Errorf("sequence %d after %d", seq, s.next-1)
	}
	s.next++
	s.messages = append(s.messages, stored{string(subject), string(hdr), string(msg), seq, ts, ttl})
	return nil
}

func (s *model) SkipMsgs(seq, n uint64) error {
	if err := s.op("skip"); err != nil {
		return err
	}
	if seq != s.next || n == 0 {
		return fmt.Errorf("%d sequences from %d skipped after %d", n, seq, s.next-1)
	}
	s.next += n
	if n <= 1000 {
		for i := range n {
			s.skipped[seq+i] = true
		}
	}
	return nil
}

// replayNow is when the archives of these tests are replayed.
var replayNow = time.Unix(1_800_000_000, 0)

// contents is what an archive is made from.
type contents struct {
	head     format.Head
	messages []stored
}

// over tells whether a message's TTL is over, by the rule of the design.
func (m *stored) over() bool {
	return m.TTL > 0 && replayNow.UnixNano() > m.Time+m.TTL*int64(time.Second)
}

func drawContents(t *rapid.T) contents {
	var c contents
	first := rapid.Uint64Range(1, 1<<40).Draw(t, "first_seq")
	seq := first
	for range rapid.IntRange(0, 25).Draw(t, "messages") {
		seq += rapid.SampledFrom([]uint64{0, 0, 0, 1, 5, 900, 1 << 33}).Draw(t, "gap")
		m := stored{
			Seq:     seq,
			Time:    replayNow.UnixNano() - rapid.Int64Range(-10, 20).Draw(t, "age")*int64(time.Second),
			Subject: rapid.StringMatching(`[a-z]{1,5}(\.[a-zé]{1,5}){0,3}`).Draw(t, "subject"),
			Payload: string(rapid.SliceOfN(rapid.Byte(), 0, 100).Draw(t, "payload")),
		}
		switch h := rapid.SampledFrom([]string{"", "A: b", "Nats-TTL: 5", "Nats-TTL: 10s", "Nats-TTL: never", "Nats-TTL: 1h"}).Draw(t, "header"); h {
		case "":
		default:
			m.Header = "NATS/1.0\r\n" + h + "\r\n\r\n"
			m.TTL = map[string]int64{"Nats-TTL: 5": 5, "Nats-TTL: 10s": 10, "Nats-TTL: never": -1, "Nats-TTL: 1h": 3600}[h]
		}
		c.messages = append(c.messages, m)
		seq++
	}
	last := seq - 1 + rapid.SampledFrom([]uint64{0, 0, 1, 700}).Draw(t, "trailing gap")
	c.head.State = format.State{FirstSeq: first, LastSeq: last, Messages: uint64(len(c.messages))}
	if first == 1 && last == 0 && rapid.Bool().Draw(t, "never used") {
		c.head.State.FirstSeq = 0
	}
	for i := range rapid.IntRange(0, 3).Draw(t, "consumers") {
		k := format.Consumer{Name: fmt.Sprint("c", i)}
		k.Config.Set("name", k.Name)
		k.Config.Set("extra", rapid.Int64().Draw(t, "extra"))
		k.State.Set("delivered", format.SequencePair{Consumer: 1, Stream: last})
		c.head.Consumers = append(c.head.Consumers, k)
	}
	return c
}

func (c *contents) encode(t rapid.TB) []byte {
	t.Helper()
	var buf bytes.Buffer
	w := format.NewWriter(&buf)
	err := w.WriteHead(&c.head)
	for _, m := range c.messages {
		if err == nil {
			err = w.WriteMessage(&format.Message{Seq: m.Seq, Time: m.Time, Subject: []byte(m.Subject), Header: []byte(m.Header), Payload: []byte(m.Payload)})
		}
	}
	if err == nil {
		err = w.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	return buf.Bytes()
}

// replay replays into a model that fails at an operation, 0 for none.
func (c *contents) replay(t rapid.TB, data []byte, failAt int, o restore.ReplayOptions) (*model, *restore.Replayed, error) {
	s := &model{next: c.head.State.FirstSeq, skipped: map[uint64]bool{}, failAt: failAt}
	o.Now = func() time.Time { return replayNow }
	res, err := restore.Replay(context.Background(), bytes.NewReader(data), s, o)
	return s, res, err
}

// replay(encode(x)) = x, but for what has expired, and every sequence up to the
// last is used up.
func TestReplayOfWhatWasEncoded(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		c := drawContents(t)
		var head *format.Head
		s, res, err := c.replay(t, c.encode(t), 0, restore.ReplayOptions{OnHead: func(h *format.Head) error { head = h; return nil }})
		if err != nil {
			t.Fatal(err)
		}
		want := slices.Clone(c.messages)
		want = slices.DeleteFunc(want, func(m stored) bool { return m.over() })
		if d := cmp.Diff(want, s.messages, cmp.Transformer("empty", func(m []stored) []stored { return append([]stored{}, m...) })); len(want)+len(s.messages) > 0 && d != "" {
			t.Fatal(d)
		}
		for _, m := range c.messages {
			if m.over() != s.skipped[m.Seq] {
				t.Fatalf("sequence %d: over %v, skipped %v", m.Seq, m.over(), s.skipped[m.Seq])
			}
		}
		if last := c.head.State.LastSeq; last > 0 && s.next != last+1 {
			t.Fatalf("the next sequence is %d after %d", s.next, last)
		}
		if res.Stored != uint64(len(want)) || res.Stored+res.Expired != uint64(len(c.messages)) {
			t.Fatalf("%+v of %d", res, len(c.messages))
		}
		for i, k := range head.Consumers {
			a, _ := json.Marshal([]format.Object{k.Config, k.State})
			b, _ := json.Marshal([]format.Object{c.head.Consumers[i].Config, c.head.Consumers[i].State})
			if k.Name != c.head.Consumers[i].Name || string(a) != string(b) {
				t.Fatalf("consumer %d: %s, %s", i, a, b)
			}
		}
		if len(head.Consumers) != len(c.head.Consumers) {
			t.Fatalf("%d consumers", len(head.Consumers))
		}
	})
}

// Every operation of the store fails once: its cause stays reachable, and the
// text says what failed.
func TestEveryOperationOfAStoreFails(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	rapid.Check(t, func(t *rapid.T) {
		c := drawContents(t)
		data := c.encode(t)
		s, _, _ := c.replay(t, data, 0, restore.ReplayOptions{})
		for n := 1; n <= s.ops; n++ {
			s, res, err := c.replay(t, data, n, restore.ReplayOptions{})
			if res != nil || !errors.Is(err, errModel) {
				t.Fatalf("operation %d of %d: %v, %+v", n, s.ops, err, res)
			}
			var store *restore.StoreError
			switch text := err.Error(); {
			case s.failed != "skip":
				if !errors.As(err, &store) || store.Seq != s.next || text != s.failed+": the model store fails" {
					t.Fatalf("%v", err)
				}
				seen["store"] = true
			case errors.As(err, &store):
				t.Fatalf("a skip fails as %v", err)
			case text == "failed to process gap: the model store fails":
				seen["gap"] = true
			case text == fmt.Sprintf("failed to process expired message sequence %d: the model store fails", s.next):
				seen["expired"] = true
			case text == "failed to process trailing gap: the model store fails":
				seen["trailing"] = true
			default:
				t.Fatal(text)
			}
			if int(s.ops) != n {
				t.Fatalf("operations go on after the failed one: %d, %d", s.ops, n)
			}
		}
	})
	if len(seen) != 4 {
		t.Errorf("failures seen: %v", seen)
	}
}

// What an edit or a head callback returns comes back; an edit's names its message.
func TestReplayCallbacksFail(t *testing.T) {
	t.Parallel()
	c := contents{head: format.Head{State: format.State{FirstSeq: 7, LastSeq: 7}}, messages: []stored{{Subject: "s", Seq: 7}}}
	mine := errors.New("mine")
	var store *restore.StoreError
	if _, _, err := c.replay(t, c.encode(t), 0, restore.ReplayOptions{Edit: func(*format.Message) error { return mine }}); !errors.Is(err, mine) || !errors.As(err, &store) || store.Seq != 7 {
		t.Error(err)
	}
	if _, _, err := c.replay(t, c.encode(t), 0, restore.ReplayOptions{OnHead: func(*format.Head) error { return mine }}); !errors.Is(err, mine) {
		t.Error(err)
	}
	s, _, err := c.replay(t, c.encode(t), 0, restore.ReplayOptions{Edit: func(m *format.Message) error { m.Subject = []byte("t"); return nil }})
	if err != nil || s.messages[0].Subject != "t" {
		t.Errorf("%v %+v", err, s.messages)
	}
}

// No prefix of an archive replays without an error.
func TestReplayOfACutArchive(t *testing.T) {
	t.Parallel()
	c := contents{head: format.Head{State: format.State{FirstSeq: 1, LastSeq: 9}}, messages: []stored{{Subject: "s", Seq: 1, Payload: strings.Repeat("x", 50)}, {Subject: "s", Seq: 5}}}
	data := c.encode(t)
	for n := range data {
		if _, _, err := c.replay(t, data[:n], 0, restore.ReplayOptions{}); !errors.Is(err, format.ErrTruncated) {
			t.Fatalf("cut at %d: %v", n, err)
		}
	}
}
