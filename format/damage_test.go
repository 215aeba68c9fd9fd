package format

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/klauspost/compress/s2"
)

const (
	lastMessage = "message sequence 5 of 2026-01-01T00:00:00Z"
	header      = int64(len(StreamIdentifier))
)

// TestDamagedEntryIsNamed changes one entry of a sound archive at a time.
func TestDamagedEntryIsNamed(t *testing.T) {
	type entries = []rawEntry
	with := func(i int, change func(*rawEntry)) entries {
		es := smallEntries()
		change(&es[i])
		return es
	}
	state := func(s string) entries { return with(0, func(e *rawEntry) { e.payload = s }) }
	consumer := func(s string) entries { return with(1, func(e *rawEntry) { e.payload = s }) }
	consumerNamed := func(s string) entries {
		return with(1, func(e *rawEntry) {
			e.name = "consumers/" + s
			e.payload = `{"config":{},"state":{}}`
		})
	}
	seq := func(i int, seq uint64) entries { return with(i, func(e *rawEntry) { e.seq = seq }) }
	subject := func(s string) entries { return with(3, func(e *rawEntry) { e.name = s }) }
	headers := func(s string) entries { return with(3, func(e *rawEntry) { e.header = s }) }
	const (
		afterState    = "state.json"
		afterConsumer = "consumers/C"
		afterFirst    = "message sequence 1 of 2026-01-01T00:00:00Z"
		afterSecond   = "message sequence 2 of 2026-01-01T00:00:00Z"
	)
	for _, c := range []struct {
		name    string
		entries entries
		at      int // the damaged entry
		seq     uint64
		good    string
		reason  string
	}{
		{"no state", smallEntries()[1:], 0, 0, "", `first entry is "consumers/C", not state.json`},
		{"state with a sequence", seq(0, 1), 0, 0, "", `first entry is "state.json", not state.json`},
		{"state not JSON", state(`{"messages":`), 0, 0, "", "state.json: unexpected end of JSON input"},
		{"state not an object", state(`[1]`), 0, 0, "", "state.json: expected a JSON object"},
		{"state null", state(`null`), 0, 0, "", "state.json: expected a JSON object"},
		{"state empty", state(``), 0, 0, "", "state.json: expected a JSON object"},
		{"state of wrong types", state(`{"first_seq":"1"}`), 0, 0, "", "state.json: json: cannot unmarshal string into Go struct field State.first_seq of type uint64"},
		{"state with data behind it", state(`{} {}`), 0, 0, "", "state.json: invalid character '{' after top-level value"},
		{"negative consumer_count", state(`{"consumer_count":-1}`), 0, 0, "", "state.json: negative consumer_count"},
		{"negative messages", state(`{"messages":-1}`), 0, 0, "", "state.json: json: cannot unmarshal number -1 into Go struct field State.messages of type uint64"},
		{"bytes beyond an int64", state(`{"bytes":9223372036854775808}`), 0, 0, "", "state.json: 9223372036854775808 bytes"},
		{"last_seq without first_seq", state(`{"last_seq":3}`), 0, 0, "", "state.json: first_seq 0 with messages or a last_seq"},
		{"messages without first_seq", state(`{"messages":3}`), 0, 0, "", "state.json: first_seq 0 with messages or a last_seq"},
		{"first_seq two above last_seq", state(`{"first_seq":12,"last_seq":10}`), 0, 0, "", "state.json: first_seq 12, last_seq 10 and 0 messages disagree"},
		{"messages in an empty stream", state(`{"first_seq":11,"last_seq":10,"messages":1}`), 0, 0, "", "state.json: first_seq 11, last_seq 10 and 1 messages disagree"},
		{"more messages than sequences", state(`{"first_seq":1,"last_seq":10,"messages":11}`), 0, 0, "", "state.json: 11 messages between sequences 1 and 10"},
		{"last_seq 2^62", state(`{"first_seq":1,"last_seq":4611686018427387904}`), 0, 0, "", "state.json: sequences up to 4611686018427387904"},
		{"last_seq 2^64-1", state(`{"first_seq":1,"last_seq":18446744073709551615}`), 0, 0, "", "state.json: sequences up to 18446744073709551615"},
		{"first_seq 0 and last_seq 2^64-1", state(`{"first_seq":0,"last_seq":18446744073709551615}`), 0, 0, "", "state.json: sequences up to 18446744073709551615"},

		{"a consumer too few", state(`{"first_seq":1,"last_seq":9,"consumer_count":2}`), 2, 0, afterConsumer, `consumer 2 of 2 is missing: found entry "orders.eu"`},
		{"a consumer too many", state(`{"first_seq":1,"last_seq":9}`), 1, 0, afterState, `entry "consumers/C" behind the 0 consumers that consumer_count announces`},
		{"no consumer before the end marker", append(state(`{"first_seq":1,"last_seq":9,"consumer_count":1}`)[:1], rawEntry{}), 1, 0, afterState, `consumer 1 of 1 is missing: found entry ""`},
		{"consumer with a sequence", seq(1, 1), 1, 0, afterState, `consumer 1 of 1 is missing: found entry "consumers/C"`},
		{"consumer without config", consumer(`{"state":{}}`), 1, 0, afterState, `consumer "C" lacks its config or state`},
		{"consumer without state", consumer(`{"config":{}}`), 1, 0, afterState, `consumer "C" lacks its config or state`},
		{"consumer with a null state", consumer(`{"config":{},"state":null}`), 1, 0, afterState, `consumer "C" lacks its config or state`},
		{"consumer not an object", consumer(`[]`), 1, 0, afterState, `consumer "C": json: cannot unmarshal array into Go value of type struct { Config *format.Object; State *format.Object }`},
		{"consumer null", consumer(`null`), 1, 0, afterState, `consumer "C" lacks its config or state`},
		{"consumer's config not an object", consumer(`{"config":[],"state":{}}`), 1, 0, afterState, `consumer "C": expected a JSON object`},
		{"consumer's state of wrong types", consumer(`{"config":{},"state":{"pending":{"x":{}}}}`), 1, 0, afterState, `consumer "C": state: json: cannot unmarshal number x into Go struct field .pending of type uint64`},
		{"consumer's config of another", consumer(`{"config":{"durable_name":"D"},"state":{}}`), 1, 0, afterState, `consumer "C": its config names it "D"`},
		{"consumer twice", append(state(`{"first_seq":1,"last_seq":9,"consumer_count":2}`)[:2], smallEntries()[1:]...), 2, 0, afterConsumer, `consumer "C" is there twice`},
		{"consumer without a name", consumerNamed(""), 1, 0, afterState, `consumer name ""`},
		{"consumer in a parent directory", consumerNamed("../x"), 1, 0, afterState, `consumer name "../x"`},
		{"consumer with a slash", consumerNamed("a/b"), 1, 0, afterState, `consumer name "a/b"`},
		{"consumer with a backslash", consumerNamed(`a\b`), 1, 0, afterState, `consumer name "a\\b"`},
		{"consumer with a space", consumerNamed("a b"), 1, 0, afterState, `consumer name "a b"`},
		{"consumer with a form feed", consumerNamed("a\fb"), 1, 0, afterState, `consumer name "a\fb"`},
		{"consumer with a NUL", consumerNamed("a\x00b"), 1, 0, afterState, `consumer name "a\x00b"`},
		{"consumer with a name of 256 bytes", consumerNamed(strings.Repeat("c", 256)), 1, 0, afterState, `consumer name "` + strings.Repeat("c", 80) + `…"`},

		{"sequence out of order", seq(4, 1), 4, 1, afterSecond, "sequence 1 after 2"},
		{"sequence twice", seq(4, 2), 4, 2, afterSecond, "sequence 2 after 2"},
		{"sequence below first_seq", state(`{"first_seq":2,"last_seq":9,"consumer_count":1}`), 2, 1, afterConsumer, "sequence below first_seq 2"},
		{"sequence above last_seq", seq(4, 10), 4, 10, afterSecond, "sequence above last_seq 9"},
		{"sequence 2^62", seq(4, 1<<62), 4, 1 << 62, afterSecond, "sequence above last_seq 9"},
		{"message in a never-used stream", with(0, func(e *rawEntry) { e.payload = `{"consumer_count":1}` }), 2, 1, afterConsumer, "sequence above last_seq 0"},
		{"message without a sequence", seq(3, 0), 3, 0, afterFirst, `entry "orders.us" without a sequence`},
		{"end marker with a time", with(5, func(e *rawEntry) { e.time = 1 }), 5, 0, lastMessage, `entry "" without a sequence`},
		{"end marker with a payload", with(5, func(e *rawEntry) { e.payload = "x" }), 5, 0, lastMessage, `entry "" without a sequence`},

		{"empty subject", subject(""), 3, 2, afterFirst, "empty subject"},
		{"subject with a space", subject("orders us"), 3, 2, afterFirst, `white space in subject "orders us"`},
		{"subject with a line end", subject("orders\r\n"), 3, 2, afterFirst, `white space in subject "orders\r\n"`},
		{"subject with a wildcard", subject("orders.*"), 3, 2, afterFirst, `wildcard in subject "orders.*"`},
		{"subject with a full wildcard", subject("orders.>"), 3, 2, afterFirst, `wildcard in subject "orders.>"`},
		{"subject with an empty token", subject("orders..us"), 3, 2, afterFirst, `empty token in subject "orders..us"`},
		{"subject ending in a dot", subject("orders."), 3, 2, afterFirst, `empty token in subject "orders."`},
		{"subject beginning with a dot", subject(".orders"), 3, 2, afterFirst, `empty token in subject ".orders"`},
		{"subject of 65,536 bytes", subject(strings.Repeat("s", 65536)), 3, 0, afterFirst, "entry name of 65536 bytes"},

		{"header block without a version", headers("A: b\r\n\r\n"), 3, 2, afterFirst, "header block doesn't begin with NATS/1.0"},
		{"header block without an end", headers("NATS/1.0\r\nA: b\r\n"), 3, 2, afterFirst, "header block doesn't end in an empty line"},
		{"TTL below a second", headers("NATS/1.0\r\nNats-TTL: 999ms\r\n\r\n"), 3, 2, afterFirst, `Nats-TTL "999ms" is below a second`},
		{"negative TTL", headers("NATS/1.0\r\nNats-TTL: -5\r\n\r\n"), 3, 2, afterFirst, `Nats-TTL "-5" doesn't parse`},
		{"TTL of words", headers("NATS/1.0\r\nNats-TTL: soon\r\n\r\n"), 3, 2, afterFirst, `Nats-TTL "soon" doesn't parse`},
		{"TTL of 100 KB", headers("NATS/1.0\r\nNats-TTL: " + strings.Repeat("x", 100_000) + "\r\n\r\n"), 3, 2, afterFirst, `Nats-TTL "` + strings.Repeat("x", 80) + `…" doesn't parse`},

		{"data behind the end marker", append(smallEntries(), rawEntry{name: "x"}), 6, 0, lastMessage, "data behind the end marker"},
		{"two end markers", append(smallEntries(), rawEntry{}), 6, 0, lastMessage, "data behind the end marker"},
	} {
		t.Run(c.name, func(t *testing.T) {
			want := &DamageError{
				Err: ErrCorrupt, Reason: c.reason, Seq: c.seq, LastGood: c.good,
				Offset: header, RawOffset: int64(len(rawArchive(c.entries[:c.at]...))),
			}
			wantDamage(t, frame(rawArchive(c.entries...)), want)
		})
	}
}

