package slowlink

import (
	"io"
	"net"
	"sync"
	"time"
)

// readSize is the largest piece taken from a socket at once.
const readSize = 128 << 10

// pair is a client's connection and the one to the target that belongs to it.
type pair struct {
	client *net.TCPConn
	gone   chan struct{} // closed when the pair is over
	onEnd  func()        // wakes those who wait on the link

	mu     sync.Mutex
	server *net.TCPConn
	lines  []*line
	over   bool
}

// join adds the target's side. It reports false if the pair is over already.
func (p *pair) join(server *net.TCPConn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.over {
		server.SetLinger(0)
		server.Close()
		return false
	}
	p.server = server
	for _, c := range []*net.TCPConn{p.client, server} {
		// Best effort: small buffers only make the line less wide.
		_ = c.SetReadBuffer(socketBuffer)
		_ = c.SetWriteBuffer(socketBuffer)
		_ = c.SetNoDelay(true)
	}
	return true
}

// reset ends the pair so that both ends see a reset.
func (p *pair) reset() { p.end(true) }

// close ends the pair in the ordinary way.
func (p *pair) close() { p.end(false) }

func (p *pair) end(reset bool) {
	p.mu.Lock()
	if p.over {
		p.mu.Unlock()
		return
	}
	p.over = true
	close(p.gone)
	for _, q := range p.lines {
		q.finish(true)
	}
	for _, c := range []*net.TCPConn{p.client, p.server} {
		if c == nil { // not joined yet
			continue
		}
		if reset {
			_ = c.SetLinger(0)
		}
		_ = c.Close()
	}
	p.mu.Unlock()
	p.onEnd()
}

// breakWithPair makes the end of the pair the end of the line.
func (p *pair) breakWithPair(q *line) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.over {
		q.finish(true)
	}
	p.lines = append(p.lines, q)
}

func (p *pair) isOver() bool {
	select {
	case <-p.gone:
		return true
	default:
		return false
	}
}

func (p *pair) ends(d Direction) (from, to *net.TCPConn) {
	if d == Up {
		return p.client, p.server
	}
	return p.server, p.client
}

// piece is some bytes and the moment at which they may leave.
type piece struct {
	data []byte
	due  time.Time
}

// line is the bytes on their way in one direction: a queue bounded by size.
type line struct {
	mu     sync.Mutex
	cond   *sync.Cond
	pieces []piece
	size   int
	window int
	ended  bool // nothing more will be put
	broken bool // nothing more will be taken
}

func newLine(window int) *line {
	q := &line{window: window}
	q.cond = sync.NewCond(&q.mu)
	return q
}

// put waits for room. It reports false if the line is broken.
func (q *line) put(x piece) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	for q.size >= q.window && !q.broken {
		q.cond.Wait()
	}
	if q.broken {
		return false
	}
	q.pieces = append(q.pieces, x)
	q.size += len(x.data)
	q.cond.Broadcast()
	return true
}

// take waits for a piece. It reports false at the end.
func (q *line) take() (piece, bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for len(q.pieces) == 0 && !q.ended && !q.broken {
		q.cond.Wait()
	}
	if len(q.pieces) == 0 || q.broken {
		return piece{}, false
	}
	x := q.pieces[0]
	q.pieces[0] = piece{}
	q.pieces = q.pieces[1:]
	return x, true
}

// free makes room once the bytes have left.
func (q *line) free(n int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.size -= n
	q.cond.Broadcast()
}

func (q *line) finish(broken bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.ended = true
	q.broken = q.broken || broken
	q.cond.Broadcast()
}

// pump moves bytes one way until either side ends.
func (l *Link) pump(p *pair, d Direction) {
	from, to := p.ends(d)
	q := newLine(l.opts.Window)
	p.breakWithPair(q)
	var wg sync.WaitGroup
	wg.Go(func() { l.fill(from, q, p) })
	if l.drain(p, q, to, d) {
		// The sender is done; the other direction goes on.
		_ = to.CloseWrite()
	} else {
		p.reset()
	}
	wg.Wait()
}

// fill reads pieces from a socket and gives each its time of departure.
func (l *Link) fill(from *net.TCPConn, q *line, p *pair) {
	buf := make([]byte, readSize)
	var free time.Time // when the line has sent all that came before
	for {
		n, err := from.Read(buf)
		if n > 0 {
			now := time.Now()
			due := now
			if l.opts.Bandwidth > 0 {
				if free.Before(now) {
					free = now
				}
				free = free.Add(time.Duration(float64(n) / float64(l.opts.Bandwidth) * float64(time.Second)))
				due = free
			}
			x := piece{data: append([]byte(nil), buf[:n]...), due: due.Add(l.opts.Delay)}
			if !q.put(x) {
				return
			}
		}
		if err != nil {
			q.finish(false)
			if err != io.EOF {
				p.reset()
			}
			return
		}
	}
}

// drain writes pieces when they are due. It reports whether the sender ended
// in the ordinary way.
func (l *Link) drain(p *pair, q *line, to *net.TCPConn, d Direction) bool {
	for {
		x, ok := q.take()
		if !ok {
			return !p.isOver()
		}
		if wait := time.Until(x.due); wait > 0 {
			select {
			case <-time.After(wait):
			case <-p.gone:
				return false
			}
		}
		for rest := x.data; len(rest) > 0; {
			n := l.allow(p, d, len(rest))
			if n == 0 {
				return false
			}
			if _, err := to.Write(rest[:n]); err != nil {
				return false
			}
			rest = rest[n:]
			l.passed(d, n)
		}
		q.free(len(x.data))
	}
}

// allow waits while the link is stalled and says how many of n bytes may be
// written before a mark is reached. Zero means that the pair is over.
func (l *Link) allow(p *pair, d Direction, n int) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	for l.stalled && !l.closed && !p.isOver() {
		l.changed.Wait()
	}
	if l.closed || p.isOver() {
		return 0
	}
	for _, m := range l.marks[d] {
		if left := m.at - l.sent[d]; left > 0 && left < int64(n) {
			n = int(left)
		}
	}
	return n
}

// passed counts bytes and calls the functions whose mark has been reached.
func (l *Link) passed(d Direction, n int) {
	l.mu.Lock()
	l.sent[d] += int64(n)
	var due []func()
	keep := l.marks[d][:0]
	for _, m := range l.marks[d] {
		if m.at <= l.sent[d] {
			due = append(due, m.f)
		} else {
			keep = append(keep, m)
		}
	}
	l.marks[d] = keep
	l.mu.Unlock()
	for _, f := range due {
		f()
	}
}
