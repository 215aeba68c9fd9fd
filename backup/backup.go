package backup

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/jetkeep/jetkeep/backup/repo"
	"github.com/jetkeep/jetkeep/format"
	"github.com/jetkeep/jetkeep/internal/jsapi"
	"github.com/jetkeep/jetkeep/internal/snapshot"
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
	// as many unacknowledged ones as fit in the window. Zero: 128 KiB, 8 MiB.
	ChunkSize, WindowSize int
	// QueueSize is how many bytes are held in memory at most while the writer
	// stalls. Zero: 32 MiB. It's never below the window.
	QueueSize int64
	// IdleTimeout is how long nothing may arrive. Zero: 30 s. A transfer whose
	// data keeps coming has no time limit.
	IdleTimeout time.Duration
	// Retries is how often a failed attempt is repeated; NoRetries none.
	// Zero: 5.
	Retries int

	// Context is the label of the NATS context, and Version jetkeep's own, for
	// the manifest.
	Context, Account, Version string
	// Progress is called now and then from another goroutine; it may be nil.
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
	if o.WindowSize == 0 {
		o.WindowSize = 8 << 20
	}
	if o.QueueSize == 0 {
		o.QueueSize = 32 << 20
	}
	o.QueueSize = max(o.QueueSize, int64(o.WindowSize))
	if o.IdleTimeout == 0 {
		o.IdleTimeout = 30 * time.Second
	}
	if o.Retries == 0 {
		o.Retries = 5
	}
}

// Destination begins a backup: [repo.Repository.Begin], [repo.BeginPlain], ….
type Destination func(ctx context.Context, stream string, start time.Time) (repo.Writer, error)

// Result is a backup that was taken.
type Result struct {
	Backup   *repo.Backup
	Manifest *format.Manifest
	// Attempts that it took.
	Attempts int
}

// Take backs a stream up. When it returns an error, nothing is left in the
// destination.
func Take(ctx context.Context, nc *nats.Conn, to Destination, o Options) (*Result, error) {
	o.defaults()
	js, err := jsapi.New(nc, jsapi.Options{Domain: o.Domain, Prefix: o.APIPrefix, Timeout: o.RequestTimeout})
	if err != nil {
		return nil, err
	}
	defer js.Close()

	t := &taker{js: js, o: o}
	info, err := t.find(ctx)
	if err != nil {
		return nil, err
	}
	w, err := to(ctx, o.Stream, time.Now().UTC())
	if err != nil {
		return nil, err
	}
	res, err := t.retry(ctx, info, w)
	if err != nil {
		if aerr := w.Abort(); aerr != nil {
			return nil, errors.Join(err, fmt.Errorf("removing the unfinished backup: %w", aerr))
		}
		return nil, err
	}
	return res, nil
}

// taker takes one backup.
type taker struct {
	js *jsapi.Client
	o  Options
}

// find looks the stream up, with patience for a server that is just starting.
func (t *taker) find(ctx context.Context) (info *jsapi.StreamInfo, err error) {
	for n := 0; ; n++ {
		info, err = t.js.StreamInfo(ctx, t.o.Stream)
		if err == nil {
			return info, nil
		}
		if n >= t.o.Retries || !jsapi.Temporary(err) {
			return nil, fmt.Errorf("stream %q: %w", t.o.Stream, err)
		}
		if err := t.pause(ctx, n+1, err); err != nil {
			return nil, err
		}
	}
}

// retry makes attempts until one succeeds or fails for good.
func (t *taker) retry(ctx context.Context, info *jsapi.StreamInfo, w repo.Writer) (*Result, error) {
	for n := 1; ; n++ {
		m, err := t.attempt(ctx, info, w)
		if err == nil {
			b, err := w.Commit(ctx, m)
			if err != nil {
				return nil, fmt.Errorf("backup of stream %q: %w", t.o.Stream, err)
			}
			return &Result{Backup: b, Manifest: m, Attempts: n}, nil
		}
		if ctx.Err() != nil {
			return nil, fmt.Errorf("backup of stream %q: %w", t.o.Stream, context.Cause(ctx))
		}
		if !passing(err) {
			return nil, &TransferError{Stream: t.o.Stream, Attempts: n, Err: err}
		}
		now, ierr := t.lookAgain(ctx, info)
		switch {
		case errors.Is(ierr, ErrStreamGone):
			return nil, &TransferError{Stream: t.o.Stream, Attempts: n, Err: fmt.Errorf("%w (%v)", ErrStreamGone, err)}
		case errors.Is(ierr, ErrMoved) && !errors.Is(err, ErrMoved):
			err = fmt.Errorf("%w; %w", err, ierr)
		}
		if n > t.o.Retries {
			return nil, &TransferError{Stream: t.o.Stream, Attempts: n, Err: err}
		}
		if now != nil {
			info = now
		}
		if err := t.pause(ctx, n, err); err != nil {
			return nil, err
		}
		if now, err := t.js.StreamInfo(ctx, t.o.Stream); err == nil {
			info = now
		}
	}
}