func wantDamage(t *testing.T, data []byte, want *DamageError) {
	t.Helper()
	got := damage(t, data)
	if got == nil {
		t.Fatalf("accepted; want %v", want)
	}
	if got.Err != want.Err || !errors.Is(got, want.Err) {
		t.Errorf("kind is %v, want %v", got.Err, want.Err)
	}
	g, w := *got, *want
	g.Err, w.Err = nil, nil
	if diff := cmp.Diff(w, g); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	if len(got.Error()) > 1000 {
		t.Errorf("message of %d bytes", len(got.Error()))
	}
}

// TestDamagedNumbersAreNamed writes an entry's numbers by hand behind a sound
// message.
func TestDamagedNumbersAreNamed(t *testing.T) {
	before := rawArchive(smallEntries()[:3]...)
	n := func(name, seq, header, payload uint64) []byte {
		return appendNumbers(nil, name, stamp, seq, header, payload)
	}
	overflow := bytes.Repeat([]byte{0xff}, 10)
	for _, c := range []struct {
		name   string
		tail   []byte
		kind   error
		reason string
	}{
		{"uvarint of 11 bytes", append(overflow, 0x01), ErrCorrupt, "number in an entry overflows"},
		{"uvarint above 64 bits", append(overflow[:9:9], 0x02), ErrCorrupt, "number in an entry overflows"},
		{"time that overflows", join([]byte{1}, overflow, []byte{1}), ErrCorrupt, "number in an entry overflows"},
		{"header size that is negative as an int64", n(1, 2, 1<<63, 0), ErrCorrupt, "entry of 9223372036854775808 header and 0 payload bytes"},
		{"payload size that is negative as an int64", n(1, 2, 0, math.MaxUint64), ErrCorrupt, "entry of 0 header and 18446744073709551615 payload bytes"},
		{"sizes whose sum overflows", n(1, 2, math.MaxInt64, math.MaxInt64), ErrCorrupt, "entry of 9223372036854775807 header and 9223372036854775807 payload bytes"},
		{"sizes whose sum overflows to little", n(1, 2, 1<<63, 1<<63), ErrCorrupt, "entry of 9223372036854775808 header and 9223372036854775808 payload bytes"},
		{"sizes whose sum is a byte too large", n(1, 2, 64<<20, 64<<20+1), ErrCorrupt, "entry of 67108864 header and 67108865 payload bytes"},
		{"name size of 2^63", n(1<<63, 2, 0, 0), ErrCorrupt, "entry name of 9223372036854775808 bytes"},
		{"huge payload without data", n(1, 2, 0, 128<<20), ErrTruncated, "ends inside an entry"},
		{"name without data", n(60000, 2, 0, 0), ErrTruncated, "ends inside an entry"},
		{"half a number", []byte{1, 0x80}, ErrTruncated, "ends inside an entry"},
	} {
		t.Run(c.name, func(t *testing.T) {
			data := frame(join(before, c.tail))
			want := &DamageError{
				Err: c.kind, Reason: c.reason, Offset: header, RawOffset: int64(len(before)),
				LastGood: "message sequence 1 of 2026-01-01T00:00:00Z",
			}
			if c.kind == ErrTruncated {
				want.Offset = int64(len(data))
			}
			wantDamage(t, data, want)
		})
	}
	t.Run("state.json of 256 MiB and a byte", func(t *testing.T) {
		wantDamage(t, frame(appendNumbers([]byte(magic), 10, 0, 0, 0, 256<<20+1)), &DamageError{
			Err: ErrCorrupt, Reason: "entry of 0 header and 268435457 payload bytes", Offset: header, RawOffset: 8,
		})
	})
}

