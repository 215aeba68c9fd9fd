package format

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/klauspost/compress/s2"
	"github.com/nats-io/nats-server/v2/server"
)

// FuzzInspect: whatever the bytes, no panic; and what is accepted, the server's
// reader reads equal, and a Writer can write again.
func FuzzInspect(f *testing.F) {
	for _, a := range smallArchives(f) {
		f.Add(a, false)
		f.Add(a, true)
		f.Add(a[:len(a)-1], false)
		f.Add(join(a, []byte(Padding)), true)
	}
	f.Fuzz(func(t *testing.T, data []byte, repair bool) {
		if repair {
			data = repaired(data)
		}
		got, err := gather(bytes.NewReader(data))
		if err == nil {
			checkAccepted(t, data, got)
			return
		}
		var d *DamageError
		if !errors.As(err, &d) || d.Offset < 0 || d.Offset > int64(len(data)) {
			t.Fatalf("%#v", err)
		}
	})
}

// repaired makes the checksums right wherever there is something to sum up:
// without that hardly any change would get past them.
func repaired(data []byte) []byte {
	data = bytes.Clone(data)
	for at := 0; at+chunkHeader+chunkSum <= len(data); {
		end := at + chunkHeader + (int(data[at+1]) | int(data[at+2])<<8 | int(data[at+3])<<16)
		if end > len(data) || end < at+chunkHeader+chunkSum && data[at] <= chunkUncompressed {
			break
		}
		if body := data[min(at+chunkHeader+chunkSum, end):end]; data[at] == chunkUncompressed {
			copy(data[at+4:], chunk(body)[4:8])
		} else if n, err := s2.DecodedLen(body); data[at] == chunkCompressed && err == nil && n <= maxBlock {
			if plain, err := s2.Decode(nil, body); err == nil {
				copy(data[at+4:], chunk(plain)[4:8])
			}
		}
		at = end
	}
	return data
}

// checkAccepted holds what was accepted against the server's reader, and
// against what comes of writing it again.
func checkAccepted(t *testing.T, data []byte, got *found) {
	t.Helper()
	checkAgainstServer(t, data, got)
	var buf bytes.Buffer
	w := NewWriter(&buf)
	_, err := Inspect(t.Context(), bytes.NewReader(data), InspectOptions{OnHead: w.WriteHead, OnMessage: w.WriteMessage})
	if err := errors.Join(err, w.Close()); err != nil {
		t.Fatal(err)
	}
	again := mustGather(t, buf.Bytes())
	if diff := cmp.Diff(got.Messages, again.Messages); diff != "" {
		t.Fatal(diff)
	}
	if diff := cmp.Diff(got.Figures, again.Figures); diff != "" {
		t.Fatal(diff)
	}
}

// FuzzWalk: an archive means the same wherever its blocks end.
func FuzzWalk(f *testing.F) {
	es := smallEntries()
	raw := rawArchive(es...)
	f.Add(raw, []byte{10, 0, 1, 1, 200})
	f.Add(raw, bytes.Repeat([]byte{1}, len(raw)))
	f.Add(rawArchive(es[:4]...), []byte{80, 80, 80})
	f.Add(rawArchive(rawEntry{name: "state.json", payload: "{}"}, rawEntry{}), []byte{3})
	f.Fuzz(func(t *testing.T, raw, sizes []byte) {
		if len(raw) > 1<<20 {
			return
		}
		var pieces [][]byte
		rest := raw
		for _, n := range sizes {
			at := min(int(n), len(rest))
			pieces, rest = append(pieces, rest[:at]), rest[at:]
		}
		want, werr := gather(bytes.NewReader(frame(raw)))
		// An empty block behind the end marker would be damage of its own.
		if len(rest) > 0 {
			pieces = append(pieces, rest)
		}
		for len(pieces) > 0 && len(pieces[len(pieces)-1]) == 0 {
			pieces = pieces[:len(pieces)-1]
		}
		got, gerr := gather(bytes.NewReader(frame(pieces...)))
		var wd, gd *DamageError
		if errors.As(werr, &wd) != errors.As(gerr, &gd) {
			t.Fatalf("whole: %v; in pieces: %v", werr, gerr)
		}
		if wd != nil {
			gd.Offset = wd.Offset
			if *gd != *wd {
				t.Fatalf("whole: %v; in pieces: %v", wd, gd)
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatal(diff)
		}
		if werr == nil {
			checkAccepted(t, frame(raw), want)
		}
	})
}

func FuzzCheckSubject(f *testing.F) {
	for _, s := range []string{"", "a", "a.b", ".", "a.", ".a", "*", "a.*", "a*b", ">", "a.>", ">.a", "a>", " ", "a b", "a.\t", "\f", "\x00", "é.ü", "a..b"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		want := server.IsValidPublishSubject(s) && len(s) <= 65535
		if err := CheckSubject([]byte(s)); (err == nil) != want {
			t.Errorf("%q: %v; the server says %v", s, err, want)
		}
	})
}

func TestSubjectsAreBoundedByTheStore(t *testing.T) {
	if err := CheckSubject([]byte(strings.Repeat("s", 65535))); err != nil {
		t.Error(err)
	}
	if err := CheckSubject([]byte(strings.Repeat("s", 65536))); err == nil {
		t.Error("65,536 bytes are accepted")
	}
}

// serverHeaderValue looks a header up as nats-server 2.15.3 does: at a line's
// beginning and followed by a colon. Where the key comes again at once behind a
// place that wasn't it, the server gives up.
func serverHeaderValue(header, key string) (string, bool) {
	at := 0
	for {
		i := strings.Index(header[at:], key)
		if i < 2 {
			return "", false
		}
		at += i
		before, after := header[:at], header[at+len(key):]
		at += len(key)
		if strings.HasSuffix(before, "\r\n") && strings.HasPrefix(after, ":") {
			v, _, _ := strings.Cut(after[1:], "\r\n")
			return strings.TrimLeft(v, " "), true
		}
	}
}

