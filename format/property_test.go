package format

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/klauspost/compress/s2"
	"pgregory.net/rapid"
)

// archived is an archive as a test means it.
type archived struct {
	head     Head
	messages []foundMessage
}

func drawArchive(t *rapid.T) *archived {
	var a archived
	subjects := rapid.SliceOfN(rapid.StringMatching(`[a-zA-Z0-9_$<&-]{1,8}(\.[a-z*>é]{2,5}){0,3}`), 1, 6).Draw(t, "subjects")
	a.head.Time = rapid.Int64().Draw(t, "head time")
	first := rapid.Uint64Range(1, maxSeq-1_000_000_000).Draw(t, "first_seq")
	seq := first
	count := rapid.IntRange(0, 40).Draw(t, "messages")
	for range count {
		seq += rapid.SampledFrom([]uint64{0, 0, 0, 1, 7, 1_000_000}).Draw(t, "gap")
		m := foundMessage{
			Seq:     seq,
			Time:    stamp + rapid.Int64Range(-1e18, 1e18).Draw(t, "time"),
			Subject: rapid.SampledFrom(subjects).Draw(t, "subject"),
			Payload: string(rapid.SliceOfN(rapid.Byte(), 0, 200).Draw(t, "payload")),
		}
		ttl := rapid.SampledFrom([]string{"", "", "1", "1s", "2h30m", "1000000000", "never", "NEVER"}).Draw(t, "TTL")
		switch ttl {
		case "1", "1s":
			m.TTL = 1
		case "2h30m":
			m.TTL = 9000
		case "1000000000":
			m.TTL = 1_000_000_000
		case "never", "NEVER":
			m.TTL = -1
		}
		if ttl != "" {
			m.Header = "NATS/1.0\r\nA: b\r\nNats-TTL: " + ttl + "\r\n\r\n"
		} else if rapid.Bool().Draw(t, "headers") {
			m.Header = "NATS/1.0\r\nNats-Msg-Id:" + rapid.StringMatching(`[ -~]{0,20}`).Draw(t, "id") + "\r\n\r\n"
		}
		a.messages = append(a.messages, m)
		seq++
	}
	last := seq - 1 + rapid.SampledFrom([]uint64{0, 0, 1, 1000}).Draw(t, "trailing gap")
	extra := rapid.StringMatching(`[ -!#-\[\]-~]{0,20}`).Draw(t, "unknown field")
	a.head.StateJSON = fmt.Appendf(nil, `{"unknown":%q,"messages":%d,"first_seq":%d,"last_seq":%d,"bytes":18446744073,"n":9007199254740993}`, extra, count, first, last)
	if err := json.Unmarshal(a.head.StateJSON, &a.head.State); err != nil {
		t.Fatal(err)
	}
	for i := range rapid.IntRange(0, 4).Draw(t, "consumers") {
		c := Consumer{Name: fmt.Sprintf("%s-%d", rapid.StringMatching(`[a-zA-Z_-]{0,9}`).Draw(t, "consumer"), i)}
		c.Config, c.State = Object{}, Object{}
		c.Config.Set("name", c.Name)
		c.Config.Set("max", json.RawMessage("18446744073709551615"))
		if rapid.Bool().Draw(t, "durable") {
			c.Config.Set("durable_name", c.Name)
		}
		if rapid.Bool().Draw(t, "push") {
			c.Config.Set("deliver_subject", "d")
		}
		pending := map[uint64]any{}
		for range rapid.IntRange(0, 5).Draw(t, "pending") {
			pending[rapid.Uint64Range(first, last+1).Draw(t, "pending sequence")] = map[string]int64{"Sequence": 1, "Timestamp": stamp}
		}
		c.State.Set("pending", pending)
		c.State.Set("delivered", SequencePair{7, last})
		c.State.Set("ack_floor", SequencePair{3, first})
		a.head.Consumers = append(a.head.Consumers, c)
	}
	return &a
}

// entries is the archive as a server would write it.
func (a *archived) entries() []rawEntry {
	state, _ := ParseObject(a.head.StateJSON)
	state.Set("consumer_count", len(a.head.Consumers))
	raw, _ := state.MarshalJSON()
	es := []rawEntry{{name: "state.json", time: a.head.Time, payload: string(raw)}}
	for _, c := range a.head.Consumers {
		config, _ := c.Config.MarshalJSON()
		state, _ := c.State.MarshalJSON()
		es = append(es, rawEntry{name: "consumers/" + c.Name, time: a.head.Time, payload: fmt.Sprintf(`{"config":%s,"state":%s}`, config, state)})
	}
	for _, m := range a.messages {
		es = append(es, rawEntry{m.Subject, m.Time, m.Seq, m.Header, m.Payload})
	}
	return append(es, rawEntry{})
}

