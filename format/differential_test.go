package format

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/klauspost/compress/s2"
	"pgregory.net/rapid"
)

// checkAgainstServer compares what the inspector found with what the server's
// own reader makes of the same bytes.
func checkAgainstServer(t testing.TB, data []byte, f *found) {
	t.Helper()
	entries, err := serverRead(bytes.NewReader(data))
	if err != nil {
		t.Fatalf("accepted, but the server's reader says: %v", err)
	}
	head := 1 + len(f.Consumers)
	if len(entries) != head+len(f.Messages)+1 {
		t.Fatalf("%d messages and %d consumers, but the server's reader finds %d entries", len(f.Messages), len(f.Consumers), len(entries))
	}
	if s := entries[0]; s.Name != "state.json" || s.Header+s.Payload != f.StateJSON || s.Time != f.Time {
		t.Errorf("the server's reader has another state: %+v", s)
	}
	if end := entries[len(entries)-1]; end != (serverEntry{}) {
		t.Errorf("the server's reader ends with %+v", end)
	}
	for i, m := range f.Messages {
		want := entries[head+i]
		got := serverEntry{m.Subject, m.Time, m.Seq, m.Header, m.Payload}
		if got != want {
			t.Fatalf("message %d: (-server +ours)\n%s", i, cmp.Diff(want, got))
		}
	}
}

func TestServersWriterIsReadEqual(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		a := drawArchive(rt)
		options := []s2.WriterOption{s2.WriterConcurrency(1), s2.WriterBlockSize(rapid.SampledFrom([]int{4 << 10, 64 << 10, 1 << 20}).Draw(rt, "block size"))}
		if rapid.Bool().Draw(rt, "stored") {
			options = append(options, s2.WriterUncompressed())
		}
		data := serverWrite(t, a.entries(), options...)
		f, err := gather(bytes.NewReader(data))
		if err != nil {
			rt.Fatal(err)
		}
		if diff := cmp.Diff(a.messages, f.Messages); diff != "" {
			rt.Fatal(diff)
		}
		checkAgainstServer(t, data, f)
	})
}

func TestServersReaderReadsOurWriterEqual(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		a := drawArchive(rt)
		data := a.encode(rt)
		entries, err := serverRead(bytes.NewReader(data))
		if err != nil {
			rt.Fatal(err)
		}
		messages := entries[1+len(a.head.Consumers):]
		if len(messages) != len(a.messages)+1 {
			rt.Fatalf("%d messages, want %d", len(messages)-1, len(a.messages))
		}
		for i, m := range a.messages {
			if want := (serverEntry{m.Subject, m.Time, m.Seq, m.Header, m.Payload}); messages[i] != want {
				rt.Fatal(cmp.Diff(want, messages[i]))
			}
		}
		for i, c := range a.head.Consumers {
			config, _ := c.Config.MarshalJSON()
			state, _ := c.State.MarshalJSON()
			want := serverEntry{Name: "consumers/" + c.Name, Time: a.head.Time, Payload: fmt.Sprintf(`{"config":%s,"state":%s}`, config, state)}
			if diff := cmp.Diff(want, entries[1+i]); diff != "" {
				rt.Fatal(diff)
			}
		}
	})
}