func FuzzHeaderValue(f *testing.F) {
	for _, h := range []string{
		"", "NATS/1.0\r\n\r\n", "NATS/1.0\r\nA: b\r\n\r\n", "NATS/1.0\r\nA:b\r\nA: c\r\n\r\n", "NATS/1.0\r\na: A: A:\r\nA:   \r\n\r\n",
		"NATS/1.0\r\nX: AA\r\nA: v\r\n\r\n", "NATS/1.0\r\nA", "NATS/1.0\r\nA:", "NATS/1.0\r\nA: unended", "A: b\r\n\r\n", "\r\nA: b\r\r\n\r\n", "NATS/1.0\r\nA : b\r\n\r\n",
	} {
		f.Add(h, "A")
	}
	f.Add("NATS/1.0\r\nX: Nats-TTLNats-TTL\r\nNats-TTL: 5\r\n\r\n", "Nats-TTL")
	f.Fuzz(func(t *testing.T, header, key string) {
		if key == "" {
			return
		}
		want, found := serverHeaderValue(header, key)
		got := HeaderValue([]byte(header), key)
		if string(got) != want || !found && got != nil {
			t.Errorf("%q in %q: %q, want %q", key, header, got, want)
		}
	})
}

// serverTTL reads a TTL as nats-server 2.15.3 does (ADR-43): "never", a Go
// duration of at least a second, or whole seconds; digits too many wrap around.
func serverTTL(s string) (ttl int64, ok bool) {
	switch d, err := time.ParseDuration(s); {
	case s == "":
		return 0, true
	case strings.ToLower(s) == "never":
		return -1, true
	case err == nil:
		return int64(d.Seconds()), d >= time.Second
	}
	for _, c := range []byte(s) {
		if c < '0' || c > '9' {
			return 0, false
		}
		ttl = ttl*10 + int64(c-'0')
	}
	return ttl, ttl >= 0
}

func FuzzMessageTTL(f *testing.F) {
	for _, s := range ttlValues {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if strings.Contains(s, "\r\n") {
			return
		}
		want, ok := serverTTL(strings.TrimLeft(s, " "))
		got, err := MessageTTL([]byte("NATS/1.0\r\nA: b\r\nNats-TTL: " + s + "\r\n\r\n"))
		if (err == nil) != ok || ok && got != want {
			t.Errorf("%q: %d, %v; the server says %d, %v", s, got, err, want, ok)
		}
	})
}

// ttlValues are held against a server's own reading in
// TestTTLsAreReadAsTheServerDoes.
var ttlValues = []string{
	"", "1", "0", "00", "01", "+1", "-1", "1s", "0s", "-1s", "999ms", "1000ms", "1.9s", "1h2m3s", "never", "NEVER", "nevër", "Never ", " 5", "5 ", "\t5",
	"1d", "s", "1e3", "0x10", "9223372036", "9223372036854775807", "9223372036854775808", "18446744073709551617", "99999999999999999999", "2562047h47m16.854775807s", "2562048h",
}

func FuzzObject(f *testing.F) {
	for _, s := range []string{"{}", "null", "[]", `{"a":1}`, `{"a":null,"b":{"c":[1,2.50,"\u003e<"]}}`, `{"n":18446744073709551615}`, `{"a":1,"a":2}`, " { } ", `{"":0}`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		o, err := ParseObject(data)
		if err != nil {
			return
		}
		written, err := o.MarshalJSON()
		if err != nil {
			t.Fatal(err)
		}
		again, err := ParseObject(written)
		if err != nil {
			t.Fatal(err)
		}
		twice, _ := again.MarshalJSON()
		if !bytes.Equal(written, twice) || len(o.Names()) != len(again.Names()) {
			t.Errorf("%s became %s", written, twice)
		}
	})
}

func FuzzBackupFile(f *testing.F) {
	f.Add([]byte(`{"config":{"name":"S","x":[1]},"state":{"messages":1}}`))
	f.Add([]byte(`{"config":{"name":1},"state":null}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		b, err := ParseBackupFile(data)
		if err != nil {
			return
		}
		written, err := json.Marshal(b)
		if err != nil {
			t.Fatal(err)
		}
		again, err := ParseBackupFile(written)
		if err != nil || again.StreamName() != b.StreamName() {
			t.Fatalf("%s: %v", written, err)
		}
	})
}

func FuzzManifest(f *testing.F) {
	f.Add([]byte(sampleManifest))
	f.Add([]byte(`{"manifest_version":2}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		m, err := ParseManifest(data)
		if err != nil {
			return
		}
		if _, err := json.Marshal(m); err != nil {
			t.Skip() // a time beyond the year 9999
		}
	})
}

// FuzzBlock: a compressed block of any bytes is decoded as s2 does, or refused.
func FuzzBlock(f *testing.F) {
	f.Add(s2.Encode(nil, []byte("NATSARC1NATSARC1NATSARC1NATSARC1")))
	f.Add(binary.AppendUvarint(nil, 4<<20))
	f.Fuzz(func(t *testing.T, body []byte) {
		if n, err := s2.DecodedLen(body); err != nil || n > maxBlock {
			return
		}
		want, err := s2.Decode(nil, body)
		b := Block{Raw: chunkOf(0x00, string(chunk(want)[4:8])+string(body))}
		if derr := b.decode(); (derr == nil) != (err == nil) || err == nil && !bytes.Equal(b.Data, want) {
			t.Errorf("%v, want %v", derr, err)
		}
	})
}
