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
	// ErrServer says that the server ended the transfer; its words follow.
	ErrServer = errors.New("the server gave up")
	// ErrChunkLost says that a chunk is missing between two others.
	ErrChunkLost = errors.New("a chunk was lost on the way")
	// ErrSlowReader says that reading stalled for longer than the memory limit
	// could bridge.
	ErrSlowReader = errors.New("writing stalled for longer than memory could bridge")
)

// Options of a transfer; every field has to be set but Probe and NoConsumers.
type Options struct {
	Stream                string
	NoConsumers           bool
	ChunkSize, WindowSize int
	// Hold is how many bytes are kept in memory at most while reading stalls.
	Hold int64
	// Idle is how long nothing may arrive.
	Idle time.Duration
	// Probe is asked now and then, while nothing arrives, why that is; an error
	// ends the transfer.
	Probe func() error
}

const (
	// earlyAck is how long the writer may stall before a chunk is acknowledged
	// ahead of it: the server gives up after five seconds.
	earlyAck = 1500 * time.Millisecond
	// probeAfter is how long nothing comes before the stream's leader is looked
	// up, and how often.
	probeAfter = 5 * time.Second
)

// Receiver is the receiving end of one snapshot, and an io.Reader of its
// archive.
type Receiver struct {
	// Config and State are the server's answer to the request, as it came.
	Config format.Object
	State  json.RawMessage

	o      Options
	sub    *nats.Subscription
	ctx    context.Context
	denied chan *jsapi.PermissionError
	lost   <-chan nats.Status
	stops  []func()

	mu      sync.Mutex
	queue   []*nats.Msg // chunks that arrived and weren't read
	acked   int         // how many of them, from the front, were acknowledged
	held    int64       // their bytes
	lastAck time.Time
	lastMsg time.Time
	chunks  int // that arrived
	full    bool
	ended   bool
	err     error // why it ended; nil for well
	wake    chan struct{}

	rest []byte // of the chunk being read
}

// Start asks for a snapshot. The context ends the transfer; Close must be called
// in any case.
func Start(ctx context.Context, js *jsapi.Client, o Options) (*Receiver, error) {
	r := &Receiver{
		ctx: ctx, o: o,
		wake:    make(chan struct{}, 1),
		denied:  make(chan *jsapi.PermissionError, 1),
		lastMsg: time.Now(), lastAck: time.Now(),
	}
	if err := r.subscribe(js); err != nil {
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

func (r *Receiver) subscribe(js *jsapi.Client) error {
	nc := js.Conn()
	lost := nc.StatusChanged(nats.DISCONNECTED, nats.RECONNECTING, nats.CLOSED)
	r.lost = lost
	r.stops = append(r.stops, func() { nc.RemoveStatusListener(lost) })
	inbox := js.NewInbox()
	for _, prefix := range []string{"$JS.SNAPSHOT.ACK." + r.o.Stream + ".", inbox} {
		r.stops = append(r.stops, js.OnDenied(prefix, r.deny))
	}
	var err error
	if r.sub, err = nc.Subscribe(inbox, r.take); err != nil {
		return err
	}
	r.stops = append(r.stops, func() { _ = r.sub.Unsubscribe() })
	if err := r.sub.SetPendingLimits(-1, -1); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(r.ctx)
	r.stops = append(r.stops, cancel)
	go r.ackEarly(ctx)
	return nil
}

func (r *Receiver) deny(p *jsapi.PermissionError) {
	select {
	case r.denied <- p:
	default:
	}
}

// Close ends the transfer; the server notices that nobody is interested.
func (r *Receiver) Close() {
	for _, stop := range r.stops {
		stop()
	}
}

// statusError turns the status line of a transfer's last message into an error;
// nil for success, and for the end of an archive that fits in one chunk.
func statusError(h nats.Header) error {
	status := h.Get("Status")
	if status == "" || status == "204" {
		return nil
	}
	text := strings.TrimSpace(h.Get("Description"))
	if text == "" {
		code, _ := strconv.Atoi(status)
		text = http.StatusText(code)
	}
	return fmt.Errorf("%w: %s %s", ErrServer, status, text)
}

// take is called for each message, in order.
func (r *Receiver) take(m *nats.Msg) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ended {
		return
	}
	r.lastMsg = time.Now()
	switch {
	case len(m.Data) == 0:
		r.ended = true
		r.err = statusError(m.Header)
		if r.err != nil && r.full {
			r.err = fmt.Errorf("%w (%d bytes held): %w", ErrSlowReader, r.held, r.err)
		}
	case !r.inOrder(m):
		r.ended = true
		r.err = fmt.Errorf("%w: after %d chunks came %q", ErrChunkLost, r.chunks, m.Reply)
	default:
		r.chunks++
		r.queue = append(r.queue, m)
		r.held += int64(len(m.Data))
	}
	r.signal()
}

// inOrder checks the count that the server puts last into the subject for
// acknowledgements. The last chunk has none.
func (r *Receiver) inOrder(m *nats.Msg) bool {
	return m.Reply == "" || strings.HasSuffix(m.Reply, fmt.Sprintf(".%d", r.chunks+1))
}

func (r *Receiver) signal() {
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// ackEarly acknowledges chunks that nobody has read yet while reading stalls,
// so that the server goes on, one chunk at a time.
func (r *Receiver) ackEarly(ctx context.Context) {
	tick := time.NewTicker(earlyAck / 3)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		r.mu.Lock()
		if r.acked < len(r.queue) && time.Since(r.lastAck) >= earlyAck {
			if r.full = r.held >= r.o.Hold; !r.full {
				r.ack(r.queue[r.acked])
				r.acked++
			}
		}
		r.mu.Unlock()
	}
}

// ack acknowledges a chunk. A failure shows as a lost connection.
func (r *Receiver) ack(m *nats.Msg) {
	if m.Reply != "" {
		_ = m.Respond(nil)
	}
	r.lastAck = time.Now()
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
	probed := time.Now()
	for {
		if chunk, ok, err := r.pop(); ok || err != nil {
			return chunk, err
		}
		timer := time.NewTimer(min(probeAfter, r.o.Idle))
		select {
		case <-r.wake:
		case <-timer.C:
		case p := <-r.denied:
			timer.Stop()
			return nil, p
		case <-r.lost:
			timer.Stop()
			return nil, ErrDisconnected
		case <-r.ctx.Done():
			timer.Stop()
			return nil, context.Cause(r.ctx)
		}
		timer.Stop()
		silence := r.silence()
		if silence >= probeAfter && time.Since(probed) >= probeAfter {
			if r.o.Probe != nil {
				if err := r.o.Probe(); err != nil {
					return nil, err
				}
			}
			probed = time.Now()
		}
		if r.silence() >= r.o.Idle {
			return nil, fmt.Errorf("%w: nothing came for %v, after %d chunks", ErrStalled, r.o.Idle, r.chunks)
		}
	}
}

// pop takes a chunk from the queue and acknowledges it.
func (r *Receiver) pop() (chunk []byte, ok bool, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.queue) == 0 {
		if !r.ended {
			return nil, false, nil
		}
		if r.err != nil {
			return nil, false, r.err
		}
		return nil, false, io.EOF
	}
	m := r.queue[0]
	r.queue[0] = nil
	r.queue = r.queue[1:]
	r.held -= int64(len(m.Data))
	if r.acked > 0 {
		r.acked--
	} else {
		r.ack(m)
	}
	return m.Data, true, nil
}

func (r *Receiver) silence() time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.queue) > 0 || r.ended {
		return 0
	}
	return time.Since(r.lastMsg)
}
