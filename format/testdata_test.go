package format

import (
	"archive/tar"
	"bytes"
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/klauspost/compress/s2"
)

var update = flag.Bool("update", false, "write testdata anew")

const testdata = "../testdata/v2"

// goodEntries is a stream ORDERS (orders.>, allow_msg_ttl) of 30 messages
// between sequences 11 and 60, with two consumers.
func goodEntries() []rawEntry {
	const second = int64(1e9)
	consumer := func(name, config string) rawEntry {
		return rawEntry{name: "consumers/" + name, time: stamp, payload: fmt.Sprintf(
			`{"config":{%s,"deliver_policy":"all","ack_policy":"explicit","ack_wait":30000000000,"max_deliver":-1,"replay_policy":"instant","max_ack_pending":1000,"num_replicas":0},`+
				`"state":{"delivered":{"consumer_seq":9,"stream_seq":20},"ack_floor":{"consumer_seq":5,"stream_seq":15},`+
				`"pending":{"16":{"Sequence":6,"Timestamp":%d},"20":{"Sequence":9,"Timestamp":%d}},"redelivered":{"16":1}}}`,
			config, stamp, stamp+second)}
	}
	es := []rawEntry{
		{name: "state.json", time: stamp},
		consumer("billing", `"durable_name":"billing","name":"billing"`),
		consumer("shipping", `"durable_name":"shipping","name":"shipping","filter_subject":"orders.*.created"`),
	}
	var messages, bytes int
	for seq := uint64(11); seq <= 55; seq++ {
		if seq%3 == 0 { // deleted
			continue
		}
		m := rawEntry{
			name: fmt.Sprintf("orders.%s.%s", []string{"eu", "us", "as"}[seq/3%3], []string{"created", "paid"}[seq%2]),
			time: stamp + int64(seq)*second, seq: seq,
			payload: fmt.Sprintf(`{"order":%d,"items":[%s]}`, seq, strings.TrimSuffix(strings.Repeat(`"item",`, int(seq%7)), ",")),
		}
		switch {
		case seq%10 == 0:
			m.header = "NATS/1.0\r\nNats-TTL: 10s\r\n\r\n" // over long since
		case seq%11 == 0:
			m.header = "NATS/1.0\r\nNats-TTL: 876000h\r\n\r\n" // a century
		case seq%13 == 0:
			m.header = "NATS/1.0\r\nNats-TTL: never\r\n\r\n"
		case seq%4 == 0:
			m.header = fmt.Sprintf("NATS/1.0\r\nNats-Msg-Id: order-%d\r\nTrace:  a, b\r\n\r\n", seq)
		}
		es = append(es, m)
		messages++
		bytes += 30 + len(m.name) + len(m.header) + len(m.payload)
		if m.header != "" {
			bytes += 4
		}
	}
	es[0].payload = fmt.Sprintf(`{"messages":%d,"bytes":%d,"first_seq":11,"first_ts":"2026-01-01T00:00:11Z","last_seq":60,"last_ts":"2026-01-01T00:01:00Z","num_subjects":6,"num_deleted":%d,"consumer_count":2}`,
		messages, bytes, 50-messages)
	return append(es, rawEntry{})
}

type sample struct {
	name, what string
	data       []byte
	kind       error
	reason     string
}

