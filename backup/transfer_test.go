package backup_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/jetkeep/jetkeep/backup"
	"github.com/jetkeep/jetkeep/internal/slowlink"
	"github.com/jetkeep/jetkeep/internal/testnats"
)

// retries collects what Options.Retrying is told.
type retries struct {
	mu   sync.Mutex
	errs []error
}

func (r *retries) note(_ int, err error, _ time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.errs = append(r.errs, err)
}

// only checks that there was one retry, for the reason given.
func (r *retries) only(t testing.TB, reason error) {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.errs) != 1 || !errors.Is(r.errs[0], reason) {
		t.Errorf("retried for %v, want once for %q", r.errs, reason)
	}
}

// TestSlowLink (T1): the whole takes longer than the idle timeout.
func TestSlowLink(t *testing.T) {
	t.Parallel()
	s := testnats.Single(t)
	stream := fill(t, s.Connect(t), 200)
	link := testnats.Proxy(t, s.URL(), testnats.ProxyOptions{Delay: 25 * time.Millisecond, Bandwidth: 1 << 20})
	nc := connect(t, link.URL())
	began := time.Now()
	res := take(t, nc, newRepo(t), backup.Options{Stream: stream, IdleTimeout: 2 * time.Second})
	if took := time.Since(began); res.Attempts != 1 || took < 2500*time.Millisecond {
		t.Errorf("%d attempts, %v: that was no test", res.Attempts, took)
	}
	agrees(t, s.Connect(t), stream, res)
}

// connect connects through a proxy.
func connect(t testing.TB, url string, opts ...nats.Option) *nats.Conn {
	t.Helper()
	nc, err := nats.Connect(url, append([]nats.Option{
		nats.MaxReconnects(-1), nats.ReconnectWait(20 * time.Millisecond), nats.ReconnectJitter(0, 0),
		nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {}),
	}, opts...)...)
	check(t, err)
	t.Cleanup(nc.Close)
	return nc
}

// TestVerySlowLink: the window takes longer on its way than the server allows a
// client, and the retry asks for less.
func TestVerySlowLink(t *testing.T) {
	t.Parallel()
	s := testnats.Single(t, testnats.Options{Conf: `write_deadline: "1s"`})
	stream := fill(t, s.Connect(t), 1000)
	link := testnats.Proxy(t, s.URL(), testnats.ProxyOptions{Bandwidth: 1 << 20, Window: 64 << 10})
	var again retries
	// The buffers on the way don't hold the first window.
	o := backup.Options{Stream: stream, ChunkSize: 1 << 20, WindowSize: 32 << 20, Retrying: again.note}
	res := take(t, connect(t, link.URL()), newRepo(t), o)
	if res.Attempts < 2 || !errors.Is(again.errs[0], backup.ErrDisconnected) {
		t.Errorf("%d attempts: %v", res.Attempts, again.errs)
	}
	if f := res.Manifest.Figures; f.Messages != 1000 {
		t.Errorf("figures %+v", f)
	}
}

// TestSilentServer (T2): a process that is stopped in mid-backup.
func TestSilentServer(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(*testnats.Child){
		"stopped": func(c *testnats.Child) { c.Pause(t) },
		"killed":  func(c *testnats.Child) { c.Kill() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := testnats.Process(t, testnats.ServerBinary(t, "2.15.3"))
			nc := c.Connect(t)
			stream := fill(t, nc, 200)
			r := newRepo(t)
			// The window is small, so that most of it hasn't been sent yet.
			o := backup.Options{
				Stream: stream, ChunkSize: 16 << 10, WindowSize: 64 << 10, Retries: backup.NoRetries,
				IdleTimeout: 2 * time.Second, RequestTimeout: time.Second,
			}
			within(t, 10*time.Second, func() {
				_, err := backup.Take(t.Context(), nc, through(into(r), once(1<<20, func() { end(c) })), o)
				want := map[string]error{"stopped": backup.ErrStalled, "killed": backup.ErrDisconnected}[name]
				failure(t, err, want, 1)
				if name == "stopped" && !strings.Contains(err.Error(), "the stream doesn't answer") {
					t.Errorf("the cause isn't named: %v", err)
				}
			})
			nothingIn(t, r)
		})
	}
}

// TestServerStopsAndComesBack: a clean stop in mid-backup, and a restart.
func TestServerStopsAndComesBack(t *testing.T) {
	t.Parallel()
	c := testnats.Process(t, testnats.ServerBinary(t, "2.15.3"))
	nc := c.Connect(t)
	stream := fill(t, nc, 200)
	var again retries
	res, err := backup.Take(t.Context(), nc, through(into(newRepo(t)), once(1<<20, func() {
		c.Stop(t)
		c.Start(t)
	})), backup.Options{Stream: stream, ChunkSize: 16 << 10, WindowSize: 64 << 10, Retrying: again.note})
	check(t, err)
	agrees(t, nc, stream, res)
	if res.Attempts < 2 {
		t.Errorf("%d attempts", res.Attempts)
	}
}

