package format

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"io"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/klauspost/compress/s2"
	"github.com/nats-io/nats-server/v2/server/archive"
)

// rawEntry is an entry as tests write it, sound or not.
type rawEntry struct {
	name            string
	time            int64
	seq             uint64
	header, payload string
}

func (e rawEntry) append(p []byte) []byte {
	p = appendNumbers(p, uint64(len(e.name)), e.time, e.seq, uint64(len(e.header)), uint64(len(e.payload)))
	return append(p, e.name+e.header+e.payload...)
}

// appendNumbers appends an entry's numbers alone, so that tests can lie.
func appendNumbers(p []byte, name uint64, time int64, seq, header, payload uint64) []byte {
	p = binary.AppendUvarint(p, name)
	p = binary.AppendVarint(p, time)
	p = binary.AppendUvarint(p, seq)
	p = binary.AppendUvarint(p, header)
	return binary.AppendUvarint(p, payload)
}

// rawArchive is an archive's decompressed bytes.
func rawArchive(entries ...rawEntry) []byte {
	p := []byte("NATSARC1")
	for _, e := range entries {
		p = e.append(p)
	}
	return p
}

// chunk is a stored S2 chunk of data, written without the package's own code.
func chunk(data []byte) []byte {
	c := crc32.Checksum(data, crc32.MakeTable(crc32.Castagnoli))
	n := len(data) + 4
	p := []byte{0x01, byte(n), byte(n >> 8), byte(n >> 16)}
	p = binary.LittleEndian.AppendUint32(p, (c>>15|c<<17)+0xa282ead8)
	return append(p, data...)
}

// chunkOf is a chunk of any type, without a checksum.
func chunkOf(kind byte, body string) []byte {
	return append([]byte{kind, byte(len(body)), byte(len(body) >> 8), byte(len(body) >> 16)}, body...)
}

// frame is an S2 stream with one chunk for each piece.
func frame(pieces ...[]byte) []byte {
	p := []byte(StreamIdentifier)
	for _, piece := range pieces {
		p = append(p, chunk(piece)...)
	}
	return p
}

func join(parts ...[]byte) []byte { return bytes.Join(parts, nil) }

const (
	stamp     = int64(1_767_225_600_000_000_000) // 2026-01-01T00:00:00Z
	consumerC = `{"config":{"durable_name":"C","name":"C"},"state":{"delivered":{"consumer_seq":2,"stream_seq":2},"ack_floor":{"consumer_seq":1,"stream_seq":1},"pending":{"2":{"Sequence":2,"Timestamp":1}}}}`
)

// smallEntries is a small sound archive: 0 is the state, 1 a consumer, 2 to 4
// messages, 5 the end marker.
func smallEntries() []rawEntry {
	return []rawEntry{
		{name: "state.json", time: stamp, payload: `{"messages":3,"bytes":99,"first_seq":1,"last_seq":9,"num_subjects":2,"consumer_count":1}`},
		{name: "consumers/C", time: stamp, payload: consumerC},
		{name: "orders.eu", time: stamp, seq: 1, header: "NATS/1.0\r\nNats-TTL: 10s\r\n\r\n", payload: "hello"},
		{name: "orders.us", time: stamp + 1, seq: 2, payload: "hi"},
		{name: "orders.eu", time: stamp + 2, seq: 5, header: "NATS/1.0\r\nA: b\r\n\r\n"},
		{},
	}
}

// found is all that an inspection says.
type found struct {
	StateJSON string
	Time      int64
	Consumers []string
	Messages  []foundMessage
	Figures   Figures
	Raw       int64
}

type foundMessage struct {
	Seq                      uint64
	Time, TTL                int64
	Subject, Header, Payload string
}

// gather inspects what r holds.
func gather(r io.Reader) (*found, error) {
	var f found
	ins, err := Inspect(context.Background(), r, InspectOptions{OnMessage: func(m *Message) error {
		f.Messages = append(f.Messages, foundMessage{m.Seq, m.Time, m.TTL, string(m.Subject), string(m.Header), string(m.Payload)})
		return nil
	}})
	if err != nil {
		return &f, err
	}
	f.StateJSON, f.Time = string(ins.Head.StateJSON), ins.Head.Time
	for _, c := range ins.Head.Consumers {
		config, _ := c.Config.MarshalJSON()
		state, _ := c.State.MarshalJSON()
		f.Consumers = append(f.Consumers, c.Name+string(config)+string(state))
	}
	f.Figures, f.Raw = ins.Figures, ins.RawBytes
	return &f, nil
}

func mustGather(t testing.TB, data []byte) *found {
	t.Helper()
	f, err := gather(bytes.NewReader(data))
	if err != nil {
		t.Fatalf("refused: %v", err)
	}
	return f
}

// damage inspects data in both writing styles, which have to agree, and returns
// what is wrong with it; nil when it's sound.
func damage(t testing.TB, data []byte) *DamageError {
	t.Helper()
	once := NewInspector(InspectOptions{})
	once.Write(data)
	_, err := once.Close()
	bytewise := NewInspector(InspectOptions{})
	for i := range data {
		if _, err := bytewise.Write(data[i : i+1]); err != nil {
			break
		}
	}
	_, slow := bytewise.Close()
	if diff := cmp.Diff(errorText(err), errorText(slow)); diff != "" {
		t.Fatalf("writing byte by byte gives another result:\n%s", diff)
	}
	if err == nil {
		return nil
	}
	var d *DamageError
	if !errors.As(err, &d) {
		t.Fatalf("not a DamageError: %v", err)
	}
	return d
}

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// serverEntry is what the server's own reader makes of an entry.
type serverEntry struct {
	Name            string
	Time            int64
	Seq             uint64
	Header, Payload string
}

// serverRead reads an archive with nats-server's reader, up to its end.
func serverRead(r io.Reader) ([]serverEntry, error) {
	ar := archive.NewReader(s2.NewReader(r))
	var out []serverEntry
	for {
		h, err := ar.Next()
		if err == io.EOF {
			return out, nil
		}
		if err != nil {
			return out, err
		}
		body, err := io.ReadAll(ar)
		if err != nil {
			return out, err
		}
		out = append(out, serverEntry{h.Name, h.Timestamp, h.Sequence, string(body[:h.HeaderSize]), string(body[h.HeaderSize:])})
	}
}

// serverWrite writes an archive as nats-server does.
func serverWrite(t testing.TB, entries []rawEntry, options ...s2.WriterOption) []byte {
	t.Helper()
	var buf bytes.Buffer
	enc := s2.NewWriter(&buf, options...)
	aw := archive.NewWriter(enc)
	for _, e := range entries {
		err := aw.WriteHeader(&archive.Header{
			Name: e.name, Timestamp: e.time, Sequence: e.seq,
			HeaderSize: int64(len(e.header)), PayloadSize: int64(len(e.payload)),
		})
		if err == nil {
			_, err = aw.Write([]byte(e.header + e.payload))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(aw.Close(), enc.Close()); err != nil {
		t.Fatal(err)
	}
	return buf.Bytes()
}

func mustObject(t testing.TB, s string) Object {
	t.Helper()
	o, err := ParseObject([]byte(s))
	if err != nil {
		t.Fatal(err)
	}
	return o
}
