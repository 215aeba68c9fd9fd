package backup

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/jetkeep/jetkeep/backup/repo"
	"github.com/jetkeep/jetkeep/format"
	"github.com/jetkeep/jetkeep/internal/jsapi"
)

// Options of a backup. Only Stream has to be set.
type Options struct {
	Stream string
	// Domain or APIPrefix say where the JetStream API is; RequestTimeout limits
	// one request to it (default 5 s).
	Domain         string
	APIPrefix      string
	RequestTimeout time.Duration

	// NoConsumers leaves the consumers out.
	NoConsumers bool
	// ChunkSize and WindowSize ask the server for chunks of that many bytes and
	// as many unacknowledged ones as fit in the window. Zero: 128 KiB; 8 MiB,
	// and 16 MiB where a round trip takes longer than 20 ms.
	// An attempt that a slow link may have spoilt is repeated with less of both.
	ChunkSize, WindowSize int
	// QueueSize is how many bytes are held in memory at most while the writer
	// stalls. Zero: 32 MiB. It's never below the window. Each chunk that fits
	// beyond the window bridges a second and a half.
	QueueSize int64
	// IdleTimeout is how long nothing may arrive. Zero: 30 s. A transfer whose
	// data keeps coming has no time limit.
	IdleTimeout time.Duration
	// Retries is how often a failed attempt is repeated; NoRetries none.
	// Zero: 5.
	Retries int

	// Original, if not nil, says what the stream really is: the one that is
	// backed up is a changed copy of it.
	Original *Original

	// Context is the label of the NATS context, and Version jetkeep's own: for
	// the manifest.
	Context, Version string
	// Account gives the account's name for the manifest; it's called once the
	// data is there, and may be nil.
	Account func() string
	// Progress is called now and then during an attempt and once at its end,
	// from another goroutine, and never after Take has returned; it may be nil.
	Progress func(Progress)
	// Retrying is called before an attempt is repeated; it may be nil.
	Retrying func(attempt int, err error, wait time.Duration)
}

// NoRetries as Options.Retries has a backup attempted once.
const NoRetries = -1

// Progress says how far a backup is.
type Progress struct {
	// Bytes of the archive have arrived and been written, RawBytes of it
	// decompressed and inspected, with so many Messages.
	Bytes, RawBytes int64
	Messages        uint64
	// Total estimates RawBytes at the end.
	Total int64
}

func (o *Options) defaults() {
	if o.ChunkSize == 0 {
		o.ChunkSize = 128 << 10
	}
	if o.QueueSize == 0 {
		o.QueueSize = 32 << 20
	}
	if o.IdleTimeout == 0 {
		o.IdleTimeout = 30 * time.Second
	}
	if o.Retries == 0 {
		o.Retries = 5
	}
}

// Destination begins a backup: [To] a repository, [ToDir] a directory, or
// anything else that returns a [repo.Writer]. One that fails returns a nil
// interface, not a nil pointer in one.
type Destination func(ctx context.Context, stream string, start time.Time) (repo.Writer, error)

// To is a repository as a destination.
func To(r *repo.Repository) Destination {
	return func(ctx context.Context, stream string, start time.Time) (repo.Writer, error) {
		w, err := r.Begin(ctx, stream, start)
		if err != nil {
			return nil, err // not a nil *repo.Pending
		}
		return w, nil
	}
}

// ToDir is a directory for one backup as a destination. It must not exist or be
// empty; the one above it must exist.
func ToDir(path string) Destination {
	return func(context.Context, string, time.Time) (repo.Writer, error) {
		w, err := repo.BeginPlain(path)
		if err != nil {
			return nil, err // not a nil *repo.PlainPending
		}
		return w, nil
	}
}

// Result is a backup that was taken.
type Result struct {
	Backup   *repo.Backup
	Manifest *format.Manifest
	// Attempts that it took.
	Attempts int
}

// Take backs a stream up. When it returns an error, nothing is left in the
// destination, unless the error is a [*LeftBehindError].
func Take(ctx context.Context, nc *nats.Conn, to Destination, o Options) (*Result, error) {
	o.defaults()
	js, err := jsapi.New(nc, jsapi.Options{Domain: o.Domain, Prefix: o.APIPrefix, Timeout: o.RequestTimeout})
	if err != nil {
		return nil, err
	}
	defer js.Close()

	early := make(chan listing, 1)
	t := &taker{js: js, o: o, early: early}
	go func() { // beside the look at the stream: over a long line each takes a round trip
		consumers, err := t.consumers(ctx)
		early <- listing{consumers, err}
	}()
	asked := time.Now()
	info, err := t.find(ctx)
	if err != nil {
		return nil, err
	}
	t.o.chooseWindow(time.Since(asked))
	w, err := to(ctx, o.Stream, time.Now().UTC())
	if err != nil {
		return nil, err
	}
	res, err := t.retry(ctx, info, w)
	if err != nil {
		if aerr := w.Abort(); aerr != nil {
			err = &LeftBehindError{Stream: o.Stream, What: remains(w, aerr), Err: err}
		}
		return nil, err
	}
	return res, nil
}