// TestServerThatIsStarting (T7): the backup begins before the server listens.
func TestServerThatIsStarting(t *testing.T) {
	t.Parallel()
	c := testnats.Process(t, testnats.ServerBinary(t, "2.15.3"))
	stream := fill(t, c.Connect(t), 400)
	c.Kill() // its indexes are lost: it recovers from the blocks
	nc := connect(t, c.URL(), nats.RetryOnFailedConnect(true))
	type outcome struct {
		res *backup.Result
		err error
	}
	done := make(chan outcome)
	go func() {
		res, err := backup.Take(t.Context(), nc, into(newRepo(t)), backup.Options{Stream: stream, RequestTimeout: time.Second})
		done <- outcome{res, err}
	}()
	c.Start(t)
	o := <-done
	check(t, o.err)
	agrees(t, nc, stream, o.res)
}

// TestStallingSink (T3): one write takes longer than the server waits.
func TestStallingSink(t *testing.T) {
	t.Parallel()
	nc := testnats.Single(t).Connect(t)
	stream := fill(t, nc, 200)
	r := newRepo(t)
	res, err := backup.Take(t.Context(), nc, through(into(r), once(1<<20, func() { time.Sleep(8 * time.Second) })),
		backup.Options{Stream: stream, ChunkSize: 16 << 10, WindowSize: 64 << 10, IdleTimeout: 2 * time.Second})
	check(t, err)
	if res.Attempts != 1 {
		t.Errorf("%d attempts", res.Attempts)
	}
	agrees(t, nc, stream, res)
}

// TestSinkBeyondTheLimit: the writer stalls for longer than the queue bridges.
func TestSinkBeyondTheLimit(t *testing.T) {
	t.Parallel()
	s := testnats.Single(t)
	nc := s.Connect(t)
	stream := fill(t, nc, 200)
	r := newRepo(t)
	stall := onRead(func(n int64) error {
		if n < 1<<20 {
			return nil
		}
		// Until the server has given up, which is what the test is about.
		s.Log.Wait(t, "no flow response")
		return nil
	})
	o := backup.Options{Stream: stream, ChunkSize: 16 << 10, WindowSize: 64 << 10, QueueSize: 80 << 10, Retries: backup.NoRetries}
	within(t, 30*time.Second, func() {
		_, err := backup.Take(t.Context(), nc, through(into(r), stall), o)
		failure(t, err, backup.ErrSlowSink, 1)
	})
	nothingIn(t, r)
}

// TestZeros (T5): what compresses to nothing comes in one chunk.
func TestZeros(t *testing.T) {
	t.Parallel()
	nc := testnats.Single(t).Connect(t)
	js := newJetStream(t, nc)
	stream := fill(t, nc, 0)
	const n = 30
	for range n {
		_, err := js.Publish(t.Context(), stream+".zero", make([]byte, 1<<20-100))
		check(t, err)
	}
	res := take(t, nc, newRepo(t), backup.Options{Stream: stream})
	if f := res.Manifest.Figures; f.Messages != n || res.Manifest.Objects[0].Bytes > 128<<10 {
		t.Errorf("figures %+v, objects %+v", f, res.Manifest.Objects)
	}
}

// TestCutConnection: the line breaks in mid-transfer, and comes back.
func TestCutConnection(t *testing.T) {
	t.Parallel()
	s := testnats.Single(t)
	stream := fill(t, s.Connect(t), 100)
	link := testnats.Proxy(t, s.URL(), testnats.ProxyOptions{})
	nc := connect(t, link.URL())
	// At several places: after the first chunk, in the middle, near the end.
	for _, at := range []int64{40 << 10, 700 << 10, 1550 << 10} {
		link.After(slowlink.Down, at, link.Cut)
		var again retries
		res := take(t, nc, newRepo(t), backup.Options{Stream: stream, Retrying: again.note})
		again.only(t, backup.ErrDisconnected)
		agrees(t, s.Connect(t), stream, res)
	}
}

// TestClosedConnection: a connection that its owner has closed is no reason to
// wait.
func TestClosedConnection(t *testing.T) {
	t.Parallel()
	nc := testnats.Single(t).Connect(t)
	stream := fill(t, nc, 100)
	r := newRepo(t)
	within(t, 5*time.Second, func() {
		_, err := backup.Take(t.Context(), nc, through(into(r), once(512<<10, nc.Close)),
			backup.Options{Stream: stream, ChunkSize: 16 << 10, WindowSize: 64 << 10})
		failure(t, err, nats.ErrConnectionClosed, 1)
	})
	nothingIn(t, r)
}

