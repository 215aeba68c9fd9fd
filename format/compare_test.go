package format

import (
	"bytes"
	"context"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// archiveOf is a sound archive of the given messages, between 1 and 99.
func archiveOf(t rapid.TB, messages ...foundMessage) []byte {
	t.Helper()
	a := archived{messages: messages, head: Head{StateJSON: []byte(`{"messages":1,"bytes":9,"first_seq":1,"last_seq":99}`)}}
	a.head.State = State{FirstSeq: 1, LastSeq: 99}
	return a.encode(t)
}

func compare(t rapid.TB, a, b []byte, o CompareOptions) *Differences {
	t.Helper()
	d, err := Compare(context.Background(), bytes.NewReader(a), iotest.HalfReader(bytes.NewReader(b)), o)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func TestCompareSaysWhatDiffers(t *testing.T) {
	t.Parallel()
	const header, other = "NATS/1.0\r\nA: b\r\n\r\n", "NATS/1.0\r\nA: c\r\n\r\n"
	base := foundMessage{Seq: 5, Time: stamp, Subject: "s", Header: header, Payload: "p"}
	with := func(f func(*foundMessage)) foundMessage {
		m := base
		f(&m)
		return m
	}
	before, after := with(func(m *foundMessage) { m.Seq = 2 }), with(func(m *foundMessage) { m.Seq = 9 })
	type messages = []foundMessage
	for name, c := range map[string]struct {
		a, b messages
		want Differences
	}{
		"nothing":          {messages{base}, messages{base}, Differences{Compared: 1}},
		"both empty":       {nil, nil, Differences{}},
		"subject":          {messages{base}, messages{with(func(m *foundMessage) { m.Subject = "S" })}, Differences{Compared: 1, Changed: 1, First: []Difference{{5, "s", "subject"}}}},
		"time":             {messages{base}, messages{with(func(m *foundMessage) { m.Time++ })}, Differences{Compared: 1, Changed: 1, First: []Difference{{5, "s", "time"}}}},
		"header":           {messages{base}, messages{with(func(m *foundMessage) { m.Header = other })}, Differences{Compared: 1, Changed: 1, First: []Difference{{5, "s", "header"}}}},
		"payload":          {messages{base}, messages{with(func(m *foundMessage) { m.Payload = "" })}, Differences{Compared: 1, Changed: 1, First: []Difference{{5, "s", "payload"}}}},
		"first missing":    {messages{before, base, after}, messages{base, after}, Differences{Compared: 2, Missing: 1, First: []Difference{{2, "s", "missing"}}}},
		"middle missing":   {messages{before, base, after}, messages{before, after}, Differences{Compared: 2, Missing: 1, First: []Difference{{5, "s", "missing"}}}},
		"last missing":     {messages{before, base, after}, messages{before, base}, Differences{Compared: 2, Missing: 1, First: []Difference{{9, "s", "missing"}}}},
		"all missing":      {messages{before, base}, nil, Differences{Missing: 2, First: []Difference{{2, "s", "missing"}, {5, "s", "missing"}}}},
		"first extra":      {messages{base, after}, messages{before, base, after}, Differences{Compared: 2, Extra: 1, First: []Difference{{2, "s", "extra"}}}},
		"middle extra":     {messages{before, after}, messages{before, base, after}, Differences{Compared: 2, Extra: 1, First: []Difference{{5, "s", "extra"}}}},
		"last extra":       {messages{before}, messages{before, base}, Differences{Compared: 1, Extra: 1, First: []Difference{{5, "s", "extra"}}}},
		"all extra":        {nil, messages{before, base}, Differences{Extra: 2, First: []Difference{{2, "s", "extra"}, {5, "s", "extra"}}}},
		"another sequence": {messages{before}, messages{base}, Differences{Missing: 1, Extra: 1, First: []Difference{{2, "s", "missing"}, {5, "s", "extra"}}}},
	} {
		got := compare(t, archiveOf(t, c.a...), archiveOf(t, c.b...), CompareOptions{})
		if d := gocmp.Diff(&c.want, got); d != "" {
			t.Errorf("%s: %s", name, d)
		}
		if got.Total() != c.want.Changed+c.want.Missing+c.want.Extra || len(got.Texts()) != 1+len(got.First) {
			t.Errorf("%s: total %d, %q", name, got.Total(), got.Texts())
		}
	}
}

func TestCompareEditsThenAsksWhatMayBeGone(t *testing.T) {
	t.Parallel()
	a := archiveOf(t, foundMessage{Seq: 1, Subject: "old"}, foundMessage{Seq: 2, Subject: "old"}, foundMessage{Seq: 3, Subject: "old"})
	b := archiveOf(t, foundMessage{Seq: 2, Subject: "new"})
	var seen []uint64
	d := compare(t, a, b, CompareOptions{
		Edit:     func(m *Message) error { m.Subject = []byte("new"); return nil },
		Gone:     func(m *Message) bool { return string(m.Subject) == "new" && m.Seq == 1 },
		Progress: func(m *Message) { seen = append(seen, m.Seq) },
	})
	if d.Changed != 0 || d.Missing != 1 || d.First[0] != (Difference{3, "new", "missing"}) {
		t.Errorf("%+v", d)
	}
	if !slices.Equal(seen, []uint64{1, 2, 3}) {
		t.Errorf("progress: %v", seen)
	}
	failed := errors.New("failed")
	if _, err := Compare(t.Context(), bytes.NewReader(a), bytes.NewReader(b), CompareOptions{Edit: func(*Message) error { return failed }}); !errors.Is(err, failed) {
		t.Errorf("an error of Edit becomes %v", err)
	}
}

func TestCompareListsTheFirstFew(t *testing.T) {
	t.Parallel()
	var all []foundMessage
	for i := range 50 {
		all = append(all, foundMessage{Seq: uint64(i + 1), Subject: "s"})
	}
	d := compare(t, archiveOf(t, all...), archiveOf(t), CompareOptions{})
	if d.Missing != 50 || len(d.First) != firstDifferences {
		t.Errorf("%d missing, %d listed", d.Missing, len(d.First))
	}
}

// An archive that is damaged at any place, on either side, is never a mere
// difference, and never equal.
func TestCompareFindsDamageOnEitherSide(t *testing.T) {
	t.Parallel()
	sound := archiveOf(t, foundMessage{Seq: 1, Subject: "a"}, foundMessage{Seq: 2, Subject: "b", Payload: "x"}, foundMessage{Seq: 7, Subject: "c"})
	run := func(a, b []byte) error {
		_, err := Compare(t.Context(), bytes.NewReader(a), bytes.NewReader(b), CompareOptions{})
		return err
	}
	for n := range len(sound) {
		for _, err := range []error{run(sound[:n], sound), run(sound, sound[:n])} {
			if !errors.Is(err, ErrTruncated) {
				t.Fatalf("cut at %d of %d: %v", n, len(sound), err)
			}
		}
		flipped := bytes.Clone(sound)
		flipped[n] ^= 0x10
		if damage(t, flipped) == nil {
			continue // skippable
		}
		var d *DamageError
		if err := run(flipped, sound); !errors.As(err, &d) || strings.Contains(err.Error(), "second") {
			t.Fatalf("first one flipped at %d: %v", n, err)
		}
		if err := run(sound, flipped); !errors.As(err, &d) || !strings.Contains(err.Error(), "the second archive: ") {
			t.Fatalf("second one flipped at %d: %v", n, err)
		}
	}
	// Damage that shows before a difference, and behind all that is compared.
	if err := run(archiveOf(t), append(bytes.Clone(sound), "garbage"...)); !errors.Is(err, ErrCorrupt) {
		t.Errorf("garbage behind the end: %v", err)
	}
}

// blocking gives what it has, and then nothing until it's closed.
type blocking struct {
	io.Reader
	closed chan struct{}
}

func (b *blocking) Read(p []byte) (int, error) {
	if n, _ := b.Reader.Read(p); n > 0 {
		return n, nil
	}
	<-b.closed
	return 0, io.ErrClosedPipe
}

func TestCompareEndsWithItsContext(t *testing.T) {
	t.Parallel()
	var all []foundMessage
	for i := range 99 {
		all = append(all, foundMessage{Seq: uint64(i + 1), Subject: "s"})
	}
	data := archiveOf(t, all...)
	stalled := &blocking{bytes.NewReader(data[:len(data)/2]), make(chan struct{})}
	defer close(stalled.closed)
	ctx, cancel := context.WithCancelCause(t.Context())
	mine := errors.New("mine")
	time.AfterFunc(50*time.Millisecond, func() { cancel(mine) })
	if _, err := Compare(ctx, bytes.NewReader(data), stalled, CompareOptions{}); !errors.Is(err, mine) {
		t.Error(err)
	}
}

// Compare finds what a comparison of maps finds.
func TestCompareAgreesWithMaps(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		a := drawArchive(t)
		b := &archived{head: a.head}
		want := Differences{}
		for _, m := range a.messages {
			n := m
			switch rapid.SampledFrom([]string{"same", "same", "gone", "payload", "subject", "time"}).Draw(t, "fate") {
			case "same":
			case "gone":
				want.Missing++
				continue
			case "payload":
				n.Payload += "x"
				want.Changed++
			case "subject":
				n.Subject += "x"
				want.Changed++
			case "time":
				n.Time++
				want.Changed++
			}
			want.Compared++
			b.messages = append(b.messages, n)
		}
		x, y := a.encode(t), b.encode(t)
		got := compare(t, x, y, CompareOptions{})
		got.First = nil
		if d := gocmp.Diff(&want, got); d != "" {
			t.Fatal(d)
		}
		// The other way round, what is missing is extra.
		want.Missing, want.Extra = want.Extra, want.Missing
		got = compare(t, y, x, CompareOptions{})
		got.First = nil
		if d := gocmp.Diff(&want, got); d != "" {
			t.Fatal(d)
		}
	})
}
