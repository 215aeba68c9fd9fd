package embedded

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
)

// maxWarnings bounds the memory that a complaining server can take.
const maxWarnings = 10_000

// capture is the server's logger. It passes everything on, and keeps warnings
// and errors, since they are the only way in which the server reports streams
// that it could not recover.
type capture struct {
	out *slog.Logger

	mu      sync.Mutex
	kept    []string
	fatals  []string
	failure string
}

func newCapture(out *slog.Logger) *capture {
	if out == nil {
		out = slog.New(slog.DiscardHandler)
	}
	return &capture{out: out}
}

// writeFailures mark lines after which the store can't be trusted to hold what
// the server says that it holds.
var writeFailures = []string{
	"Critical write error", "disabling JetStream", "will be DISABLED", "JetStream out of",
}

func (c *capture) log(level slog.Level, format string, args ...any) string {
	msg := strings.TrimSpace(fmt.Sprintf(format, args...))
	c.out.Log(context.Background(), level, msg)
	return msg
}

func (c *capture) keep(level slog.Level, format string, args ...any) {
	msg := c.log(level, format, args...)
	// Ours on purpose, so no news.
	if strings.HasPrefix(msg, "Maximum payloads over") {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.kept) < maxWarnings {
		c.kept = append(c.kept, msg)
	}
	for _, text := range writeFailures {
		if c.failure == "" && strings.Contains(msg, text) {
			c.failure = msg
		}
	}
}

func (c *capture) warnings() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]string(nil), c.kept...)
}

// fatal is what made the server give up, if it has.
func (c *capture) fatal() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.fatals) == 0 {
		return nil
	}
	return errors.New(strings.Join(c.fatals, "; "))
}

// writeFailure is the first failure to write, if there was one.
func (c *capture) writeFailure() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.failure == "" {
		return nil
	}
	return errors.New(c.failure)
}

// The methods below make capture a server.Logger. Fatalf must not end the
// process: the server returns from Start after it.

func (c *capture) Noticef(format string, v ...any) { c.log(slog.LevelInfo, format, v...) }
func (c *capture) Warnf(format string, v ...any)   { c.keep(slog.LevelWarn, format, v...) }
func (c *capture) Errorf(format string, v ...any)  { c.keep(slog.LevelError, format, v...) }
func (c *capture) Debugf(format string, v ...any)  { c.log(slog.LevelDebug, format, v...) }
func (c *capture) Tracef(format string, v ...any)  { c.log(slog.LevelDebug-4, format, v...) }

func (c *capture) Fatalf(format string, v ...any) {
	msg := c.log(slog.LevelError, format, v...)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.fatals = append(c.fatals, msg)
}