// TestDamagedFramingIsNamed damages the S2 stream around an archive.
func TestDamagedFramingIsNamed(t *testing.T) {
	es := smallEntries()
	raw := rawArchive(es...)
	whole := frame(raw)
	unended := rawArchive(es[:5]...)
	first, second := raw[:len(rawArchive(es[:3]...))], raw[len(rawArchive(es[:3]...)):]
	two := frame(first, second) // an entry begins where a chunk does
	at := header + int64(len(chunk(first)))
	compressed := s2.Encode(nil, second)
	sum := string(chunk(second)[4:8])
	var v1 bytes.Buffer
	{
		enc := s2.NewWriter(&v1)
		tw := tar.NewWriter(enc)
		tw.WriteHeader(&tar.Header{Name: "meta.inf", Mode: 0o600, Size: 2, Format: tar.FormatPAX})
		tw.Write([]byte("{}"))
		tw.Close()
		enc.Close()
	}
	var zipped bytes.Buffer
	gz := gzip.NewWriter(&zipped)
	gz.Write(raw)
	gz.Close()
	var snappy bytes.Buffer
	enc := s2.NewWriter(&snappy, s2.WriterSnappyCompat())
	enc.Write(raw)
	enc.Close()
	random := make([]byte, 1000)
	rand.NewChaCha8([32]byte{1}).Read(random)

	const afterFirst = "message sequence 1 of 2026-01-01T00:00:00Z"
	size, all := int64(len(whole)), int64(len(raw))
	mid := int64(len(first))
	for _, c := range []struct {
		name string
		data []byte
		want DamageError
	}{
		{"0 bytes", nil, DamageError{Err: ErrTruncated, Reason: "no data at all"}},
		{"one byte", whole[:1], DamageError{Err: ErrTruncated, Reason: "ends inside the S2 stream identifier"}},
		{"nine bytes", whole[:9], DamageError{Err: ErrTruncated, Reason: "ends inside the S2 stream identifier"}},
		{"the identifier alone", whole[:10], DamageError{Err: ErrTruncated, Reason: "no end marker", Offset: 10}},
		{"cut before the end marker", frame(unended), DamageError{Err: ErrTruncated, Reason: "no end marker", Offset: size - 5, RawOffset: int64(len(unended)), LastGood: lastMessage}},
		{"cut inside the end marker", frame(raw[:len(raw)-1]), DamageError{Err: ErrTruncated, Reason: "ends inside an entry", Offset: size - 1, RawOffset: int64(len(unended)), LastGood: lastMessage}},
		{"cut inside the magic bytes", frame(raw[:5]), DamageError{Err: ErrTruncated, Reason: "ends inside an entry", Offset: 23}},
		{"last byte missing", whole[:len(whole)-1], DamageError{Err: ErrTruncated, Reason: "ends inside an S2 chunk", Offset: 10}},
		{"last chunk missing", two[:at], DamageError{Err: ErrTruncated, Reason: "no end marker", Offset: at, RawOffset: mid, LastGood: afterFirst}},
		{"cut inside a later chunk's head", two[:at+2], DamageError{Err: ErrTruncated, Reason: "ends inside an S2 chunk", Offset: at, RawOffset: mid, LastGood: afterFirst}},
		{"cut inside a later chunk", two[:at+9], DamageError{Err: ErrTruncated, Reason: "ends inside an S2 chunk", Offset: at, RawOffset: mid, LastGood: afterFirst}},

		{"garbage behind the end marker", join(whole, []byte("garbage")), DamageError{Err: ErrCorrupt, Reason: "S2 chunk of unknown type 0x67, behind the end marker", Offset: size, RawOffset: all, LastGood: lastMessage}},
		{"a byte behind the end marker", join(whole, []byte("\n")), DamageError{Err: ErrCorrupt, Reason: "ends inside an S2 chunk, behind the end marker", Offset: size, RawOffset: all, LastGood: lastMessage}},
		{"garbage like a skippable chunk behind the end marker", join(whole, []byte("\xc0\xff\xee\x00 garbage")), DamageError{Err: ErrCorrupt, Reason: "ends inside an S2 chunk, behind the end marker", Offset: size, RawOffset: all, LastGood: lastMessage}},
		{"another data chunk behind the end marker", join(whole, chunk([]byte("x"))), DamageError{Err: ErrCorrupt, Reason: "data behind the end marker", Offset: size, RawOffset: all, LastGood: lastMessage}},
		{"an empty data chunk behind the end marker", join(whole, chunk(nil)), DamageError{Err: ErrCorrupt, Reason: "data behind the end marker", Offset: size, RawOffset: all, LastGood: lastMessage}},
		{"a broken data chunk behind the end marker", join(whole, chunkOf(0x01, "12345")), DamageError{Err: ErrCorrupt, Reason: "S2 chunk fails its checksum, behind the end marker", Offset: size, RawOffset: all, LastGood: lastMessage}},
		{"another S2 stream behind the end marker", join(whole, whole), DamageError{Err: ErrCorrupt, Reason: "another S2 stream behind the end marker", Offset: size, RawOffset: all, LastGood: lastMessage}},
		{"an S2 identifier behind the end marker", join(whole, []byte(StreamIdentifier)), DamageError{Err: ErrCorrupt, Reason: "another S2 stream behind the end marker", Offset: size, RawOffset: all, LastGood: lastMessage}},
		{"another archive in place of the end marker", join(frame(unended), whole), DamageError{Err: ErrCorrupt, Reason: `entry "" without a sequence`, Offset: 0, RawOffset: 0}},

		{"bad CRC", join(frame(first), chunkOf(0x01, "\x00\x00\x00\x00"+string(second))), DamageError{Err: ErrCorrupt, Reason: "S2 chunk fails its checksum", Offset: at, RawOffset: mid, LastGood: afterFirst}},
		{"bad CRC of a compressed chunk", join(frame(first), chunkOf(0x00, "\x00\x00\x00\x00"+string(compressed))), DamageError{Err: ErrCorrupt, Reason: "S2 chunk fails its checksum", Offset: at, RawOffset: mid, LastGood: afterFirst}},
		{"chunk too short for a CRC", join(frame(first), chunkOf(0x00, "abc")), DamageError{Err: ErrCorrupt, Reason: "S2 chunk of 3 bytes is too short", Offset: at, RawOffset: mid, LastGood: afterFirst}},
		{"empty chunk", join(frame(first), chunkOf(0x01, "")), DamageError{Err: ErrCorrupt, Reason: "S2 chunk of 0 bytes is too short", Offset: at, RawOffset: mid, LastGood: afterFirst}},
		{"unknown chunk type", join(frame(first), chunkOf(0x02, "abcde")), DamageError{Err: ErrCorrupt, Reason: "S2 chunk of unknown type 0x02", Offset: at, RawOffset: mid, LastGood: afterFirst}},
		{"chunk longer than any", join(frame(first), []byte{0x01, 0xff, 0xff, 0xff}), DamageError{Err: ErrCorrupt, Reason: "S2 chunk of 16777215 bytes", Offset: at, RawOffset: mid, LastGood: afterFirst}},
		{"stored chunk of more than 4 MiB", join(frame(first), chunk(make([]byte, 4<<20+1))), DamageError{Err: ErrCorrupt, Reason: "S2 chunk holds more than 4194304 bytes", Offset: at, RawOffset: mid, LastGood: afterFirst}},
		{"compressed chunk that declares more than 4 MiB", join(frame(first), chunkOf(0x00, sum+string(binary.AppendUvarint(nil, 4<<20+1)))), DamageError{Err: ErrCorrupt, Reason: "S2 chunk doesn't declare a size up to 4194304 bytes", Offset: at, RawOffset: mid, LastGood: afterFirst}},
		{"compressed chunk that declares no size", join(frame(first), chunkOf(0x00, sum+"\xff\xff\xff\xff\xff\xff")), DamageError{Err: ErrCorrupt, Reason: "S2 chunk doesn't declare a size up to 4194304 bytes", Offset: at, RawOffset: mid, LastGood: afterFirst}},
		{"compressed chunk that declares a byte too many", join(frame(first), chunkOf(0x00, sum+string(longer(compressed)))), DamageError{Err: ErrCorrupt, Reason: "S2 chunk doesn't decode", Offset: at, RawOffset: mid, LastGood: afterFirst}},
		{"skippable chunk before the identifier", join([]byte(Padding), whole), DamageError{Err: ErrNotArchive, Reason: "doesn't begin with an S2 stream identifier"}},
		{"data chunk before the identifier", whole[10:], DamageError{Err: ErrNotArchive, Reason: "doesn't begin with an S2 stream identifier"}},
		{"identifier of the wrong length", []byte("\xff\x07\x00\x00S2sTwOo"), DamageError{Err: ErrNotArchive, Reason: "S2 stream identifier of the wrong length"}},
		{"foreign identifier", append([]byte("\xff\x06\x00\x00S2sTwP"), whole[10:]...), DamageError{Err: ErrNotArchive, Reason: "unknown S2 stream identifier"}},
		{"foreign identifier later on", join(frame(first), []byte("\xff\x06\x00\x00S2sTwP")), DamageError{Err: ErrCorrupt, Reason: "unknown S2 stream identifier", Offset: at, RawOffset: mid, LastGood: afterFirst}},
		{"Snappy", snappy.Bytes(), DamageError{Err: ErrNotArchive, Reason: "a Snappy stream, not S2"}},
		{"Snappy later on", join(frame(first), snappy.Bytes()), DamageError{Err: ErrCorrupt, Reason: "a Snappy stream, not S2", Offset: at, RawOffset: mid, LastGood: afterFirst}},
		{"data chunk whose type has a flipped bit", flipType(two, at), DamageError{Err: ErrCorrupt, Reason: "S2 chunk of type 0x81, a data chunk with one bit flipped", Offset: at, RawOffset: mid, LastGood: afterFirst}},
		{"compressed chunk whose type has a flipped bit", join(frame(first), chunkOf(0x80, "abcdef")), DamageError{Err: ErrCorrupt, Reason: "S2 chunk of type 0x80, a data chunk with one bit flipped", Offset: at, RawOffset: mid, LastGood: afterFirst}},

		{"V1", v1.Bytes(), DamageError{Err: ErrV1, Reason: "a tar of store files, as servers before 2.15 write it", Offset: 10}},
		{"V1 with PAX headers", frame([]byte("PaxHeaders.0/meta.inf")), DamageError{Err: ErrV1, Reason: "a tar of store files, as servers before 2.15 write it", Offset: 10}},
		{"plain text", []byte("this is no archive"), DamageError{Err: ErrNotArchive, Reason: "doesn't begin with an S2 stream identifier"}},
		{"S2 of plain text", frame([]byte("this is no archive")), DamageError{Err: ErrNotArchive, Reason: `begins with "this is " instead of "NATSARC1"`, Offset: 10}},
		{"S2 of a later version", frame([]byte("NATSARC2")), DamageError{Err: ErrNotArchive, Reason: `begins with "NATSARC2" instead of "NATSARC1"`, Offset: 10}},
		{"uncompressed archive", raw, DamageError{Err: ErrNotArchive, Reason: "doesn't begin with an S2 stream identifier"}},
		{"gzip", zipped.Bytes(), DamageError{Err: ErrNotArchive, Reason: "doesn't begin with an S2 stream identifier"}},
		{"random bytes", random, DamageError{Err: ErrNotArchive, Reason: "doesn't begin with an S2 stream identifier"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.name == "another archive in place of the end marker" {
				// Its magic bytes are read as an entry: whatever comes of that.
				if d := damage(t, c.data); d == nil || d.LastGood != lastMessage {
					t.Fatalf("got %v", d)
				}
				return
			}
			wantDamage(t, c.data, &c.want)
		})
	}
}

