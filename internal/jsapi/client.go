// Package jsapi makes the JetStream API calls that nats.go lacks or does
// lossily: snapshot and restore, configurations as raw JSON, and answers with
// all that the server says. Errors keep the server's code, and a missing
// permission is reported at once and by name, instead of as a timeout.
//
// It makes one request a call (or one a page). It never retries, never prints,
// and never moves archive data: that's for backup and restore.
package jsapi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/jetkeep/jetkeep/format"
)

const (
	defaultPrefix  = "$JS.API"
	defaultTimeout = 5 * time.Second
	// requiredLevelHeader makes a server refuse a request instead of dropping
	// what it's too old to know; the key in a configuration's metadata says
	// which level that is.
	requiredLevelHeader = "Nats-Required-Api-Level"
	requiredLevelKey    = "_nats.req.level"
)

// Options says where the API is. The zero value is the connection's own
// JetStream.
type Options struct {
	// Prefix replaces "$JS.API", for an API imported from another account.
	Prefix string
	// Domain selects a JetStream domain. It can't be combined with Prefix.
	Domain string
	// Timeout limits one request; zero means 5 s. The context of a call can
	// only shorten it.
	Timeout time.Duration
}

// Client makes JetStream API calls on a connection. It may be used by several
// goroutines.
type Client struct {
	nc      *nats.Conn
	prefix  string
	timeout time.Duration
	// respPrefix is what the inboxes of the connection's requests begin with.
	respPrefix string
	watcher    *watcher
	since      uint64 // violations before this Client
	closeOnce  sync.Once
}

// New makes a Client. It puts itself before the connection's error handler,
// which still gets every error; Close takes that back.
func New(nc *nats.Conn, o Options) (*Client, error) {
	if nc == nil {
		return nil, errors.New("jsapi: no connection")
	}
	prefix, err := apiPrefix(o)
	if err != nil {
		return nil, err
	}
	if o.Timeout <= 0 {
		o.Timeout = defaultTimeout
	}
	inbox := nc.NewRespInbox()
	c := &Client{
		nc:         nc,
		prefix:     prefix,
		timeout:    o.Timeout,
		respPrefix: inbox[:strings.LastIndexByte(inbox, '.')+1],
		watcher:    acquireWatcher(nc),
	}
	c.since = c.watcher.seen()
	return c, nil
}

func apiPrefix(o Options) (string, error) {
	switch {
	case o.Prefix != "" && o.Domain != "":
		return "", errors.New("a JetStream API prefix and a domain can't be combined")
	case o.Domain != "":
		if err := checkToken("JetStream domain", o.Domain); err != nil {
			return "", err
		}
		return "$JS." + o.Domain + ".API", nil
	case o.Prefix != "":
		p := strings.TrimSuffix(o.Prefix, ".")
		if p == "" || strings.HasPrefix(p, ".") || strings.Contains(p, "..") || strings.ContainsAny(p, "*> \t\r\n\x00") {
			return "", fmt.Errorf("invalid JetStream API prefix %q", o.Prefix)
		}
		return p, nil
	}
	return defaultPrefix, nil
}

// Close gives the connection its error handler back; the connection stays
// open. A second Close does nothing.
func (c *Client) Close() {
	c.closeOnce.Do(func() { releaseWatcher(c.nc, c.watcher) })
}

// Conn returns the connection.
func (c *Client) Conn() *nats.Conn { return c.nc }

// Subject returns the full subject of an API call such as "STREAM.LIST".
func (c *Client) Subject(call string) string { return c.prefix + "." + call }

// NewInbox returns a subject to be delivered to, under the connection's inbox
// prefix but not under the one that its requests share: that would receive
// everything a second time.
func (c *Client) NewInbox() string { return c.nc.NewInbox() }

// Request makes one API call, such as "STREAM.INFO.ORDERS". req is sent as
// JSON, nothing is sent for nil; resp takes the answer unless it's nil. An
// error in the answer is returned as [*Error].
func (c *Client) Request(ctx context.Context, call string, req, resp any) error {
	return c.request(ctx, call, nil, req, resp)
}