// encode is the archive as Writer writes it.
func (a *archived) encode(t rapid.TB) []byte {
	t.Helper()
	var buf bytes.Buffer
	w := NewWriter(&buf)
	err := w.WriteHead(&a.head)
	for _, m := range a.messages {
		if err == nil {
			err = w.WriteMessage(&Message{Seq: m.Seq, Time: m.Time, Subject: []byte(m.Subject), Header: []byte(m.Header), Payload: []byte(m.Payload)})
		}
	}
	if cerr := w.Close(); err != nil || cerr != nil {
		t.Fatal(err, cerr)
	}
	return buf.Bytes()
}

func TestWhatWasWrittenIsRead(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a := drawArchive(t)
		f, err := gather(bytes.NewReader(a.encode(t)))
		if err != nil {
			t.Fatal(err)
		}
		if diff := gocmp.Diff(a.messages, f.Messages); diff != "" {
			t.Fatal(diff)
		}
		var want, got map[string]json.RawMessage
		json.Unmarshal(a.head.StateJSON, &want)
		json.Unmarshal([]byte(f.StateJSON), &got)
		want["consumer_count"] = fmt.Append(nil, len(a.head.Consumers))
		if diff := gocmp.Diff(plain(want), plain(got)); diff != "" || f.Time != a.head.Time {
			t.Fatal(f.Time, diff)
		}
		if len(f.Consumers) != len(a.head.Consumers) {
			t.Fatalf("%d consumers", len(f.Consumers))
		}
		for i, c := range a.head.Consumers {
			config, _ := c.Config.MarshalJSON()
			state, _ := c.State.MarshalJSON()
			if want := c.Name + string(config) + string(state); f.Consumers[i] != want {
				t.Fatal(gocmp.Diff(want, f.Consumers[i]))
			}
		}
	})
}

// plain undoes the escapes that encoding/json puts into strings.
func plain(m map[string]json.RawMessage) map[string]string {
	out := map[string]string{}
	for k, v := range m {
		out[k] = string(v)
		var s string
		if json.Unmarshal(v, &s) == nil {
			out[k] = s
		}
	}
	return out
}

// naiveFigures works out an archive's figures the simple way.
func naiveFigures(a *archived) Figures {
	s := a.head.State
	f := Figures{FirstSeq: s.FirstSeq, LastSeq: s.LastSeq, Messages: uint64(len(a.messages))}
	subjects := map[string]uint64{}
	held := map[uint64]bool{}
	var expiries []time.Time
	for _, m := range a.messages {
		size := uint64(len(m.Header) + len(m.Payload))
		f.Bytes += size
		f.StoreBytes += size + uint64(len(m.Subject)) + 30
		if m.Header != "" {
			f.StoreBytes += 4
		}
		subjects[m.Subject]++
		held[m.Seq] = true
		if m.TTL < 0 {
			f.TTL.Never++
		}
		if m.TTL > 0 {
			expiries = append(expiries, time.Unix(0, m.Time).UTC().Add(time.Duration(m.TTL)*time.Second))
		}
		if f.Largest == nil || size > f.Largest.Bytes {
			f.Largest = &LargestMsg{m.Seq, m.Subject, size}
		}
	}
	if n := len(a.messages); n > 0 {
		f.FirstTime, f.LastTime = time.Unix(0, a.messages[0].Time).UTC(), time.Unix(0, a.messages[n-1].Time).UTC()
	}
	if f.TTL.Messages = uint64(len(expiries)); len(expiries) > 0 {
		f.TTL.FirstExpiry = slices.MinFunc(expiries, time.Time.Compare)
		f.TTL.LastExpiry = slices.MaxFunc(expiries, time.Time.Compare)
	}
	// A gap begins at each sequence that isn't held and whose predecessor is.
	f.Deleted = s.LastSeq + 1 - s.FirstSeq - f.Messages
	begins := []uint64{s.FirstSeq}
	for _, m := range a.messages {
		begins = append(begins, m.Seq+1)
	}
	for _, seq := range begins {
		if seq <= s.LastSeq && !held[seq] {
			f.Gaps++
		}
	}
	for s, n := range subjects {
		f.Subject.Top = append(f.Subject.Top, SubjectCount{s, n})
	}
	slices.SortFunc(f.Subject.Top, func(a, b SubjectCount) int {
		if a.Messages != b.Messages {
			return cmp.Compare(b.Messages, a.Messages)
		}
		return strings.Compare(a.Subject, b.Subject)
	})
	f.Subject.Count, f.Subject.Exact = uint64(len(subjects)), true
	for _, c := range a.head.Consumers {
		var pending map[string]any
		json.Unmarshal(c.State.Raw("pending"), &pending)
		f.Consumers = append(f.Consumers, ConsumerFigures{
			Name: c.Name, Durable: c.Config.Has("durable_name"), Push: c.Config.Has("deliver_subject"),
			Delivered: SequencePair{7, s.LastSeq}, AckFloor: SequencePair{3, s.FirstSeq}, Pending: uint64(len(pending)),
		})
	}
	return f
}