// longer returns a compressed block that declares a byte more than it holds.
func longer(block []byte) []byte {
	size, n := binary.Uvarint(block)
	return append(binary.AppendUvarint(nil, size+1), block[n:]...)
}

func flipType(data []byte, at int64) []byte {
	out := bytes.Clone(data)
	out[at] ^= 0x80
	return out
}

func TestWhatMayStandBetweenAndBehindIsAccepted(t *testing.T) {
	es := smallEntries()
	raw := rawArchive(es...)
	whole := frame(raw)
	want := mustGather(t, whole)
	half := len(raw) / 2
	var indexed, padded bytes.Buffer
	for buf, option := range map[*bytes.Buffer]s2.WriterOption{&indexed: s2.WriterAddIndex(), &padded: s2.WriterPadding(4096)} {
		enc := s2.NewWriter(buf, option)
		enc.Write(raw)
		enc.Close()
	}
	for name, data := range map[string][]byte{
		"padding":                            join(whole, []byte(Padding), chunkOf(0xfe, "\x00\x00\x00")),
		"skippable chunk":                    join(whole, chunkOf(0x9a, "whatever")),
		"S2 index":                           indexed.Bytes(),
		"S2 padding":                         padded.Bytes(),
		"padding between":                    join([]byte(StreamIdentifier), []byte(Padding), chunk(raw[:half]), []byte(Padding), chunkOf(0xfd, "x"), chunk(raw[half:])),
		"an empty data chunk between":        frame(raw[:half], nil, raw[half:]),
		"several S2 streams one after other": join(frame(raw[:half]), frame(raw[half:])),
		"the identifier twice":               join([]byte(StreamIdentifier), whole),
	} {
		t.Run(name, func(t *testing.T) {
			if d := damage(t, data); d != nil {
				t.Fatal(d)
			}
			if diff := cmp.Diff(want, mustGather(t, data)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestUnusualSoundEntriesAreAccepted(t *testing.T) {
	empty := func(state string) []rawEntry {
		return []rawEntry{{name: "state.json", payload: state}, {}}
	}
	message := func(change func(*rawEntry)) []rawEntry {
		es := smallEntries()
		change(&es[3])
		return es
	}
	for name, es := range map[string][]rawEntry{
		"never-used stream":             empty(`{}`),
		"empty advanced stream":         empty(`{"first_seq":101,"last_seq":100}`),
		"everything deleted":            empty(`{"first_seq":1,"last_seq":100}`),
		"sequence 2^62-1":               empty(`{"first_seq":4611686018427387904,"last_seq":4611686018427387903}`),
		"JSON with spaces around":       empty(" {} \r\n"),
		"star inside a token":           message(func(e *rawEntry) { e.name = "foo*bar" }),
		"arrow inside a token":          message(func(e *rawEntry) { e.name = "foo.>bar" }),
		"subject of 65,535 bytes":       message(func(e *rawEntry) { e.name = strings.Repeat("s", 65535) }),
		"subject of other bytes":        message(func(e *rawEntry) { e.name = "\x00\xff" }),
		"subject like a consumer entry": message(func(e *rawEntry) { e.name = "consumers/C" }),
		"subject like the state entry":  message(func(e *rawEntry) { e.name = "state.json" }),
		"header block without headers":  message(func(e *rawEntry) { e.header = "NATS/1.0\r\n\r\n" }),
		"header block with a status":    message(func(e *rawEntry) { e.header = "NATS/1.0 404 No\r\n\r\n" }),
		"message without a time":        message(func(e *rawEntry) { e.time = 0 }),
		"message before 1970":           message(func(e *rawEntry) { e.time = math.MinInt64 }),
		"message with an empty payload": message(func(e *rawEntry) { e.payload = "" }),
		"consumer with a spare field":   func() []rawEntry { es := smallEntries(); es[1].payload = `{"x":1,` + consumerC[1:]; return es }(),
		"consumer with a 255 byte name": consumerCalled(strings.Repeat("c", 255)),
		"consumer with a name of UTF-8": consumerCalled("überholt"),
		"messages fewer than announced": append(smallEntries()[:3], rawEntry{}),
		"state split as header and body": func() []rawEntry {
			es := smallEntries()
			es[0].header, es[0].payload = es[0].payload[:9], es[0].payload[9:]
			return es
		}(),
	} {
		t.Run(name, func(t *testing.T) {
			if d := damage(t, frame(rawArchive(es...))); d != nil {
				t.Error(d)
			}
		})
	}
}

func consumerCalled(name string) []rawEntry {
	es := smallEntries()
	es[1].name = "consumers/" + name
	es[1].payload = fmt.Sprintf(`{"config":{"name":%q},"state":{}}`, name)
	return es
}
