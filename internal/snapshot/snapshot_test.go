package snapshot

import (
	"errors"
	"io"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/jetkeep/jetkeep/format"
	"github.com/jetkeep/jetkeep/internal/jsapi"
	"github.com/jetkeep/jetkeep/internal/testnats"
)

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// start begins a snapshot in chunks of 16 KiB and windows of four of a new
// stream of about 3 MB.
func start(t *testing.T, nc *nats.Conn, o Options) *Receiver {
	t.Helper()
	o.Stream = testnats.Fill(t, nc, testnats.FillOptions{
		Messages: 200, Size: 60_000, NoDeletes: true, Configure: func(c *jetstream.StreamConfig) { c.Storage = jetstream.MemoryStorage },
	})
	o.ChunkSize, o.WindowSize = 16<<10, 64<<10
	js, err := jsapi.New(nc, jsapi.Options{})
	check(t, err)
	t.Cleanup(js.Close)
	r, err := Start(t.Context(), js, o)
	check(t, err)
	t.Cleanup(r.Close)
	return r
}

// holds returns how many bytes and chunks are in memory.
func (r *Receiver) holds() (int64, int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.held, len(r.queue)
}

func TestReadsAWholeArchive(t *testing.T) {
	t.Parallel()
	nc := testnats.Single(t).Connect(t)
	r := start(t, nc, Options{Hold: 1 << 20, Idle: 10 * time.Second})
	ins, err := format.Inspect(t.Context(), r, format.InspectOptions{})
	check(t, err)
	file := &format.BackupFile{Config: r.Config, State: r.State}
	check(t, format.Belongs(file, ins))
	if file.StreamName() != r.o.Stream || ins.Figures.Messages != 200 {
		t.Errorf("stream %q, %+v", file.StreamName(), ins.Figures)
	}
	if n, err := r.Read(make([]byte, 1)); n != 0 || err != io.EOF {
		t.Errorf("behind the end: %d, %v", n, err)
	}
	r.Close() // a second Close is fine
}

// TestStalledReading (T3): while nobody reads for longer than the server's own
// patience, one chunk at a time is added to the window, and all arrives.
func TestStalledReading(t *testing.T) {
	t.Parallel()
	nc := testnats.Single(t).Connect(t)
	r := start(t, nc, Options{Hold: 1 << 20, Idle: time.Second})
	const window, chunk = 64 << 10, 16 << 10
	began := time.Now()
	for time.Since(began) < 8*time.Second {
		time.Sleep(50 * time.Millisecond)
		most := window + int64(time.Since(began)/earlyAck+1)*chunk
		if held, _ := r.holds(); held > most {
			t.Fatalf("%d bytes held after %v, more than %d", held, time.Since(began), most)
		}
	}
	if held, _ := r.holds(); held <= window {
		t.Errorf("%d bytes held: nothing was acknowledged early", held)
	}
	ins, err := format.Inspect(t.Context(), r, format.InspectOptions{})
	check(t, err)
	if held, n := r.holds(); held != 0 || n != 0 || ins.Figures.Messages != 200 {
		t.Errorf("%d bytes in %d chunks held at the end of %d messages", held, n, ins.Figures.Messages)
	}
}

// TestStalledForTooLong: the limit holds, and the reason is told.
func TestStalledForTooLong(t *testing.T) {
	t.Parallel()
	s := testnats.Single(t)
	const hold = 72 << 10
	r := start(t, s.Connect(t), Options{Hold: hold, Idle: time.Minute})
	var most int64
	testnats.Eventually(t, func() error {
		held, _ := r.holds()
		most = max(most, held)
		if len(s.Log.Find("no flow response")) == 0 {
			return errors.New("the server hasn't given up")
		}
		return nil
	})
	if most > hold+16<<10 {
		t.Errorf("%d bytes were held", most)
	}
	_, err := io.Copy(io.Discard, r)
	var status *StatusError
	if !errors.Is(err, ErrSlowReader) || !errors.As(err, &status) || status.Status != "408" {
		t.Errorf("got %v", err)
	}
	if held, n := r.holds(); held != 0 || n != 0 {
		t.Errorf("%d bytes in %d chunks are still held", held, n)
	}
	r.mu.Lock()
	r.lastAck = time.Time{}
	r.mu.Unlock()
	r.ackEarly() // finds nothing, however many had been acknowledged
}

// TestLostChunk: a chunk that doesn't come is noticed by the next one's number.
func TestLostChunk(t *testing.T) {
	t.Parallel()
	nc := testnats.Single(t).Connect(t)
	r := start(t, nc, Options{Hold: 1 << 20, Idle: 10 * time.Second})
	_, err := io.ReadFull(r, make([]byte, 100_000))
	check(t, err)
	r.mu.Lock()
	r.chunks-- // as if one hadn't come
	r.mu.Unlock()
	if _, err := io.Copy(io.Discard, r); !errors.Is(err, ErrChunkLost) {
		t.Errorf("got %v", err)
	}
}

// TestCloseTellsTheServer: nobody reads on, so the server stops sending.
func TestCloseTellsTheServer(t *testing.T) {
	t.Parallel()
	s := testnats.Single(t)
	r := start(t, s.Connect(t), Options{Hold: 1 << 20, Idle: 10 * time.Second})
	_, err := io.ReadFull(r, make([]byte, 100_000))
	check(t, err)
	r.mu.Lock()
	r.lastAck = time.Time{}
	r.mu.Unlock()
	r.ackEarly()
	r.Close()
	r.ackEarly() // what was acknowledged is gone
	s.Log.Wait(t, "no interest")
	if _, err := io.Copy(io.Discard, r); err == nil {
		t.Error("reading went on after Close")
	}
}