func TestFiguresAreWhatCountingFinds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a := drawArchive(t)
		f, err := gather(bytes.NewReader(a.encode(t)))
		if err != nil {
			t.Fatal(err)
		}
		if diff := gocmp.Diff(naiveFigures(a), f.Figures, gocmp.Comparer(func(a, b []SubjectCount) bool { return slices.Equal(a, b) })); diff != "" {
			t.Fatal(diff)
		}
	})
}

func TestRelayChangesTheHeadAlone(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a := drawArchive(t)
		raw := rawArchive(a.entries()...)
		var source []byte
		if rapid.Bool().Draw(t, "tiny blocks") {
			var pieces [][]byte
			for rest := raw; len(rest) > 0; {
				n := min(len(rest), rapid.IntRange(1, 300).Draw(t, "block"))
				pieces, rest = append(pieces, rest[:n]), rest[n:]
			}
			source = frame(pieces...)
		} else {
			source = frame(raw)
		}
		head := a.head
		head.Time++
		head.Consumers = drawArchive(t).head.Consumers
		for i := range head.Consumers {
			head.Consumers[i].State = Object{}
		}
		var out bytes.Buffer
		calls := 0
		relay := NewRelay(&out, func() (*Head, error) { calls++; return &head, nil })
		if _, err := Inspect(context.Background(), bytes.NewReader(source), InspectOptions{OnBlock: relay.Block}); err != nil {
			t.Fatal(err)
		}
		f, err := gather(bytes.NewReader(out.Bytes()))
		if err != nil {
			t.Fatal(err)
		}
		if diff := gocmp.Diff(a.messages, f.Messages); diff != "" || calls != 1 {
			t.Fatal(calls, diff)
		}
		want, err := gather(bytes.NewReader((&archived{head: head}).headOnly()))
		if err != nil {
			t.Fatal(err)
		}
		if diff := gocmp.Diff([]any{want.StateJSON, want.Time, want.Consumers}, []any{f.StateJSON, f.Time, f.Consumers}); diff != "" {
			t.Fatal(diff)
		}
	})
}

func (a *archived) headOnly() []byte {
	p, err := AppendHead(nil, &a.head)
	if err != nil {
		panic(err)
	}
	return frame(rawEntry{}.append(p))
}

// TestRelayPassesBlocksOnUntouched: but for the one where the head ends.
func TestRelayPassesBlocksOnUntouched(t *testing.T) {
	es := smallEntries()
	raw := rawArchive(es...)
	first := len(rawArchive(es[:2]...)) + 7
	second := raw[first+10:]
	sum := chunk(second)[4:8]
	stored, compressed := chunk(raw[first:first+10]), chunkOf(0x00, string(sum)+string(s2.Encode(nil, second)))
	source := join(frame(raw[:first]), stored, []byte(Padding), compressed)
	var out bytes.Buffer
	var head *Head
	relay := NewRelay(&out, func() (*Head, error) { return head, nil })
	_, err := Inspect(context.Background(), bytes.NewReader(source), InspectOptions{
		OnHead:  func(h *Head) error { head = h; return nil },
		OnBlock: relay.Block,
	})
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.HasSuffix(out.Bytes(), join(stored, compressed)) {
		t.Error("later blocks have changed")
	}
	if diff := gocmp.Diff(mustGather(t, frame(raw)).Messages, mustGather(t, out.Bytes()).Messages); diff != "" {
		t.Error(diff)
	}
}

func TestRelayReturnsErrors(t *testing.T) {
	a := frame(rawArchive(smallEntries()...))
	relay := NewRelay(nil, func() (*Head, error) { return nil, errCallback })
	if _, err := Inspect(context.Background(), bytes.NewReader(a), InspectOptions{OnBlock: relay.Block}); err != errCallback {
		t.Error(err)
	}
	relay = NewRelay(failingWriter{}, func() (*Head, error) { return &Head{}, nil })
	if _, err := Inspect(context.Background(), bytes.NewReader(a), InspectOptions{OnBlock: relay.Block}); err != errCallback {
		t.Error(err)
	}
}

type failingWriter struct{}

func (failingWriter) Write([]byte) (int, error) { return 0, errCallback }