// pause waits before attempt n+1, longer each time.
func (t *taker) pause(ctx context.Context, n int, err error) error {
	wait := min(time.Second<<(n-1), 30*time.Second)
	wait = wait*3/4 + rand.N(wait/2)
	if t.o.Retrying != nil {
		t.o.Retrying(n, err, wait)
	}
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(wait):
		return nil
	}
}

// lookAgain tells what has become of the stream: ErrMoved, ErrStreamGone,
// ErrStreamReplaced, nil when it's where it was, or that it can't be known.
func (t *taker) lookAgain(ctx context.Context, before *jsapi.StreamInfo) (*jsapi.StreamInfo, error) {
	now, err := t.js.StreamInfo(ctx, t.o.Stream)
	switch {
	case jsapi.IsCode(err, jsapi.CodeStreamNotFound):
		return nil, ErrStreamGone
	case err != nil:
		return nil, err
	case !now.Created.Equal(before.Created):
		return now, ErrStreamReplaced
	case leader(now) != leader(before):
		return now, fmt.Errorf("%w from %s to %s", ErrMoved, leader(before), leader(now))
	}
	return now, nil
}

func leader(i *jsapi.StreamInfo) string {
	if i.Cluster == nil {
		return ""
	}
	return i.Cluster.Leader
}

// attempt takes one snapshot and puts it and backup.json into w.
func (t *taker) attempt(ctx context.Context, info *jsapi.StreamInfo, w repo.Writer) (*format.Manifest, error) {
	m := &format.Manifest{
		Version: format.ManifestVersion, ID: w.ID(), Stream: t.o.Stream, Created: info.Created,
		Account: t.o.Account, Context: t.o.Context, JetkeepVersion: t.o.Version,
		Started: time.Now().UTC(), NoConsumers: t.o.NoConsumers, Format: "v2",
		Server: t.server(info),
	}
	expected, err := t.consumers(ctx)
	if err != nil {
		return nil, err
	}
	rc, err := snapshot.Start(ctx, t.js, snapshot.Options{
		Stream: t.o.Stream, NoConsumers: t.o.NoConsumers,
		ChunkSize: t.o.ChunkSize, WindowSize: t.o.WindowSize,
		Hold: t.o.QueueSize, Idle: t.o.IdleTimeout,
		Probe: func() error { return t.probe(ctx, info) },
	})
	if err != nil {
		return nil, err
	}
	defer rc.Close()
	file := &format.BackupFile{Config: rc.Config, State: rc.State}
	in := t.inspect(rc, file)
	defer in.stop()
	in.verify = func(ins *format.Inspection) error { return t.settle(ctx, info, file, ins) }
	if _, err := w.Put(ctx, format.ArchiveV2Name, in); err != nil {
		return nil, in.cause(err)
	}
	ins := in.result
	m.Ended = time.Now().UTC()
	m.Figures = ins.Figures
	m.MissingConsumers = missing(expected, ins.Head.Consumers)
	m.Objects = []format.ArchiveObject{{
		Key: format.ArchiveV2Name, Bytes: ins.Bytes, RawBytes: ins.RawBytes, SHA256: ins.SHA256,
		FirstSeq: ins.Figures.FirstSeq, LastSeq: ins.Figures.LastSeq,
	}}
	return m, t.putBackupFile(ctx, w, file, m)
}

// probe tells whether the stream has left the server that was sending it.
func (t *taker) probe(ctx context.Context, info *jsapi.StreamInfo) error {
	_, err := t.lookAgain(ctx, info)
	if errors.Is(err, ErrMoved) || errors.Is(err, ErrStreamGone) || errors.Is(err, ErrStreamReplaced) {
		return err
	}
	return nil
}

