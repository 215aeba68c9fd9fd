package connect

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/jetkeep/jetkeep/internal/jsapi"
)

var (
	// ErrConnect says that no server could be reached.
	ErrConnect = errors.New("no connection")
	// ErrAuth says that the server didn't let the user in.
	ErrAuth = errors.New("authentication failed")
)

// Reconnecting goes on for about a minute for each server. Pings find out soon
// that a link is dead without having been closed.
const (
	maxReconnects = 30
	reconnectWait = 2 * time.Second
	pingInterval  = 20 * time.Second
)

// Connection is an open connection and what led to it.
type Connection struct {
	NC *nats.Conn
	// JS says where JetStream is.
	JS       jsapi.Options
	Resolved *Resolved
}

// Close closes the connection.
func (c *Connection) Close() { c.NC.Close() }

// Label names the server that is connected, and the context.
func (c *Connection) Label() string { return c.Resolved.String() }

// Connect resolves the settings and connects. name is how the connection shows
// on the server.
func Connect(ctx context.Context, s Settings, name string) (*Connection, error) {
	r, err := s.Resolve(ctx)
	if err != nil {
		return nil, err
	}
	return r.Connect(ctx, name)
}

// ConnectContext connects as a NATS context says, and nothing else: the
// environment, which may hold another user's credentials, adds nothing.
func ConnectContext(ctx context.Context, contextName, name string) (*Connection, error) {
	r, err := resolveContext(ctx, contextName)
	if err != nil {
		return nil, err
	}
	return r.Connect(ctx, name)
}

// Connect connects to what was resolved.
func (r *Resolved) Connect(ctx context.Context, name string) (*Connection, error) {
	opts, err := r.merged.NATSOptions(
		nats.Name(name),
		nats.Timeout(r.Timeout),
		nats.MaxReconnects(maxReconnects),
		nats.ReconnectWait(reconnectWait),
		nats.PingInterval(pingInterval),
		// A publish while disconnected must fail, not wait in a buffer: a
		// transfer can't go on after a new connection anyway.
		nats.ReconnectBufSize(-1),
		// nats.go waits a minute for a stopped server to take a write.
		nats.FlusherTimeout(10*time.Second),
		// Else nats.go prints to stderr. Whoever needs these errors chains on.
		nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {}),
	)
	if err != nil {
		return nil, r.scrub(fmt.Errorf("%w: %w", ErrSettings, err))
	}
	nc, err := dial(ctx, r.servers, opts)
	if err != nil {
		return nil, r.scrub(r.explain(err))
	}
	return &Connection{
		NC:       nc,
		JS:       jsapi.Options{Prefix: r.APIPrefix, Domain: r.Domain, Timeout: r.Timeout},
		Resolved: r,
	}, nil
}

// dial connects, and gives up when ctx ends.
func dial(ctx context.Context, servers string, opts []nats.Option) (*nats.Conn, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	type result struct {
		nc  *nats.Conn
		err error
	}
	done := make(chan result, 1)
	go func() {
		nc, err := nats.Connect(servers, opts...)
		done <- result{nc, err}
	}()
	select {
	case r := <-done:
		return r.nc, r.err
	case <-ctx.Done():
		go func() {
			if r := <-done; r.nc != nil {
				r.nc.Close()
			}
		}()
		return nil, ctx.Err()
	}
}

// explain says what failed, where, and of which kind it is.
func (r *Resolved) explain(err error) error {
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	for _, auth := range []error{
		nats.ErrAuthorization, nats.ErrAuthExpired, nats.ErrAuthRevoked, nats.ErrAccountAuthExpired, nats.ErrNkeysNotSupported,
	} {
		if errors.Is(err, auth) {
			return fmt.Errorf("%w: %s: %s", ErrAuth, r, strings.TrimPrefix(err.Error(), "nats: "))
		}
	}
	return fmt.Errorf("%w: cannot reach %s: %s", ErrConnect, r, reason(err))
}

// reason puts the error of nats.go in an operator's words.
func reason(err error) string {
	var unknown x509.UnknownAuthorityError
	var host x509.HostnameError
	var record tls.RecordHeaderError
	switch {
	case errors.Is(err, nats.ErrNoServers): // what it makes of this cause
		return "connection refused"
	case errors.Is(err, nats.ErrSecureConnWanted):
		return "TLS was asked for, and the server doesn't offer it"
	case errors.Is(err, nats.ErrSecureConnRequired):
		return "the server requires TLS"
	case errors.As(err, &unknown):
		return err.Error() + " (is --tlsca missing?)"
	case errors.As(err, &host):
		return err.Error()
	case errors.As(err, &record):
		return "no TLS on this port, or TLS before the server's greeting (--tlsfirst)"
	case os.IsTimeout(err) || errors.Is(err, nats.ErrTimeout):
		return "no answer in time"
	}
	return strings.TrimPrefix(err.Error(), "nats: ")
}