// samples are the files under testdata/v2. good is good.arc.s2 as it is stored.
func samples(good []byte) []sample {
	es := goodEntries()
	entries := func(change func([]rawEntry) []rawEntry) []byte {
		return frame(rawArchive(change(slices.Clone(es))...))
	}
	message := func(change func(*rawEntry)) []byte {
		return entries(func(es []rawEntry) []rawEntry { change(&es[10]); return es })
	}
	state := func(old, new string) []byte {
		return entries(func(es []rawEntry) []rawEntry {
			es[0].payload = strings.Replace(es[0].payload, old, new, 1)
			return es
		})
	}
	flipped := bytes.Clone(good)
	flipped[len(flipped)/2] ^= 0x10
	var v1 bytes.Buffer
	tw := tar.NewWriter(&v1)
	for _, f := range []string{"meta.inf", "meta.sum"} {
		tw.WriteHeader(&tar.Header{Name: f, Mode: 0o600, Size: 2, Format: tar.FormatPAX})
		tw.Write([]byte("{}"))
	}
	tw.Close()
	return []sample{
		{"good", "sound: 30 messages from sequence 11 to 55, last_seq 60, two consumers with pending messages, TTLs over, in a century and never", good, nil, ""},
		{"empty-file", "0 bytes", nil, ErrTruncated, "no data at all"},
		{"cut-before-end-marker", "whole S2 chunks, but no end marker", entries(func(es []rawEntry) []rawEntry { return es[:len(es)-1] }), ErrTruncated, "no end marker"},
		{"cut-in-the-middle", "the first half of good", good[:len(good)/2], ErrTruncated, "ends inside an S2 chunk"},
		{"cut-last-byte", "good without its last byte", good[:len(good)-1], ErrTruncated, "ends inside an S2 chunk"},
		{"flipped-bit", "good with one bit flipped inside a chunk", flipped, ErrCorrupt, "S2 chunk"},
		{"garbage-behind-end", "good and then text", join(good, []byte("garbage behind the end marker\n")), ErrCorrupt, "behind the end marker"},
		{"second-archive-behind-end", "good twice", join(good, good), ErrCorrupt, "another S2 stream behind the end marker"},
		{"consumer-missing", "consumer_count is 3, two consumers follow", state(`"consumer_count":2`, `"consumer_count":3`), ErrCorrupt, "consumer 3 of 3 is missing"},
		{"consumer-extra", "consumer_count is 1, two consumers follow", state(`"consumer_count":2`, `"consumer_count":1`), ErrCorrupt, "behind the 1 consumers"},
		{"sequence-out-of-order", "a sequence below the one before", message(func(e *rawEntry) { e.seq = 12 }), ErrCorrupt, "sequence 12 after"},
		{"sequence-2pow62", "last_seq and a message's sequence are 2^62", entries(func(es []rawEntry) []rawEntry {
			es[0].payload = strings.Replace(es[0].payload, `"last_seq":60`, `"last_seq":4611686018427387904`, 1)
			es[len(es)-2].seq = 1 << 62
			return es
		}), ErrCorrupt, "sequences up to 4611686018427387904"},
		{"subject-space", "a message on \"orders eu\"", message(func(e *rawEntry) { e.name = "orders eu" }), ErrCorrupt, "white space in subject"},
		{"subject-wildcard", "a message on \"orders.*\"", message(func(e *rawEntry) { e.name = "orders.*" }), ErrCorrupt, "wildcard in subject"},
		{"header-broken", "a header block that doesn't end in an empty line", message(func(e *rawEntry) { e.header = "NATS/1.0\r\nA: b\r\n" }), ErrCorrupt, "header block doesn't end"},
		{"v1-tar", "a V1 archive, as far as its first bytes tell", frame(v1.Bytes()[:1024]), ErrV1, "tar of store files"},
	}
}

// TestTestdataIsCurrent also inspects the files: other packages rely on what
// their names say. Run it with -update to write them anew.
func TestTestdataIsCurrent(t *testing.T) {
	path := func(name string) string { return filepath.Join(testdata, name+".arc.s2") }
	raw := rawArchive(goodEntries()...)
	if *update {
		// How well s2 compresses differs between versions: good is compared
		// decompressed, and what derives from it derives from the stored file.
		if err := os.WriteFile(path("good"), serverWrite(t, goodEntries(), s2.WriterBetterCompression(), s2.WriterBlockSize(4<<10), s2.WriterConcurrency(1)), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	good, err := os.ReadFile(path("good"))
	if err != nil {
		t.Fatal(err)
	}
	var decoded bytes.Buffer
	if _, err := decoded.ReadFrom(s2.NewReader(bytes.NewReader(good))); err != nil || !bytes.Equal(decoded.Bytes(), raw) {
		t.Fatalf("good.arc.s2 is out of date (%v): run with -update", err)
	}
	var readme strings.Builder
	readme.WriteString("Archives for tests, written by `go test ./format -run TestTestdataIsCurrent -update`.\nThe stream is `ORDERS` on `orders.>` with `allow_msg_ttl`.\n\n| file | what it is |\n| --- | --- |\n")
	files := map[string]bool{"README.md": true}
	for _, s := range samples(good) {
		fmt.Fprintf(&readme, "| `%s.arc.s2` | %s |\n", s.name, s.what)
		files[s.name+".arc.s2"] = true
		check(t, path(s.name), s.data)
		d := damage(t, s.data)
		switch {
		case s.kind == nil && d != nil, s.kind != nil && (d == nil || !errors.Is(d, s.kind) || !strings.Contains(d.Reason, s.reason)):
			t.Errorf("%s: %v, want %v: %s", s.name, d, s.kind, s.reason)
		}
	}
	check(t, filepath.Join(testdata, "README.md"), []byte(readme.String()))
	entries, err := os.ReadDir(testdata)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		delete(files, e.Name())
		if size, _ := e.Info(); size != nil && size.Size() > 16<<10 {
			t.Errorf("%s has %d bytes", e.Name(), size.Size())
		}
	}
	if len(files) > 0 {
		t.Errorf("missing: %v", slices.Sorted(maps.Keys(files)))
	}
}

// check compares a file with what it has to hold, or writes it.
func check(t *testing.T, path string, want []byte) {
	t.Helper()
	if *update {
		if err := os.WriteFile(path, want, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(path)
	if err != nil || !bytes.Equal(got, want) {
		t.Errorf("%s is out of date (%v): run with -update", path, err)
	}
}
