package format

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"math/rand/v2"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/klauspost/compress/s2"
	"github.com/nats-io/nats-server/v2/server/archive"
)

// benchMessages makes 1 KiB messages of which half compresses.
func benchMessages(n int, yield func(*Message)) {
	src := rand.NewChaCha8([32]byte{})
	m := Message{Header: []byte("NATS/1.0\r\nNats-Msg-Id: 0123456789\r\n\r\n"), Payload: make([]byte, 1024)}
	for i := range n {
		m.Seq, m.Time = uint64(i+1), stamp+int64(i)
		m.Subject = fmt.Appendf(m.Subject[:0], "orders.%d", i%1000)
		src.Read(m.Payload[:512])
		yield(&m)
	}
}

const benchCount = 60_000

// benchArchive is about 64 MiB decompressed.
var benchArchive = sync.OnceValues(func() (data []byte, raw int64) {
	var buf bytes.Buffer
	enc := s2.NewWriter(&buf)
	p := rawArchive(rawEntry{name: "state.json", payload: fmt.Sprintf(`{"first_seq":1,"last_seq":%d}`, benchCount)})
	raw = int64(len(p))
	enc.Write(p)
	benchMessages(benchCount, func(m *Message) {
		p = appendEntry(p[:0], &entry{name: m.Subject, time: m.Time, seq: m.Seq, header: m.Header, payload: m.Payload})
		raw += int64(len(p))
		enc.Write(p)
	})
	enc.Write(make([]byte, 5))
	enc.Close()
	return buf.Bytes(), raw + 5
})

// processorTime is what the process has used of all processors.
func processorTime() time.Duration {
	var u syscall.Rusage
	syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// measure runs f and reports its processor time beside the time it took.
func measure(b *testing.B, size int64, f func()) {
	b.SetBytes(size)
	b.ReportAllocs()
	before := processorTime()
	for b.Loop() {
		f()
	}
	b.ReportMetric(float64(processorTime()-before)/float64(b.N)/1e6, "cpu-ms/op")
}

func BenchmarkInspect(b *testing.B) {
	data, raw := benchArchive()
	measure(b, raw, func() {
		ins, err := Inspect(context.Background(), bytes.NewReader(data), InspectOptions{})
		if err != nil || ins.Figures.Messages != benchCount {
			b.Fatal(err)
		}
	})
}

// BenchmarkServerReader does what Inspect does with the server's own reader,
// but for figures and most checks.
func BenchmarkServerReader(b *testing.B) {
	data, raw := benchArchive()
	measure(b, raw, func() {
		sum := sha256.New()
		ar := archive.NewReader(s2.NewReader(io.TeeReader(bytes.NewReader(data), sum)))
		buf := make([]byte, 64<<10)
		n := 0
		for {
			h, err := ar.Next()
			if err == io.EOF {
				break
			}
			if err != nil {
				b.Fatal(err)
			}
			if h.Sequence > 0 {
				n++
			}
			if _, err := io.ReadFull(ar, buf[:h.HeaderSize+h.PayloadSize]); err != nil {
				b.Fatal(err)
			}
		}
		sum.Sum(nil)
		if n != benchCount {
			b.Fatal(n)
		}
	})
}

func BenchmarkWriter(b *testing.B) {
	const n = 20_000
	var messages []Message
	var size int64
	benchMessages(n, func(m *Message) {
		size += int64(m.Size())
		messages = append(messages, Message{Seq: m.Seq, Time: m.Time, Subject: bytes.Clone(m.Subject), Header: m.Header, Payload: bytes.Clone(m.Payload)})
	})
	measure(b, size, func() {
		w := NewWriter(io.Discard)
		if err := w.WriteHead(&Head{State: State{FirstSeq: 1, LastSeq: n}}); err != nil {
			b.Fatal(err)
		}
		for i := range messages {
			w.WriteMessage(&messages[i])
		}
		if err := w.Close(); err != nil {
			b.Fatal(err)
		}
	})
}

func BenchmarkRelay(b *testing.B) {
	data, raw := benchArchive()
	measure(b, raw, func() {
		var head *Head
		relay := NewRelay(io.Discard, func() (*Head, error) { return head, nil })
		_, err := Inspect(context.Background(), bytes.NewReader(data), InspectOptions{
			OnHead:  func(h *Head) error { head = h; return nil },
			OnBlock: relay.Block,
		})
		if err != nil {
			b.Fatal(err)
		}
	})
}