func (c *Client) request(ctx context.Context, call string, hdr nats.Header, req, resp any) error {
	msg := nats.NewMsg(c.Subject(call))
	if hdr != nil {
		msg.Header = hdr
	}
	if req != nil {
		var err error
		if msg.Data, err = json.Marshal(req); err != nil {
			return fmt.Errorf("%s: %w", msg.Subject, err)
		}
	}
	answer, err := c.exchange(ctx, msg)
	if err != nil {
		return err
	}
	return decode(answer, msg.Subject, resp)
}

// exchange sends a request and waits for the answer, the timeout, or the
// server's word that something about it isn't allowed.
func (c *Client) exchange(ctx context.Context, msg *nats.Msg) (*nats.Msg, error) {
	if p := c.inboxDenied(); p != nil {
		return nil, p
	}
	timed, cancelTimer := context.WithTimeout(ctx, c.timeout)
	defer cancelTimer()
	rctx, cancel := context.WithCancelCause(timed)
	defer cancel(nil)
	stop := c.watcher.watch(
		func(p *PermissionError) bool { return c.concerns(p, msg.Subject) },
		func(p *PermissionError) { cancel(p) })
	defer stop()

	answer, err := c.nc.RequestMsgWithContext(rctx, msg)
	if err == nil {
		return answer, nil
	}
	var denied *PermissionError
	switch {
	case errors.As(context.Cause(rctx), &denied):
		return nil, denied
	case ctx.Err() != nil:
		return nil, fmt.Errorf("%s: %w", msg.Subject, ctx.Err())
	case timed.Err() != nil:
		return nil, fmt.Errorf("%w: nothing came back on %s within %v", ErrTimeout, msg.Subject, c.timeout)
	case errors.Is(err, nats.ErrReconnectBufExceeded):
		return nil, fmt.Errorf("%s: %w", msg.Subject, ErrNotConnected)
	case errors.Is(err, nats.ErrNoResponders):
		return nil, fmt.Errorf("%w on %s: is JetStream enabled for this account / is the stream's leader there?", ErrNoResponders, msg.Subject)
	}
	return nil, fmt.Errorf("%s: %w", msg.Subject, err)
}

// concerns tells whether a violation stands in the way of a request.
func (c *Client) concerns(p *PermissionError, subject string) bool {
	switch p.Op {
	case "publish":
		return p.Subject == subject
	case "reply":
		return strings.HasPrefix(p.Subject, c.respPrefix)
	}
	return p.Subject == c.respPrefix+"*"
}

// inboxDenied returns the violation that keeps all answers away: the server
// reports it once, when the connection makes its first request.
func (c *Client) inboxDenied() *PermissionError {
	reconnects := c.nc.Stats().Reconnects
	return c.watcher.last(func(d denial) bool {
		return d.reconnects == reconnects && d.err.Op == "subscribe" && d.err.Subject == c.respPrefix+"*"
	})
}

// decode reads an answer into resp.
func decode(answer *nats.Msg, subject string, resp any) error {
	var head struct {
		Error *Error `json:"error"`
	}
	if err := json.Unmarshal(answer.Data, &head); err != nil {
		return fmt.Errorf("%s: the answer isn't one of the JetStream API: %w", subject, err)
	}
	if head.Error != nil {
		return head.Error
	}
	if resp == nil {
		return nil
	}
	if err := json.Unmarshal(answer.Data, resp); err != nil {
		return fmt.Errorf("%s: answer: %w", subject, err)
	}
	return nil
}

// levelHeader asks for the API level that a configuration says it needs.
func levelHeader(cfg format.Object) nats.Header {
	var metadata map[string]string
	if cfg.Get("metadata", &metadata) != nil || metadata[requiredLevelKey] == "" {
		return nil
	}
	return nats.Header{requiredLevelHeader: {metadata[requiredLevelKey]}}
}

// checkToken refuses a name that would lead to another API subject.
func checkToken(kind, name string) error {
	if name == "" || strings.ContainsAny(name, ".*> \t\r\n\x00") {
		return fmt.Errorf("invalid %s name %q", kind, name)
	}
	return nil
}

// configName returns the name that a configuration gives.
func configName(cfg format.Object, kind string, fields ...string) (string, error) {
	var name string
	for _, f := range fields {
		if err := cfg.Get(f, &name); err != nil {
			return "", err
		}
		if name != "" {
			break
		}
	}
	return name, checkToken(kind, name)
}
