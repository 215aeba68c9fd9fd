// Package snapshot receives a snapshot that a server sends: it subscribes, asks
// for it, acknowledges chunks so that neither side overruns the other, and reads
// as the archive's bytes. It never retries and looks at no byte of what it
// carries.
package snapshot

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/jetkeep/jetkeep/format"
	"github.com/jetkeep/jetkeep/internal/jsapi"
)

// Why a transfer ended.
var (
	// ErrStalled says that no data came for the idle timeout.
	ErrStalled = errors.New("the transfer stalled")
	// ErrDisconnected says that the connection to the server was lost.
	ErrDisconnected = errors.New("the connection was lost")
	// ErrServer says that the server ended the transfer; [StatusError] has its
	// words.
	ErrServer = errors.New("the server gave up")
	// ErrChunkLost says that a chunk is missing between two others.
	ErrChunkLost = errors.New("a chunk was lost on the way")
	// ErrSlowReader says that reading stalled for longer than the memory limit
	// could bridge.
	ErrSlowReader = errors.New("writing stalled for longer than memory could bridge")
)

// StatusError is how the server ended a transfer before its end: 408 when it
// waited in vain for acknowledgements or saw no interest any more, 500 when it
// couldn't go on reading the stream. It wraps ErrServer.
type StatusError struct {
	Status, Text string
}

func (e *StatusError) Error() string { return fmt.Sprintf("%v: %s %s", ErrServer, e.Status, e.Text) }

// Unwrap returns ErrServer.
func (e *StatusError) Unwrap() error { return ErrServer }

// Options of a transfer; every field has to be set but Probe and NoConsumers.
type Options struct {
	Stream                string
	NoConsumers           bool
	ChunkSize, WindowSize int
	// Hold is how many bytes are kept in memory at most while reading stalls,
	// give or take a chunk.
	Hold int64
	// Idle is how long nothing may arrive.
	Idle time.Duration
	// Probe is asked now and then, while nothing arrives, why that is; an error
	// ends the transfer. Its context ends when the idle timeout does.
	Probe func(context.Context) error
}

const (
	// serverPatience is how long the server waits for an acknowledgement.
	serverPatience = 5 * time.Second
	// earlyAck is how long reading may stall before a chunk is acknowledged
	// ahead of it.
	earlyAck = 1500 * time.Millisecond
	// probeAfter is how long nothing comes before Probe is asked, and how long
	// before it's asked again.
	probeAfter = 5 * time.Second
)

// Receiver is the receiving end of one snapshot, and an io.Reader of its
// archive for one goroutine.
type Receiver struct {
	// Config and State are the server's answer to the request, as it came.
	Config format.Object
	State  json.RawMessage

	o     Options
	ctx   context.Context // ends with Close
	nc    *nats.Conn
	sub   *nats.Subscription
	stops []func() // to be called in reverse
	wake  chan struct{}
	// reconnects is how often the connection had been made anew at the start.
	reconnects uint64

	mu      sync.Mutex
	queue   []*nats.Msg // chunks that arrived and weren't read
	acked   int         // how many of them, from the front, were acknowledged
	held    int64       // their bytes
	lastAck time.Time
	full    time.Time // when the limit last kept a chunk from being acknowledged
	quiet   time.Time // since when there has been nothing to read
	chunks  int       // that arrived
	ended   bool
	err     error // why it ended; nil for well

	rest []byte // of the chunk being read
}

// Start asks for a snapshot. The context ends the transfer; Close must be called
// in any case.
func Start(ctx context.Context, js *jsapi.Client, o Options) (*Receiver, error) {
	now := time.Now()
	r := &Receiver{
		o: o, nc: js.Conn(),
		wake:       make(chan struct{}, 1),
		reconnects: js.Conn().Stats().Reconnects,
		lastAck:    now, quiet: now,
	}
	if err := r.subscribe(ctx, js); err != nil {
		r.Close()
		return nil, err
	}
	resp, err := js.StartSnapshot(ctx, o.Stream, jsapi.SnapshotRequest{
		DeliverSubject: r.sub.Subject, NoConsumers: o.NoConsumers,
		ChunkSize: o.ChunkSize, WindowSize: o.WindowSize,
	})
	if err != nil {
		r.Close()
		return nil, err
	}
	r.Config, r.State = resp.Config, resp.State
	return r, nil
}

