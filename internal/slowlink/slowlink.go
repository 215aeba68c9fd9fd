// Package slowlink is a TCP proxy on loopback that behaves like a long line:
// it delays bytes without limiting how many are on their way, and it can be
// told to stall, to break or to refuse connections.
//
// Tests and the benchmark use it where netem isn't available. It delivers every
// byte in order or breaks the connection; it never drops, repeats or changes
// bytes, and it never listens on anything but loopback.
package slowlink

import (
	"errors"
	"fmt"
	"net"
	"sync"
	"time"
)

// DefaultWindow is how many bytes may be on their way in one direction of one
// connection before the sender is held back.
const DefaultWindow = 64 << 20

// socketBuffer is asked of the kernel for each socket.
const socketBuffer = 4 << 20

// Options say how the line behaves. The zero value is a line without delay.
type Options struct {
	// Delay is added in each direction; the round trip takes twice as long.
	Delay time.Duration
	// Bandwidth is in bytes per second, for each direction of each connection.
	// Zero means unlimited.
	Bandwidth int64
	// Window is how many bytes may be on their way in one direction of one
	// connection. Zero means DefaultWindow.
	Window int
}

// Direction is one of the two ways through the link.
type Direction int

const (
	// Up is from the client to the target.
	Up Direction = iota
	// Down is from the target to the client.
	Down
)

// Link is a running proxy.
type Link struct {
	target string
	opts   Options
	ln     net.Listener
	wg     sync.WaitGroup

	mu      sync.Mutex
	changed *sync.Cond // stalled or closed has changed
	stalled bool
	reject  bool
	closed  bool
	pairs   map[*pair]struct{}
	sent    [2]int64
	marks   [2][]mark
}

// mark is a function to call once so many bytes have passed.
type mark struct {
	at int64
	f  func()
}

// Start begins to listen on a random loopback port and forwards to target,
// a host:port.
func Start(target string, o Options) (*Link, error) {
	if o.Window <= 0 {
		o.Window = DefaultWindow
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("slow link to %s: %w", target, err)
	}
	l := &Link{target: target, opts: o, ln: ln, pairs: make(map[*pair]struct{})}
	l.changed = sync.NewCond(&l.mu)
	l.wg.Add(1)
	go l.accept()
	return l, nil
}

// Addr is the host:port to connect to.
func (l *Link) Addr() string { return l.ln.Addr().String() }

// URL is the nats:// URL to connect to.
func (l *Link) URL() string { return "nats://" + l.Addr() }

// Stall stops forwarding in both directions. Connections stay open, and what
// arrives meanwhile is kept up to the window.
func (l *Link) Stall() { l.setStalled(true) }

// Resume ends a Stall.
func (l *Link) Resume() { l.setStalled(false) }

func (l *Link) setStalled(v bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.stalled = v
	l.changed.Broadcast()
}

// Reject refuses new connections while on is true: they are reset at once.
// Connections that exist go on.
func (l *Link) Reject(on bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.reject = on
}

// Cut resets every connection that exists. What is on its way is lost.
func (l *Link) Cut() {
	for _, p := range l.current() {
		p.reset()
	}
}

// Forwarded is how many bytes have been handed on in one direction, over all
// connections.
func (l *Link) Forwarded(d Direction) int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.sent[d]
}

// After calls f once when n more bytes have been handed on in direction d, and
// before the next byte is. This makes faults happen at the same place each
// time: link.After(slowlink.Down, 1<<20, link.Cut).
func (l *Link) After(d Direction, n int64, f func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.marks[d] = append(l.marks[d], mark{at: l.sent[d] + n, f: f})
}

// Close stops listening, resets every connection and waits until all is over.
// It must not be called from a function given to After.
func (l *Link) Close() error {
	l.mu.Lock()
	l.closed = true
	l.changed.Broadcast()
	l.mu.Unlock()
	err := l.ln.Close()
	l.Cut()
	l.wg.Wait()
	if errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}

// wake makes those who wait for the end of a stall look again.
func (l *Link) wake() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.changed.Broadcast()
}

func (l *Link) current() []*pair {
	l.mu.Lock()
	defer l.mu.Unlock()
	all := make([]*pair, 0, len(l.pairs))
	for p := range l.pairs {
		all = append(all, p)
	}
	return all
}

func (l *Link) accept() {
	defer l.wg.Done()
	for {
		c, err := l.ln.Accept()
		if err != nil {
			return
		}
		l.wg.Add(1)
		go l.serve(c.(*net.TCPConn))
	}
}

// serve joins one client to the target.
func (l *Link) serve(client *net.TCPConn) {
	defer l.wg.Done()
	p := &pair{client: client, gone: make(chan struct{}), onEnd: l.wake}
	if !l.add(p) {
		p.reset()
		return
	}
	defer l.remove(p)
	c, err := net.DialTimeout("tcp", l.target, 10*time.Second)
	if err != nil {
		p.reset()
		return
	}
	// Close and Cut may have come meanwhile.
	if !p.join(c.(*net.TCPConn)) {
		return
	}
	var both sync.WaitGroup
	both.Go(func() { l.pump(p, Up) })
	both.Go(func() { l.pump(p, Down) })
	both.Wait()
	p.close()
}

func (l *Link) add(p *pair) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed || l.reject {
		return false
	}
	l.pairs[p] = struct{}{}
	return true
}

func (l *Link) remove(p *pair) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.pairs, p)
}