// chooseWindow chooses a window if none is given, by how long a request took.
func (o *Options) chooseWindow(roundTrip time.Duration) {
	if o.WindowSize == 0 {
		o.WindowSize = 8 << 20
		if roundTrip > 20*time.Millisecond {
			o.WindowSize *= 2
		}
	}
	o.QueueSize = max(o.QueueSize, int64(o.WindowSize))
}

// taker takes one backup.
type taker struct {
	js    *jsapi.Client
	o     Options
	early chan listing // the consumers, for the first attempt
}

// listing is a list of consumers, or why there is none.
type listing struct {
	consumers *jsapi.ConsumerList
	err       error
}

// find looks the stream up, with patience for a server that is just starting.
func (t *taker) find(ctx context.Context) (info *jsapi.StreamInfo, err error) {
	for n := 1; ; n++ {
		info, err = t.js.StreamInfo(ctx, t.o.Stream)
		if err == nil {
			if err := format.CheckNotBeingRestored(info.Config); err != nil {
				return nil, fmt.Errorf("stream %q: %w", t.o.Stream, err)
			}
			return info, nil
		}
		if n > t.o.Retries || !jsapi.Temporary(err) {
			return nil, fmt.Errorf("stream %q: %w", t.o.Stream, err)
		}
		if err := t.pause(ctx, n, err); err != nil {
			return nil, fmt.Errorf("stream %q: %w", t.o.Stream, err)
		}
	}
}

// retry makes attempts until one succeeds or fails for good.
func (t *taker) retry(ctx context.Context, info *jsapi.StreamInfo, w repo.Writer) (*Result, error) {
	var last error
	for n := 1; ; n++ {
		began := time.Now()
		m, err := t.attempt(ctx, info, w)
		if err == nil {
			b, err := w.Commit(ctx, m)
			switch {
			case err != nil && ctx.Err() != nil:
				return nil, fmt.Errorf("backup of stream %q: %w", t.o.Stream, err)
			case err != nil:
				return nil, &TransferError{Stream: t.o.Stream, Attempts: n, Err: err}
			}
			return &Result{Backup: b, Manifest: m, Attempts: n}, nil
		}
		again := n <= t.o.Retries && passing(err, last)
		last = err
		if ctx.Err() == nil && passing(err, nil) {
			var now *jsapi.StreamInfo
			now, err = t.diagnose(ctx, info, err)
			if now != nil {
				info = now
			}
			again = again && !errors.Is(err, ErrStreamGone) && !t.js.Conn().IsClosed()
		}
		if ctx.Err() == nil && !again {
			return nil, &TransferError{Stream: t.o.Stream, Attempts: n, Err: err}
		}
		t.slowDown(err, time.Since(began))
		if err := t.pause(ctx, n, err); err != nil {
			return nil, fmt.Errorf("backup of stream %q: %w", t.o.Stream, err)
		}
		if now, err := t.js.StreamInfo(ctx, t.o.Stream); err == nil {
			info = now // as of the next attempt
		}
	}
}

// diagnose adds to an attempt's error what has become of the stream, and returns
// its present info if there is one.
func (t *taker) diagnose(ctx context.Context, info *jsapi.StreamInfo, err error) (*jsapi.StreamInfo, error) {
	now, why := t.look(ctx, info)
	switch {
	case why == nil || errors.Is(err, ErrMoved) || errors.Is(err, ErrStreamReplaced):
	case now != nil || errors.Is(why, ErrStreamGone):
		err = fmt.Errorf("%w (%w)", why, err)
	default:
		err = fmt.Errorf("%w (asked again, the stream doesn't answer: %w)", err, why)
	}
	return now, err
}

// Bounds of what slowDown arrives at.
const (
	leastChunk  = 4 << 10
	leastWindow = 256 << 10
)

// slowDown has the next attempt ask for a quarter of the chunks and window if
// the last one may have failed for a slow link: the server gives up when a chunk
// and its acknowledgement take five seconds, and cuts off a client that doesn't
// take what is on its way within ten. Smaller chunks are also filled sooner,
// when the server is slow or the messages compress to next to nothing.
func (t *taker) slowDown(err error, lived time.Duration) {
	early := lived < time.Minute && (errors.Is(err, ErrDisconnected) || errors.Is(err, ErrServer))
	if errors.Is(err, ErrMoved) || !early && !errors.Is(err, ErrStalled) {
		return
	}
	t.o.ChunkSize = max(t.o.ChunkSize/4, min(t.o.ChunkSize, leastChunk))
	t.o.WindowSize = max(t.o.WindowSize/4, min(t.o.WindowSize, leastWindow))
}

// pause waits before attempt n+1, longer each time.
func (t *taker) pause(ctx context.Context, n int, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	wait := backOff(n)
	if t.o.Retrying != nil {
		t.o.Retrying(n, err, wait)
	}
	return sleep(ctx, wait)
}

// backOff doubles from a second to half a minute, give or take a quarter.
func backOff(n int) time.Duration {
	wait := min(time.Second<<min(n-1, 5), 30*time.Second)
	return wait*3/4 + rand.N(wait/2)
}

// sleep waits unless the context ends.
func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(d):
		return nil
	}
}