func (t *taker) server(info *jsapi.StreamInfo) format.Server {
	nc := t.js.Conn()
	s := format.Server{Version: nc.ConnectedServerVersion(), Name: nc.ConnectedServerName(), Domain: info.Domain}
	if info.Cluster != nil {
		s.Cluster = info.Cluster.Name
		if info.Cluster.Leader != "" {
			s.Name = info.Cluster.Leader
		}
	}
	return s
}

// consumers lists the consumers that the archive should hold.
func (t *taker) consumers(ctx context.Context) ([]string, error) {
	if t.o.NoConsumers {
		return nil, nil
	}
	list, err := t.js.Consumers(ctx, t.o.Stream)
	if err != nil {
		return nil, fmt.Errorf("listing consumers: %w", err)
	}
	names := slices.Clone(list.Missing)
	for _, c := range list.Consumers {
		names = append(names, c.Name)
	}
	return names, nil
}

// missing returns the expected consumers that aren't among those found.
func missing(expected []string, found []format.Consumer) []string {
	var out []string
	for _, name := range expected {
		if !slices.ContainsFunc(found, func(c format.Consumer) bool { return c.Name == name }) {
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return out
}

// settle checks an archive that arrived against what the server said about it.
func (t *taker) settle(ctx context.Context, before *jsapi.StreamInfo, file *format.BackupFile, ins *format.Inspection) error {
	if err := format.Belongs(file, ins); err != nil {
		return err
	}
	var err error
	for n := range 5 {
		_, err = t.lookAgain(ctx, before)
		if err == nil || errors.Is(err, ErrMoved) {
			return nil
		}
		if !jsapi.Temporary(err) {
			return err
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(time.Second << n / 4):
		}
	}
	return err
}

func (t *taker) putBackupFile(ctx context.Context, w repo.Writer, file *format.BackupFile, m *format.Manifest) error {
	data, err := json.Marshal(file)
	if err != nil {
		return err
	}
	sum := sha256.Sum256(data)
	m.BackupFileSHA256 = hex.EncodeToString(sum[:])
	_, err = w.Put(ctx, format.BackupFileName, bytes.NewReader(data))
	return err
}

// inspection reads an archive and inspects what it reads. It returns io.EOF
// only once the archive is known to be whole and sound, so that nothing else
// is ever stored.
type inspection struct {
	from   io.Reader
	ins    *format.Inspector
	verify func(*format.Inspection) error
	result *format.Inspection
	err    error
	ended  bool

	bytes, raw, messages atomic.Int64
	quit                 chan struct{}
}

func (t *taker) inspect(r io.Reader, file *format.BackupFile) *inspection {
	in := &inspection{from: r, quit: make(chan struct{})}
	in.ins = format.NewInspector(format.InspectOptions{
		OnMessage: func(*format.Message) error { in.messages.Add(1); return nil },
		OnBlock:   func(b *format.Block) error { in.raw.Add(int64(len(b.Data))); return nil },
	})
	if t.o.Progress != nil {
		state, _ := file.StreamState()
		go in.report(t.o.Progress, int64(state.Bytes))
	}
	return in
}

func (in *inspection) Read(p []byte) (int, error) {
	if in.err != nil {
		return 0, in.err
	}
	n, err := in.from.Read(p)
	if n > 0 {
		in.bytes.Add(int64(n))
		if _, werr := in.ins.Write(p[:n]); werr != nil {
			in.err = werr
			return 0, werr
		}
	}
	if errors.Is(err, io.EOF) {
		err = in.finish()
	}
	in.err = err
	return n, err
}

func (in *inspection) finish() error {
	in.ended = true
	result, err := in.ins.Close()
	if err != nil {
		if errors.Is(err, format.ErrV1) {
			return ErrNeedsV2
		}
		return err
	}
	if err := in.verify(result); err != nil {
		return err
	}
	in.result = result
	return io.EOF
}

// cause prefers the error of reading to what the writer made of it.
func (in *inspection) cause(err error) error {
	if in.err != nil && !errors.Is(in.err, io.EOF) {
		return in.err
	}
	return err
}

func (in *inspection) stop() {
	close(in.quit)
	if !in.ended {
		in.ended = true
		in.ins.Close()
	}
}

func (in *inspection) report(f func(Progress), total int64) {
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-in.quit:
			return
		case <-tick.C:
			f(Progress{Bytes: in.bytes.Load(), RawBytes: in.raw.Load(), Messages: uint64(in.messages.Load()), Total: total})
		}
	}
}