// TestStreamDeleted: deleted in mid-backup, it's gone; deleted and created
// again, the new one is backed up.
func TestStreamDeleted(t *testing.T) {
	t.Parallel()
	nc := testnats.Single(t).Connect(t)
	js := newJetStream(t, nc)
	o := backup.Options{ChunkSize: 16 << 10, WindowSize: 64 << 10}

	stream := fill(t, nc, 200)
	r := newRepo(t)
	o.Stream = stream
	_, err := backup.Take(t.Context(), nc, through(into(r), once(1<<20, func() { check(t, js.DeleteStream(t.Context(), stream)) })), o)
	failure(t, err, backup.ErrStreamGone, 1)
	nothingIn(t, r)

	stream = fill(t, nc, 200)
	o.Stream = stream
	var again retries
	o.Retrying = again.note
	res, err := backup.Take(t.Context(), nc, through(into(r), once(1<<20, func() {
		check(t, js.DeleteStream(t.Context(), stream))
		_, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: stream, Subjects: []string{stream + ".>"}})
		check(t, err)
		publish(t, nc, stream, 10)
	})), o)
	check(t, err)
	again.only(t, backup.ErrStreamReplaced)
	agrees(t, nc, stream, res)
}

// TestStreamDeletedAtTheEnd: all of it has arrived when the stream goes. That
// backup is the last that there can be.
func TestStreamDeletedAtTheEnd(t *testing.T) {
	t.Parallel()
	nc := testnats.Single(t).Connect(t)
	stream := fill(t, nc, 10)
	want := dump(t, nc, stream)
	del := once(100<<10, func() { check(t, newJetStream(t, nc).DeleteStream(t.Context(), stream)) })
	res, err := backup.Take(t.Context(), nc, through(into(newRepo(t)), del), backup.Options{Stream: stream})
	check(t, err)
	if got, _ := inspect(t, res.Backup); len(got.Messages) != len(want.Messages) {
		t.Errorf("%d messages, want %d", len(got.Messages), len(want.Messages))
	}
}

// TestChangesMeanwhile: what happens to the stream during the snapshot leaves it
// sound, within the sequences that the server announced.
func TestChangesMeanwhile(t *testing.T) {
	t.Parallel()
	nc := testnats.Single(t).Connect(t)
	js := newJetStream(t, nc)
	for name, change := range map[string]func(s jetstream.Stream, name string) error{
		"publish": func(_ jetstream.Stream, name string) error { publish(t, nc, name, 50); return nil },
		"delete": func(s jetstream.Stream, _ string) error {
			var errs []error
			for seq := uint64(80); seq < 200; seq += 3 {
				errs = append(errs, s.DeleteMsg(t.Context(), seq))
			}
			return errors.Join(errs...)
		},
		"purge": func(s jetstream.Stream, _ string) error { return s.Purge(t.Context()) },
		"compact": func(s jetstream.Stream, _ string) error {
			return s.Purge(t.Context(), jetstream.WithPurgeSequence(180))
		},
		"purge and publish": func(s jetstream.Stream, name string) error {
			err := s.Purge(t.Context())
			publish(t, nc, name, 50)
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			stream := fill(t, nc, 200)
			before := dump(t, nc, stream)
			s, err := js.Stream(t.Context(), stream)
			check(t, err)
			res, err := backup.Take(t.Context(), nc, through(into(newRepo(t)), once(400<<10, func() { check(t, change(s, stream)) })),
				backup.Options{Stream: stream, ChunkSize: 16 << 10, WindowSize: 64 << 10})
			check(t, err)
			c, ins := inspect(t, res.Backup)
			f := res.Manifest.Figures
			if res.Attempts != 1 || f.FirstSeq != 1 || f.LastSeq != 200 || ins.Head.State.LastSeq != 200 {
				t.Errorf("%d attempts, figures %+v", res.Attempts, f)
			}
			held := map[uint64]bool{}
			for _, m := range c.Messages {
				held[m.Seq] = true
				if string(before.Messages[m.Seq-1].Data) != string(m.Data) {
					t.Fatalf("message %d isn't the one it was", m.Seq)
				}
			}
			// At the end the archive holds all that is left of what there was.
			for _, m := range dump(t, nc, stream).Messages {
				if m.Seq <= 200 && !held[m.Seq] {
					t.Errorf("message %d is missing", m.Seq)
				}
			}
		})
	}
}

// TestCancel: the context ends in mid-backup, while data flows and while nothing
// comes.
func TestCancel(t *testing.T) {
	t.Parallel()
	s := testnats.Single(t)
	stream := fill(t, s.Connect(t), 200)
	cause := errors.New("the reason")
	for _, stalled := range []bool{false, true} {
		link := testnats.Proxy(t, s.URL(), testnats.ProxyOptions{})
		nc := connect(t, link.URL())
		r := newRepo(t)
		ctx, cancel := context.WithCancelCause(t.Context())
		began := make(chan struct{})
		go func() {
			<-began
			if stalled {
				time.Sleep(200 * time.Millisecond) // the reader is waiting by then
			}
			cancel(cause)
		}()
		within(t, 3*time.Second, func() {
			_, err := backup.Take(ctx, nc, through(into(r), once(400<<10, func() {
				if stalled {
					link.Stall()
				}
				close(began)
				if !stalled {
					<-ctx.Done()
				}
			})), backup.Options{Stream: stream, ChunkSize: 16 << 10, WindowSize: 64 << 10})
			if !errors.Is(err, cause) {
				t.Errorf("got %v", err)
			}
		})
		nothingIn(t, r)
	}
}