func (r *Receiver) subscribe(ctx context.Context, js *jsapi.Client) error {
	lost := r.nc.StatusChanged(nats.DISCONNECTED, nats.RECONNECTING, nats.CLOSED)
	r.stops = append(r.stops, func() { r.nc.RemoveStatusListener(lost) })
	inbox := js.NewInbox()
	for _, prefix := range []string{r.ackPrefix(), inbox} {
		r.stops = append(r.stops, js.OnDenied(prefix, func(p *jsapi.PermissionError) { r.end(p) }))
	}
	var err error
	if r.sub, err = r.nc.Subscribe(inbox, r.take); err != nil {
		return err
	}
	r.stops = append(r.stops, func() { _ = r.sub.Unsubscribe() })
	if err := r.sub.SetPendingLimits(-1, -1); err != nil {
		return err
	}
	var cancel context.CancelFunc
	r.ctx, cancel = context.WithCancel(ctx)
	var wg sync.WaitGroup
	wg.Go(func() { r.watch(lost) })
	r.stops = append(r.stops, func() {
		cancel()
		wg.Wait()
	})
	return nil
}

// Close ends the transfer; the server notices that nobody is interested.
func (r *Receiver) Close() {
	for len(r.stops) > 0 {
		last := len(r.stops) - 1
		r.stops[last]()
		r.stops = r.stops[:last]
	}
}

// watch ends the transfer when the context or the connection does, and keeps it
// alive while reading stalls.
func (r *Receiver) watch(lost <-chan nats.Status) {
	tick := time.NewTicker(earlyAck / 3)
	defer tick.Stop()
	for {
		select {
		case <-r.ctx.Done():
			r.end(context.Cause(r.ctx))
			return
		case <-lost:
			r.end(ErrDisconnected)
			return
		case <-tick.C:
			r.ackEarly()
		}
	}
}

// take is called for each message, in order.
func (r *Receiver) take(m *nats.Msg) {
	// The connection may have come back, and the server not noticed: what it
	// sent meanwhile is lost, and the last chunk bears no number to tell.
	lost := r.nc.Stats().Reconnects != r.reconnects
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.ended:
	case lost:
		r.endLocked(ErrDisconnected)
	case len(m.Data) == 0:
		r.endLocked(r.status(m.Header))
	case !r.inOrder(m):
		r.endLocked(fmt.Errorf("%w: after %d chunks came %q", ErrChunkLost, r.chunks, m.Reply))
	default:
		r.chunks++
		r.queue = append(r.queue, m)
		r.held += int64(len(m.Data))
		r.quiet = time.Now()
		r.signal()
	}
}

// status turns the status line of a transfer's last message into an error; nil
// for success, and for the end of an archive that fits in one chunk.
func (r *Receiver) status(h nats.Header) error {
	e := &StatusError{Status: h.Get("Status"), Text: strings.TrimSpace(h.Get("Description"))}
	if e.Status == "" || e.Status == "204" {
		return nil
	}
	if e.Text == "" {
		code, _ := strconv.Atoi(e.Status)
		e.Text = http.StatusText(code)
	}
	switch {
	case e.Status == "408" && time.Since(r.full) < serverPatience:
		return fmt.Errorf("%w (%d bytes): %w", ErrSlowReader, r.o.Hold, e)
	case e.Status == "408" && r.chunks <= max(1, r.o.WindowSize/r.o.ChunkSize):
		// A server that sees one acknowledgement sends more than the window.
		e.Text += fmt.Sprintf(", as if no acknowledgement on %s> had reached it in time", r.ackPrefix())
	}
	return e
}

func (r *Receiver) ackPrefix() string { return "$JS.SNAPSHOT.ACK." + r.o.Stream + "." }

// inOrder checks the count that the server puts last into the subject for
// acknowledgements. The last chunk has none.
func (r *Receiver) inOrder(m *nats.Msg) bool {
	return m.Reply == "" || strings.HasSuffix(m.Reply, "."+strconv.Itoa(r.chunks+1))
}

