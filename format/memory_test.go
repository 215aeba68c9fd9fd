package format

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math"
	"runtime"
	"strings"
	"testing"

	"github.com/klauspost/compress/s2"
)

// allocated returns how many bytes f allocates.
func allocated(f func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

func TestDeclaredSizesAreNotAllocated(t *testing.T) {
	es := smallEntries()
	sum := string(chunk(nil)[4:8])
	for name, data := range map[string][]byte{
		"message of 128 MiB":    frame(appendNumbers(rawArchive(es[:3]...), 1, 0, 2, 0, maxMessage)),
		"state.json of 256 MiB": frame(append(appendNumbers([]byte(magic), 10, 0, 0, 0, maxJSON), "state.json{"...)),
		"consumer of 256 MiB":   frame(append(appendNumbers(rawArchive(es[:1]...), 11, 0, 0, maxJSON, 0), "consumers/C{"...)),
		"two billion consumers": frame(rawArchive(rawEntry{name: "state.json", payload: `{"consumer_count":2000000000}`})),
		"message of 2^63 bytes": frame(appendNumbers(rawArchive(es[:3]...), 1, 0, 2, 0, math.MaxInt64)),
		"stored chunk of 4 MiB": join([]byte(StreamIdentifier), []byte{1, 0, 0, 0x40}, chunk([]byte("x"))),
		"skippable of 16 MiB":   join([]byte(StreamIdentifier), []byte{0xfe, 0xff, 0xff, 0xff}, chunk([]byte("x"))),
	} {
		if n := allocated(func() { damage(t, data) }); n > 1<<20 {
			t.Errorf("%s: %d bytes allocated for an archive of %d", name, n, len(data))
		}
	}
	// A compressed chunk tells its size, of at most one block, before it decodes.
	data := join([]byte(StreamIdentifier), chunkOf(0x00, sum+"\x80\x80\x80\x02"))
	if n := allocated(func() { damage(t, data) }); n > 2*maxBlock+1<<20 {
		t.Errorf("chunk declaring 4 MiB: %d bytes allocated", n)
	}
}

// TestHeadIsBounded: consumers can decompress to any amount.
func TestHeadIsBounded(t *testing.T) {
	w := walker{seenMagic: true, offset: maxHead - 1000, head: &Head{State: State{ConsumerCount: 9}}}
	_, err := w.walk(appendNumbers(nil, 11, 0, 0, 0, 2000))
	if err == nil || !strings.Contains(err.Error(), "entry of 0 header and 2000 payload bytes") {
		t.Fatal(err)
	}
}

// uniform is an archive of n messages that differ in nothing that is counted.
func uniform(t testing.TB, n int) []byte {
	var buf bytes.Buffer
	w := NewWriter(&buf)
	if err := w.WriteHead(&Head{State: State{FirstSeq: 1, LastSeq: uint64(n), Messages: uint64(n)}}); err != nil {
		t.Fatal(err)
	}
	m := Message{Subject: []byte("orders.eu"), Payload: make([]byte, 300)}
	for i := range n {
		m.Seq, m.Time = uint64(i+1), stamp+int64(i)
		switch i % 4 {
		case 0:
			m.Header = nil
		case 1:
			m.Header = []byte("NATS/1.0\r\nNats-Msg-Id: 12345\r\n\r\n")
		case 2:
			m.Header = []byte("NATS/1.0\r\nNats-TTL: 1h30m\r\nA: b\r\n\r\n")
		case 3:
			m.Header = []byte("NATS/1.0\r\nNats-TTL: 1h30m\r\n\r\n")
		}
		if err := w.WriteMessage(&m); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return buf.Bytes()
}

func TestNothingIsAllocatedPerMessage(t *testing.T) {
	const few, many = 1_000, 10_000
	inspect := func(n int) float64 {
		a := uniform(t, n)
		var size int
		return testing.AllocsPerRun(5, func() {
			_, err := Inspect(context.Background(), bytes.NewReader(a), InspectOptions{
				OnMessage: func(m *Message) error { size += m.Size(); return nil },
				OnBlock:   func(b *Block) error { size += len(b.Raw); return nil },
			})
			if err != nil {
				t.Fatal(err)
			}
		})
	}
	if a, b := inspect(few), inspect(many); b-a > 100 {
		t.Errorf("Inspect: %v allocations for %d messages, %v for %d", a, few, b, many)
	}
	write := func(n int) float64 {
		m := Message{Subject: []byte("orders.eu"), Header: []byte("NATS/1.0\r\nNats-TTL: 3600\r\n\r\n"), Payload: make([]byte, 300)}
		return testing.AllocsPerRun(5, func() {
			w := NewWriter(io.Discard)
			w.WriteHead(&Head{State: State{FirstSeq: 1, LastSeq: uint64(n)}})
			for i := range n {
				m.Seq = uint64(i + 1)
				w.WriteMessage(&m)
			}
			if err := w.Close(); err != nil {
				t.Fatal(err)
			}
		})
	}
	if a, b := write(few), write(many); b-a > 100 {
		t.Errorf("Writer: %v allocations for %d messages, %v for %d", a, few, b, many)
	}
}

// TestMemoryIsFlat streams archives through an inspector and looks at the heap
// on the way.
func TestMemoryIsFlat(t *testing.T) {
	for name, c := range map[string]struct {
		messages int
		subject  string
	}{
		"300,000 subjects":             {300_000, "orders.%d"},
		"120,000 subjects, twice each": {240_000, "orders.%[2]d"},
		"100 subjects among 100,000":   {150_000, "%[3]s"},
		"one subject":                  {100_000, "orders.eu%.0[4]s"},
		"20,000 subjects of 2 KB":      {20_000, "orders.%d." + strings.Repeat("x", 2000)},
		"1,000 subjects of 60 KB":      {1_000, "orders.%d." + strings.Repeat("x", 60_000)},
	} {
		t.Run(name, func(t *testing.T) {
			var before, now runtime.MemStats
			runtime.GC()
			runtime.ReadMemStats(&before)
			i := NewInspector(InspectOptions{})
			raw := make([]byte, 0, 1<<20)
			sink := s2.NewWriter(i, s2.WriterConcurrency(1))
			raw = append(raw, rawArchive(rawEntry{name: "state.json", payload: fmt.Sprintf(`{"first_seq":1,"last_seq":%d,"num_subjects":123456789}`, c.messages)})...)
			var peak uint64
			for n := range c.messages {
				often := fmt.Sprint(n)
				if n%3 == 0 {
					often = fmt.Sprint("often.", n%100)
				}
				raw = rawEntry{name: strings.SplitN(fmt.Sprintf(c.subject, n, n/2, often, ""), "%!", 2)[0], seq: uint64(n + 1)}.append(raw)
				if len(raw) > 900_000 {
					sink.Write(raw)
					raw = raw[:0]
				}
				if n%(c.messages/8) == c.messages/8-1 {
					runtime.GC()
					runtime.ReadMemStats(&now)
					peak = max(peak, now.HeapAlloc-min(now.HeapAlloc, before.HeapAlloc))
				}
			}
			raw = rawEntry{}.append(raw)
			sink.Write(raw)
			if err := sink.Close(); err != nil {
				t.Fatal(err)
			}
			ins, err := i.Close()
			if err != nil {
				t.Fatal(err)
			}
			if peak > 32<<20 {
				t.Errorf("%d bytes of heap", peak)
			}
			t.Logf("%.1f MiB of heap; %d top subjects, exact %v", float64(peak)/(1<<20), len(ins.Figures.Subject.Top), ins.Figures.Subject.Exact)
			switch f := ins.Figures.Subject; {
			case f.Exact && f.Count > maxSubjects, !f.Exact && f.Count != 123456789, len(f.Top) > topSubjects:
				t.Errorf("%d subjects, exact %v, %d at the top", f.Count, f.Exact, len(f.Top))
			}
		})
	}
}

// TestFrequentSubjectsSurviveAFullTally counts far more subjects than the tally
// holds: those that stand out are still found, and none is counted too low.
func TestFrequentSubjectsSurviveAFullTally(t *testing.T) {
	var tally subjectTally
	want := map[string]uint64{}
	add := func(s string) {
		tally.add([]byte(s))
		want[s]++
	}
	for n := range 300_000 {
		add(fmt.Sprintf("rare.%d", n))
		if n%100 == 0 {
			for k := range 10 {
				add(fmt.Sprintf("often.%d", k))
			}
		}
	}
	got := tally.finish(&State{NumSubjects: 300_010})
	if got.Exact || got.Count != 300_010 {
		t.Errorf("exact %v, %d subjects", got.Exact, got.Count)
	}
	for k, top := range got.Top[:10] {
		if top.Subject != fmt.Sprintf("often.%d", k) {
			t.Errorf("subject %d from the top is %q", k, top.Subject)
		}
		if top.Messages < want[top.Subject] || top.Messages > want[top.Subject]+10 {
			t.Errorf("%q: %d messages, counted %d", top.Subject, want[top.Subject], top.Messages)
		}
	}
}

func TestHundredThousandSubjectsAreExact(t *testing.T) {
	var tally subjectTally
	for range 2 {
		for n := range maxSubjects {
			tally.add(fmt.Appendf(nil, "orders.%06d", n))
		}
	}
	got := tally.finish(&State{})
	if !got.Exact || got.Count != maxSubjects || len(got.Top) != topSubjects || got.Top[999] != (SubjectCount{"orders.000999", 2}) {
		t.Errorf("exact %v, %d subjects, %d at the top", got.Exact, got.Count, len(got.Top))
	}
	tally.add([]byte("one.more"))
	if got := tally.finish(&State{NumSubjects: 100_001}); got.Exact || got.Count != 100_001 {
		t.Errorf("with one more: exact %v, %d subjects", got.Exact, got.Count)
	}
}
