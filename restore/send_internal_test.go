package restore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"runtime"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/klauspost/compress/s2"
	"github.com/nats-io/nats.go"

	"github.com/jetkeep/jetkeep/format"
	"github.com/jetkeep/jetkeep/internal/jsapi"
	"github.com/jetkeep/jetkeep/internal/testnats"
)

// toSubject is a sender whose chunks go to a subject of the test's, on a
// connection of its own.
func toSubject(t *testing.T, s *testnats.Server, o Options) (*sender, string) {
	t.Helper()
	js, err := jsapi.New(s.Connect(t), jsapi.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(js.Close)
	o.defaults()
	subject := "chunks." + testnats.Name(t)
	snd, err := newSender(t.Context(), js, subject, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(snd.close)
	return snd, subject
}

// Padding may stand wherever reached says so: inserted at every such place of a
// compressed stream it changes nothing, and nowhere else is it claimed.
func TestPaddingOnlyBetweenChunks(t *testing.T) {
	t.Parallel()
	var stored bytes.Buffer
	w := s2.NewWriter(&stored, s2.WriterBlockSize(4<<10), s2.WriterConcurrency(1))
	raw := make([]byte, 50<<10)
	for i := range raw {
		raw[i] = byte(rand.IntN(7))
	}
	w.Write(raw)
	w.Close()
	data := stored.Bytes()
	var c chunkEnd
	var padded bytes.Buffer
	places := 0
	for i := range data {
		if c.reached() {
			places++
			padded.WriteString(format.Padding)
		}
		c.write(data[i : i+1])
		padded.WriteByte(data[i])
	}
	if !c.reached() || places < 10 || places > 20 {
		t.Errorf("%d places", places)
	}
	got, err := io.ReadAll(s2.NewReader(&padded))
	if err != nil || !bytes.Equal(got, raw) {
		t.Errorf("%v, %d bytes", err, len(got))
	}
	var whole chunkEnd // pieces of any size give the same
	for p := data; len(p) > 0; {
		n := min(len(p), 1+rand.IntN(5000))
		whole.write(p[:n])
		p = p[n:]
	}
	if !whole.reached() {
		t.Error("the end isn't seen")
	}
	if c = (chunkEnd{}); c.reached() {
		t.Error("padding before the stream identifier")
	}
}

// While the source stalls padding is sent, but never inside a chunk.
func TestPaddingWhileTheSourceStalls(t *testing.T) {
	t.Parallel()
	s := testnats.Single(t)
	snd, subject := toSubject(t, s, Options{})
	nc := s.Connect(t)
	sub, err := nc.SubscribeSync(subject)
	if err != nil {
		t.Fatal(err)
	}
	nc.Flush()
	// The identifier goes out at once when nothing else comes, padded.
	m, err := sub.NextMsg(5 * time.Second)
	if err != nil || string(m.Data) != format.StreamIdentifier+format.Padding {
		t.Fatalf("%v %q", err, m.Data)
	}
	m.Respond(nil)
	// In the middle of a chunk nothing may be put in.
	half := "\x00\x10\x00\x00abc"
	if _, err := snd.Write([]byte(half)); err != nil {
		t.Fatal(err)
	}
	if m, err := sub.NextMsg(3 * time.Second); err == nil {
		t.Errorf("sent: %q", m.Data)
	}
	rest := strings.Repeat("x", 13)
	if _, err := snd.Write([]byte(rest)); err != nil {
		t.Fatal(err)
	}
	m, err = sub.NextMsg(5 * time.Second)
	if err != nil || string(m.Data) != half+rest+format.Padding {
		t.Fatalf("%v %q", err, m.Data)
	}
}

// At most the window is in flight, and chunks are full.
func TestWindow(t *testing.T) {
	t.Parallel()
	s := testnats.Single(t)
	const chunk, window = 4 << 10, 32 << 10
	snd, subject := toSubject(t, s, Options{ChunkSize: chunk, WindowSize: window})
	nc := s.Connect(t)
	var inFlight, most, total atomic.Int64
	held := make(chan *nats.Msg, 1000)
	if _, err := nc.Subscribe(subject, func(m *nats.Msg) {
		most.Store(max(most.Load(), inFlight.Add(int64(len(m.Data)))))
		total.Add(int64(len(m.Data)))
		held <- m
	}); err != nil {
		t.Fatal(err)
	}
	nc.Flush()
	go func() {
		for m := range held {
			if len(held) == 0 {
				time.Sleep(time.Millisecond) // let it fill
			}
			inFlight.Add(-int64(len(m.Data)))
			m.Respond(nil)
		}
	}()
	const size = 1 << 20
	done := make(chan error, 1)
	go func() {
		_, err := snd.Write(make([]byte, size))
		if err == nil {
			err = snd.finish(10 * time.Second)
		}
		done <- err
	}()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if most.Load() > window || most.Load() < window/2 {
		t.Errorf("%d bytes were in flight, of %d allowed", most.Load(), window)
	}
	if want := int64(size + len(format.StreamIdentifier)); total.Load() != want {
		t.Errorf("%d bytes arrived of %d", total.Load(), want)
	}
}

// What the answers to chunks say ends the transfer.
func TestAnswersThatEndATransfer(t *testing.T) {
	t.Parallel()
	s := testnats.Single(t)
	write := func(snd *sender) error {
		for range 1000 {
			if _, err := snd.Write(make([]byte, 64<<10)); err != nil {
				return err
			}
			time.Sleep(5 * time.Millisecond)
		}
		return nil
	}
	answering := func(t *testing.T, answer string) error {
		snd, subject := toSubject(t, s, Options{ChunkSize: 4 << 10, WindowSize: 64 << 10})
		nc := s.Connect(t)
		if _, err := nc.Subscribe(subject, func(m *nats.Msg) { m.Respond([]byte(answer)) }); err != nil {
			t.Fatal(err)
		}
		nc.Flush()
		return write(snd)
	}
	t.Run("nobody listens", func(t *testing.T) {
		t.Parallel()
		snd, _ := toSubject(t, s, Options{})
		if err := write(snd); !errors.Is(err, ErrDropped) || !strings.Contains(err.Error(), "503") {
			t.Error(err)
		}
	})
	t.Run("error", func(t *testing.T) {
		t.Parallel()
		err := answering(t, `{"error":{"code":500,"err_code":10062,"description":"restore failed: failed to store message sequence 571: write /x: no space left on device"}}`)
		var store *StoreError
		var cause *ServerCause
		if !errors.As(err, &store) || store.Seq != 571 || !errors.As(err, &cause) || cause.Text != "write /x: no space left on device" {
			t.Error(err)
		}
		if !errors.Is(err, syscall.ENOSPC) || !jsapi.IsCode(err, jsapi.CodeRestoreFailed) {
			t.Errorf("%v: the cause isn't reached", err)
		}
	})
	t.Run("another error", func(t *testing.T) {
		t.Parallel()
		err := answering(t, `{"error":{"code":500,"err_code":10062,"description":"restore failed: backup was truncated"}}`)
		var store *StoreError
		if errors.As(err, &store) || !jsapi.IsCode(err, jsapi.CodeRestoreFailed) {
			t.Error(err)
		}
	})
	t.Run("rubbish", func(t *testing.T) {
		t.Parallel()
		if err := answering(t, `rubbish`); err == nil || !strings.Contains(err.Error(), "answer to a chunk") {
			t.Error(err)
		}
	})
	t.Run("silence", func(t *testing.T) {
		t.Parallel()
		snd, subject := toSubject(t, s, Options{ChunkSize: 4 << 10, WindowSize: 64 << 10, IdleTimeout: time.Second})
		nc := s.Connect(t)
		if _, err := nc.SubscribeSync(subject); err != nil {
			t.Fatal(err)
		}
		nc.Flush()
		if err := write(snd); !errors.Is(err, ErrDropped) {
			t.Error(err)
		}
	})
	t.Run("no last word", func(t *testing.T) {
		t.Parallel()
		snd, subject := toSubject(t, s, Options{})
		nc := s.Connect(t)
		if _, err := nc.Subscribe(subject, func(m *nats.Msg) {
			if len(m.Data) > 0 {
				m.Respond(nil)
			}
		}); err != nil {
			t.Fatal(err)
		}
		nc.Flush()
		if err := snd.finish(500 * time.Millisecond); !errors.Is(err, ErrNoAnswer) {
			t.Error(err)
		}
	})
}

// The context's own cause ends a write that waits for room.
func TestCancelledWrite(t *testing.T) {
	t.Parallel()
	s := testnats.Single(t)
	js, err := jsapi.New(s.Connect(t), jsapi.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer js.Close()
	nc := s.Connect(t)
	if _, err := nc.SubscribeSync("nobody.answers"); err != nil {
		t.Fatal(err)
	}
	nc.Flush()
	ctx, cancel := context.WithCancelCause(t.Context())
	o := Options{ChunkSize: 4 << 10, WindowSize: 8 << 10}
	o.defaults()
	snd, err := newSender(ctx, js, "nobody.answers", o)
	if err != nil {
		t.Fatal(err)
	}
	mine := errors.New("mine")
	time.AfterFunc(100*time.Millisecond, func() { cancel(mine) })
	if _, err := snd.Write(make([]byte, 1<<20)); !errors.Is(err, mine) {
		t.Error(err)
	}
	snd.close()
}

// A sender leaves nothing behind on its connection.
func TestSenderCleansUp(t *testing.T) {
	s := testnats.Single(t)
	nc := s.Connect(t)
	js, err := jsapi.New(nc, jsapi.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer js.Close()
	o := Options{}
	o.defaults()
	before, subs := runtime.NumGoroutine(), nc.NumSubscriptions()
	for i := range 50 {
		snd, err := newSender(t.Context(), js, fmt.Sprint("x.", i), o)
		if err != nil {
			t.Fatal(err)
		}
		snd.close()
	}
	testnats.Eventually(t, func() error {
		if g, n := runtime.NumGoroutine(), nc.NumSubscriptions(); g > before+2 || n > subs {
			return fmt.Errorf("%d goroutines and %d subscriptions, %d and %d before", g, n, before, subs)
		}
		return nil
	})
}

func TestClockSkew(t *testing.T) {
	t.Parallel()
	asked := time.Now()
	answered := asked.Add(3 * time.Second) // a slow line
	for _, c := range []struct{ said, want time.Duration }{
		{0, 0}, {3 * time.Second, 0}, {1500 * time.Millisecond, 0},
		{-900 * time.Millisecond, 0}, {3900 * time.Millisecond, 0},
		{-time.Hour, -time.Hour}, {time.Hour, time.Hour - 3*time.Second},
	} {
		if got := clockSkew(asked, answered, asked.Add(c.said)); got != c.want {
			t.Errorf("said %v: %v instead of %v", c.said, got, c.want)
		}
	}
	if clockSkew(asked, answered, time.Time{}) != 0 {
		t.Error("without a time")
	}
}

func TestVersions(t *testing.T) {
	t.Parallel()
	for v, want := range map[string]bool{
		"2.15.3": true, "2.15.4": true, "2.16.0": true, "3.0.0": true, "2.15.3-RC.1": true, "2.15.10": true,
		"2.15.2": false, "2.14.9": false, "2.9.30": false, "": false, "x.y": false,
	} {
		if got := versionAtLeast(v, 2, 15, 3); got != want {
			t.Errorf("%q: %v", v, got)
		}
	}
}

func TestDropIdentity(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"NATS/1.0\r\nNats-Stream-Source: S 50 > > s.x AbCdEfGh\r\n\r\n":                "NATS/1.0\r\nNats-Stream-Source: S 50 > > s.x\r\n\r\n",
		"NATS/1.0\r\nA: S 5 > > s x\r\nNats-Stream-Source:S 5 > > s x\r\nB: c\r\n\r\n": "NATS/1.0\r\nA: S 5 > > s x\r\nNats-Stream-Source:S 5 > > s\r\nB: c\r\n\r\n",
		"NATS/1.0\r\nNats-Stream-Source: S 50 > > s.x\r\n\r\n":                         "",
		"NATS/1.0\r\nNats-Stream-Source: S 50\r\n\r\n":                                 "",
		"NATS/1.0\r\nNats-Stream-Source: a b c d e f g\r\n\r\n":                        "",
		"NATS/1.0\r\nX-Nats-Stream-Source: S 5 > > s x\r\n\r\n":                        "",
		"NATS/1.0\r\nA: b\r\n\r\n":                                                     "",
		"":                                                                             "",
	} {
		if want == "" {
			want = in
		}
		if got := string(dropIdentity([]byte(in))); got != want {
			t.Errorf("%q: %q", in, got)
		}
	}
}
