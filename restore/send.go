package restore

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/jetkeep/jetkeep/format"
	"github.com/jetkeep/jetkeep/internal/jsapi"
)

// keepAlive is how long nothing is sent before padding is: the server drops a
// restore after five silent seconds.
const keepAlive = 2 * time.Second

// sender sends an archive's bytes to a restoring server. It's an io.Writer that
// keeps a window of unacknowledged messages in flight, whose order the server
// keeps.
type sender struct {
	js      *jsapi.Client
	subject string // where the server takes chunks
	size    int    // of a chunk
	idle    time.Duration
	ctx     context.Context
	cancel  context.CancelCauseFunc // ends the transfer with its first error
	inbox   string                  // answers come below it
	acks    *nats.Subscription
	stops   []func()

	mu      sync.Mutex
	buf     []byte    // not yet sent
	chunk   chunkEnd  // of what was written
	written time.Time // when the source last gave data
	sent    time.Time // when something was last sent
	count   int

	window  chan struct{} // one slot a chunk in flight
	lastAck atomic.Int64  // Unix nanoseconds
	final   chan *nats.Msg
}

// newSender prepares a transfer to the subject that the server named.
func newSender(ctx context.Context, js *jsapi.Client, subject string, o Options) (*sender, error) {
	nc := js.Conn()
	size := min(o.ChunkSize, int(nc.MaxPayload())-512)
	if size < 1024 {
		return nil, fmt.Errorf("the server's max_payload of %d bytes is too small for chunks", nc.MaxPayload())
	}
	ctx, cancel := context.WithCancelCause(ctx)
	s := &sender{
		js: js, subject: subject, size: size, idle: o.IdleTimeout, ctx: ctx, cancel: cancel,
		window:  make(chan struct{}, max(1, o.WindowSize/size)),
		written: time.Now(), sent: time.Now(),
		final: make(chan *nats.Msg, 1),
	}
	lost := nc.StatusChanged(nats.DISCONNECTED, nats.RECONNECTING, nats.CLOSED)
	s.stops = append(s.stops,
		func() { cancel(context.Canceled) },
		func() { nc.RemoveStatusListener(lost) },
		js.OnDenied("$JS.SNAPSHOT.RESTORE.", func(p *jsapi.PermissionError) { cancel(p) }),
		js.OnDenied(subject, func(p *jsapi.PermissionError) { cancel(p) }),
	)
	s.inbox = js.NewInbox()
	s.stops = append(s.stops, js.OnDenied(s.inbox, func(p *jsapi.PermissionError) { cancel(p) }))
	var err error
	if s.acks, err = nc.Subscribe(s.inbox+".*", s.ack); err != nil {
		s.close()
		return nil, err
	}
	s.stops = append(s.stops, func() { _ = s.acks.Unsubscribe() })
	go s.watch(lost)
	// From here on padding may be sent, however late the archive's first bytes.
	if _, err := s.Write([]byte(format.StreamIdentifier)); err != nil {
		s.close()
		return nil, err
	}
	return s, nil
}

func (s *sender) close() {
	for _, stop := range s.stops {
		stop()
	}
}

// watch keeps the restore alive while the source stalls, and ends it when the
// connection is lost.
func (s *sender) watch(lost <-chan nats.Status) {
	tick := time.NewTicker(keepAlive / 4)
	defer tick.Stop()
	for {
		select {
		case <-s.ctx.Done():
			return
		case <-lost:
			s.cancel(ErrDisconnected)
			return
		case <-tick.C:
			s.pad()
		}
	}
}

// ack takes the answer to a chunk.
func (s *sender) ack(m *nats.Msg) {
	s.lastAck.Store(time.Now().UnixNano())
	if strings.HasSuffix(m.Subject, "."+finalReply) {
		select {
		case s.final <- m:
		default:
		}
		return
	}
	if err := answerError(m); err != nil {
		s.cancel(err)
	}
	select {
	case <-s.window:
	default:
	}
}

// answerError reads the server's answer to a chunk.
func answerError(m *nats.Msg) error {
	if status := m.Header.Get("Status"); status != "" {
		return fmt.Errorf("%w: %s, nobody takes its chunks any more", ErrDropped, status)
	}
	if len(m.Data) == 0 {
		return nil
	}
	var a struct {
		Error *jsapi.Error `json:"error"`
	}
	if err := json.Unmarshal(m.Data, &a); err != nil {
		return fmt.Errorf("answer to a chunk: %w", err)
	}
	if a.Error != nil {
		return explain(a.Error)
	}
	return nil
}

