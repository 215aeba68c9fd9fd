package format

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"
	"github.com/klauspost/compress/s2"
)

// smallArchives are the same small archive in different S2 clothes.
func smallArchives(t testing.TB) map[string][]byte {
	es := smallEntries()
	raw := rawArchive(es...)
	var pieces [][]byte // an entry each
	for i := range es {
		pieces = append(pieces, raw[len(rawArchive(es[:i]...)):len(rawArchive(es[:i+1]...))])
	}
	pieces[0] = append([]byte(magic), pieces[0]...)
	var flushed bytes.Buffer
	enc := s2.NewWriter(&flushed, s2.WriterConcurrency(1))
	for _, p := range pieces {
		enc.Write(p)
		enc.Flush()
	}
	enc.Close()
	return map[string][]byte{
		"one compressed chunk":          serverWrite(t, es),
		"a stored chunk for each entry": frame(pieces...),
		"a chunk for each entry":        flushed.Bytes(),
	}
}

func TestEveryCutIsRefused(t *testing.T) {
	for name, a := range smallArchives(t) {
		t.Run(name, func(t *testing.T) {
			if d := damage(t, a); d != nil {
				t.Fatal(d)
			}
			for n := range a {
				d := damage(t, a[:n])
				if d == nil {
					t.Fatalf("accepted when cut after %d of %d bytes", n, len(a))
				}
				if !errors.Is(d, ErrTruncated) {
					t.Errorf("cut after %d of %d bytes: %v", n, len(a), d)
				}
			}
		})
	}
}

// A flip that makes a compressed chunk copy the same bytes from another place
// changes nothing, and only the archive's own digest tells.
func TestEveryFlippedBitIsRefusedOrChangesNothing(t *testing.T) {
	for name, a := range smallArchives(t) {
		t.Run(name, func(t *testing.T) {
			want := mustGather(t, a)
			for bit := range len(a) * 8 {
				b := bytes.Clone(a)
				b[bit/8] ^= 1 << (bit % 8)
				if damage(t, b) != nil {
					continue
				}
				if diff := cmp.Diff(want, mustGather(t, b)); diff != "" {
					t.Errorf("accepted with bit %d of byte %d of %d flipped:\n%s", bit%8, bit/8, len(a), diff)
				}
			}
		})
	}
}

// splits frames raw in two chunks, at every place, and in chunks of a byte.
func splits(raw []byte, yield func(name string, archive []byte)) {
	var bytewise [][]byte
	for i := range raw {
		yield(fmt.Sprintf("split at %d", i), frame(raw[:i], raw[i:]))
		bytewise = append(bytewise, raw[i:i+1])
	}
	yield("a byte a chunk", frame(bytewise...))
}

func TestBlocksMayEndAnywhere(t *testing.T) {
	raw := rawArchive(smallEntries()...)
	want := mustGather(t, frame(raw))
	if want.Figures.Messages != 3 {
		t.Fatalf("%+v", want.Figures)
	}
	splits(raw, func(name string, archive []byte) {
		if diff := cmp.Diff(want, mustGather(t, archive)); diff != "" {
			t.Errorf("%s:\n%s", name, diff)
		}
	})
}

func TestDamageIsTheSameWhereverBlocksEnd(t *testing.T) {
	for i, change := range []func(*rawEntry){
		0: func(e *rawEntry) { e.payload = "{" },
		1: func(e *rawEntry) { e.name = "consumers/a.b" },
		2: func(e *rawEntry) { e.header = "x" },
		3: func(e *rawEntry) { e.name = "a b" },
		4: func(e *rawEntry) { e.seq = 2 },
		5: func(e *rawEntry) { e.time = 1 },
	} {
		es := smallEntries()
		change(&es[i])
		raw := rawArchive(es...)
		want := damage(t, frame(raw))
		splits(raw, func(name string, archive []byte) {
			got := damage(t, archive)
			if got == nil {
				t.Fatalf("entry %d, %s: accepted", i, name)
			}
			got.Offset = want.Offset
			if *got != *want {
				t.Errorf("entry %d, %s: got %v, want %v", i, name, got, want)
			}
		})
	}
}

func TestWritesMayEndAnywhere(t *testing.T) {
	for name, a := range smallArchives(t) {
		want := mustGather(t, a)
		for _, r := range []io.Reader{
			iotest.OneByteReader(bytes.NewReader(a)),
			iotest.HalfReader(bytes.NewReader(a)),
			iotest.DataErrReader(bytes.NewReader(a)),
		} {
			got, err := gather(r)
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("%s:\n%s", name, diff)
			}
		}
	}
}
