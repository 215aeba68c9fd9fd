package jsapi

import (
	"errors"
	"reflect"
	"strconv"
	"strings"
	"sync"

	"github.com/nats-io/nats.go"
)

// A server reports a missing permission apart from the request that lacked it,
// and nats.go passes that on to the connection's error handler. So one watcher
// a connection sits in front of that handler, shared by all Clients: with one
// each, closing them in another order than they were made couldn't put the
// right handler back.

// keptDenials is how many denials a watcher remembers.
const keptDenials = 64

// watcher notes permission violations of one connection.
type watcher struct {
	prev, ours nats.ErrHandler

	mu     sync.Mutex
	refs   int
	total  uint64 // denials ever seen
	recent []denial
	waits  map[*wait]struct{}
}

// denial is a violation with its number and the connection it happened on.
type denial struct {
	number     uint64
	reconnects uint64
	err        *PermissionError
}

// wait is somebody who waits for a violation.
type wait struct {
	match func(*PermissionError) bool
	found func(*PermissionError) // must not block
}

var (
	watchersMu sync.Mutex
	watchers   = map[*nats.Conn]*watcher{}
)

// acquireWatcher returns the connection's watcher, installing it if need be.
func acquireWatcher(nc *nats.Conn) *watcher {
	watchersMu.Lock()
	defer watchersMu.Unlock()
	for c := range watchers { // those whose owner forgot to Close
		if c != nc && c.IsClosed() {
			delete(watchers, c)
		}
	}
	w := watchers[nc]
	if w == nil {
		w = &watcher{prev: nc.ErrorHandler(), waits: map[*wait]struct{}{}}
		// An inbox that was refused before we came won't be reported again.
		if p := parseDenial(nc.LastError()); p != nil && p.Op == "subscribe" {
			w.note(nc, p)
		}
		w.ours = w.handle
		nc.SetErrorHandler(w.ours)
		watchers[nc] = w
	}
	w.refs++
	return w
}

// releaseWatcher puts the former error handler back after the last Client,
// unless the program has installed another one meanwhile: that one may well
// call ours, which then only passes on.
func releaseWatcher(nc *nats.Conn, w *watcher) {
	watchersMu.Lock()
	defer watchersMu.Unlock()
	w.refs--
	if w.refs > 0 {
		return
	}
	if watchers[nc] == w {
		delete(watchers, nc)
	}
	if sameCode(nc.ErrorHandler(), w.ours) {
		nc.SetErrorHandler(w.prev)
	}
}

// sameCode tells whether two handlers run the same code, which is as near as
// Go comes to comparing functions.
func sameCode(a, b nats.ErrHandler) bool {
	return reflect.ValueOf(a).Pointer() == reflect.ValueOf(b).Pointer()
}

// handle is the error handler to install.
func (w *watcher) handle(nc *nats.Conn, sub *nats.Subscription, err error) {
	if p := parseDenial(err); p != nil {
		w.note(nc, p)
	}
	if w.prev != nil {
		w.prev(nc, sub, err)
	}
}

func (w *watcher) note(nc *nats.Conn, p *PermissionError) {
	reconnects := nc.Stats().Reconnects
	w.mu.Lock()
	defer w.mu.Unlock()
	w.total++
	if len(w.recent) == keptDenials {
		copy(w.recent, w.recent[1:])
		w.recent = w.recent[:keptDenials-1]
	}
	w.recent = append(w.recent, denial{w.total, reconnects, p})
	for x := range w.waits {
		if x.match(p) {
			x.found(p)
		}
	}
}

// seen returns how many violations there have been.
func (w *watcher) seen() uint64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.total
}

// last returns the newest denial that matches, or nil.
func (w *watcher) last(match func(denial) bool) *PermissionError {
	w.mu.Lock()
	defer w.mu.Unlock()
	for i := len(w.recent) - 1; i >= 0; i-- {
		if match(w.recent[i]) {
			return w.recent[i].err
		}
	}
	return nil
}

// watch calls found for each violation that matches, until stop is called.
func (w *watcher) watch(match func(*PermissionError) bool, found func(*PermissionError)) (stop func()) {
	x := &wait{match, found}
	w.mu.Lock()
	w.waits[x] = struct{}{}
	w.mu.Unlock()
	return func() {
		w.mu.Lock()
		delete(w.waits, x)
		w.mu.Unlock()
	}
}

// parseDenial reads the server's words as nats.go hands them on, or returns
// nil when err is something else.
func parseDenial(err error) *PermissionError {
	if err == nil || !errors.Is(err, nats.ErrPermissionViolation) {
		return nil
	}
	text := err.Error()
	for _, form := range []struct{ words, op string }{
		{"for publish with reply of ", "reply"},
		{"for publish to ", "publish"},
		{"for subscription to ", "subscribe"},
	} {
		i := strings.Index(strings.ToLower(text), form.words)
		if i < 0 {
			continue
		}
		rest := text[i+len(form.words):]
		quoted, qerr := strconv.QuotedPrefix(rest)
		if qerr != nil {
			return &PermissionError{form.op, rest, err}
		}
		subject, _ := strconv.Unquote(quoted)
		return &PermissionError{form.op, subject, err}
	}
	return &PermissionError{"publish", "", err}
}

// PermissionDenied returns the newest violation since this Client was made
// that concerns a subject with the given prefix, or nil. Violations arrive
// apart from what caused them, a round trip later.
func (c *Client) PermissionDenied(subjectPrefix string) *PermissionError {
	return c.watcher.last(func(d denial) bool {
		return d.number > c.since && strings.HasPrefix(d.err.Subject, subjectPrefix)
	})
}

// OnDenied calls found for each violation from now on that concerns a subject
// with the given prefix, until stop is called. found must not block.
func (c *Client) OnDenied(subjectPrefix string, found func(*PermissionError)) (stop func()) {
	return c.watcher.watch(func(p *PermissionError) bool { return strings.HasPrefix(p.Subject, subjectPrefix) }, found)
}

// WatchDenied returns a channel that receives the first violation from now on
// that concerns a subject with the given prefix. Call stop when done with it.
func (c *Client) WatchDenied(subjectPrefix string) (denied <-chan *PermissionError, stop func()) {
	ch := make(chan *PermissionError, 1)
	stop = c.OnDenied(subjectPrefix, func(p *PermissionError) {
		select {
		case ch <- p:
		default:
		}
	})
	return ch, stop
}