// end ends the transfer, if it hasn't ended. With an error nothing that is in
// the queue is read any more.
func (r *Receiver) end(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.endLocked(err)
}

func (r *Receiver) endLocked(err error) {
	if r.ended {
		return
	}
	r.ended, r.err = true, err
	if err != nil {
		r.queue, r.acked, r.held = nil, 0, 0
	}
	r.signal()
}

func (r *Receiver) signal() {
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// ackEarly acknowledges a chunk that nobody has read yet when reading stalls, so
// that the server goes on: it sends one more for it.
func (r *Receiver) ackEarly() { ack(r.early()) }

// early returns the chunk to acknowledge early, or nil, and counts it as
// acknowledged.
func (r *Receiver) early() *nats.Msg {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.acked >= len(r.queue) || time.Since(r.lastAck) < earlyAck:
		return nil
	case r.held >= r.o.Hold:
		r.full = time.Now()
		return nil
	}
	m := r.queue[r.acked]
	r.acked++
	r.lastAck = time.Now()
	return m
}

// ack acknowledges a chunk, if there's one. A failure shows as a lost connection.
// A connection whose buffer is full makes this wait: r.mu must not be held, or
// nothing could arrive meanwhile.
func ack(m *nats.Msg) {
	if m != nil && m.Reply != "" {
		_ = m.Respond(nil)
	}
}

// Read returns the archive's bytes, and io.EOF when the server has sent all of
// them and said so.
func (r *Receiver) Read(p []byte) (int, error) {
	for len(r.rest) == 0 {
		chunk, err := r.next()
		if err != nil {
			return 0, err
		}
		r.rest = chunk
	}
	n := copy(p, r.rest)
	r.rest = r.rest[n:]
	return n, nil
}

// next waits for the next chunk.
func (r *Receiver) next() ([]byte, error) {
	var probed time.Time
	for {
		chunk, quiet, err := r.pop()
		if chunk != nil || err != nil {
			return chunk, err
		}
		if r.o.Probe != nil && quiet >= probeAfter && time.Since(probed) >= probeAfter {
			r.probe(r.o.Idle - quiet)
			probed = time.Now()
			continue
		}
		timer := time.NewTimer(min(probeAfter, r.o.Idle-quiet))
		select {
		case <-r.wake:
		case <-timer.C:
		}
		timer.Stop()
	}
}

// probe asks what is wrong, and believes it unless chunks came meanwhile.
func (r *Receiver) probe(limit time.Duration) {
	ctx, cancel := context.WithTimeout(r.ctx, limit)
	defer cancel()
	err := r.o.Probe(ctx)
	r.mu.Lock()
	defer r.mu.Unlock()
	if err != nil && len(r.queue) == 0 {
		r.endLocked(err)
	}
}

// pop takes a chunk from the queue and acknowledges it. When there's none it
// returns how long that has been so, or how the transfer ended.
func (r *Receiver) pop() (chunk []byte, quiet time.Duration, err error) {
	m, due, quiet, err := r.shift()
	if m == nil {
		return nil, quiet, err
	}
	if due {
		ack(m)
	}
	return m.Data, 0, nil
}

// shift takes a chunk from the queue, and says whether its acknowledgement is
// due.
func (r *Receiver) shift() (m *nats.Msg, due bool, quiet time.Duration, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.queue) == 0 {
		if quiet = time.Since(r.quiet); quiet >= r.o.Idle {
			r.endLocked(fmt.Errorf("%w: nothing came for %v, after %d chunks", ErrStalled, r.o.Idle, r.chunks))
		}
		switch {
		case !r.ended:
			return nil, false, quiet, nil
		case r.err != nil:
			return nil, false, 0, r.err
		}
		return nil, false, 0, io.EOF
	}
	m = r.queue[0]
	r.queue[0] = nil
	r.queue = r.queue[1:]
	r.held -= int64(len(m.Data))
	r.quiet = time.Now()
	if r.acked > 0 {
		r.acked--
		return m, false, 0, nil
	}
	r.lastAck = time.Now()
	return m, true, 0, nil
}