// pad sends what is buffered, and an empty S2 chunk, if nothing was sent for a
// while; and it notices when either side has fallen silent for too long.
func (s *sender) pad() {
	if len(s.window) > 0 {
		if silent := time.Since(time.Unix(0, s.lastAck.Load())); silent > s.idle {
			s.cancel(fmt.Errorf("%w: no chunk was acknowledged for %v", ErrDropped, s.idle))
			return
		}
	}
	if !s.mu.TryLock() {
		return // a write is under way, and waits for the server
	}
	defer s.mu.Unlock()
	switch {
	case time.Since(s.sent) < keepAlive:
	case time.Since(s.written) > s.idle:
		s.cancel(fmt.Errorf("%w: nothing came for %v", ErrStalled, s.idle))
	case s.chunk.reached() && len(s.window) < cap(s.window):
		s.buf = append(s.buf, format.Padding...)
		if err := s.flush(len(s.buf)); err != nil {
			s.cancel(err)
		}
	}
}

// Write takes the archive's next bytes. It returns the transfer's first error.
func (s *sender) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := context.Cause(s.ctx); err != nil {
		return 0, err
	}
	s.chunk.write(p)
	s.written = time.Now()
	s.buf = append(s.buf, p...)
	for len(s.buf) >= s.size {
		if err := s.flush(s.size); err != nil {
			return 0, err
		}
	}
	s.written = time.Now()
	return len(p), nil
}

// push sends what is buffered.
func (s *sender) push() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.flush(len(s.buf))
}

// flush sends the first n bytes of the buffer, once the window has room. s.mu
// is held.
func (s *sender) flush(n int) error {
	if n == 0 {
		return nil
	}
	if len(s.window) == 0 {
		s.lastAck.Store(time.Now().UnixNano()) // the silence that counts begins now
	}
	select {
	case s.window <- struct{}{}:
	case <-s.ctx.Done():
		return context.Cause(s.ctx)
	}
	s.count++
	if err := s.publish(s.buf[:n], fmt.Sprint(s.count)); err != nil {
		return err
	}
	s.buf = append(s.buf[:0], s.buf[n:]...)
	s.sent = time.Now()
	return nil
}

func (s *sender) publish(data []byte, reply string) error {
	if err := s.js.Conn().PublishRequest(s.subject, s.inbox+"."+reply, data); err != nil {
		return fmt.Errorf("%w: %w", ErrDisconnected, err)
	}
	return nil
}

// chunkEnd follows S2 chunks, since padding may stand only between two.
type chunkEnd struct {
	begun   bool
	head    [4]byte
	headLen int
	body    int // bytes to come
}

func (c *chunkEnd) write(p []byte) {
	c.begun = c.begun || len(p) > 0
	for len(p) > 0 {
		if c.body > 0 {
			n := min(c.body, len(p))
			c.body -= n
			p = p[n:]
			continue
		}
		n := copy(c.head[c.headLen:], p)
		c.headLen += n
		p = p[n:]
		if c.headLen == len(c.head) {
			c.headLen = 0
			c.body = int(c.head[1]) | int(c.head[2])<<8 | int(c.head[3])<<16
		}
	}
}

// reached reports whether what was written ends with a chunk.
func (c *chunkEnd) reached() bool { return c.begun && c.headLen == 0 && c.body == 0 }

// finalReply ends the subject on which the answer to the final chunk comes.
const finalReply = "final"

// finish sends the rest and the final, empty chunk, and waits at most limit for
// the server's word on the whole restore.
func (s *sender) finish(limit time.Duration) error {
	s.mu.Lock()
	err := s.flush(len(s.buf))
	if err == nil {
		err = s.publish(nil, finalReply)
	}
	s.written = time.Now().Add(limit) // the source is done, it can't stall any more
	s.sent = s.written
	s.mu.Unlock()
	if err != nil {
		return err
	}
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case m := <-s.final:
		return answerError(m)
	case <-s.ctx.Done():
		return context.Cause(s.ctx)
	case <-timer.C:
		return fmt.Errorf("%w within %v", ErrNoAnswer, limit)
	}
}

// abort ends the restore at once: the server gets the final chunk too early and
// says so, which abort reports. Without a connection it finds out by itself, and
// without the permission it never got anything.
func (s *sender) abort(limit time.Duration, cause error) (ended bool) {
	var denied *jsapi.PermissionError
	if errors.As(cause, &denied) {
		return true
	}
	if s.publish(nil, finalReply) != nil {
		return false
	}
	select {
	case <-s.final:
		return true
	case <-time.After(limit):
		return false
	}
}
