package verify

import (
	"context"
	"fmt"
	"io"
	"sync/atomic"
	"time"

	"github.com/jetkeep/jetkeep/backup/repo"
	"github.com/jetkeep/jetkeep/format"
)

// Options of a check. The zero value is fine.
type Options struct {
	// Progress is called now and then from another goroutine; it may be nil.
	Progress func(Progress)
	// Now is the time at which TTLs are judged. Zero: the current time.
	Now time.Time
}

// Progress says how far a check is.
type Progress struct {
	// Bytes of Total have been read of the archive as stored.
	Bytes, Total int64
	Messages     uint64
}

// Check judges a backup and says what it holds.
func Check(ctx context.Context, b *repo.Backup) (*Report, error) {
	return Options{}.Check(ctx, b)
}

// Check judges a backup and says what it holds.
func (o Options) Check(ctx context.Context, b *repo.Backup) (*Report, error) {
	if o.Now.IsZero() {
		o.Now = time.Now()
	}
	c := &checker{o: o, b: b}
	start := time.Now()
	r, err := c.run(ctx)
	if err != nil {
		return nil, c.judge(err)
	}
	r.Duration = time.Since(start)
	return r, nil
}

// checker checks one backup.
type checker struct {
	o    Options
	b    *repo.Backup
	file *format.BackupFile

	cover   *cover
	expired uint64
	read    atomic.Int64
	seen    atomic.Uint64 // messages
}

// stream names the stream with what is known so far.
func (c *checker) stream() string {
	switch {
	case c.b.Manifest != nil:
		return c.b.Manifest.Stream
	case c.file != nil:
		return c.file.StreamName()
	}
	return ""
}

func (c *checker) run(ctx context.Context) (*Report, error) {
	var err error
	if c.file, err = c.b.BackupFile(ctx); err != nil {
		return nil, err
	}
	if c.b.Format() == "v1" {
		return nil, c.foreign()
	}
	if c.cover, err = newCover(c.file); err != nil {
		return nil, fmt.Errorf("%w: %w", repo.ErrDamaged, err)
	}
	size, err := c.b.ArchiveSize(ctx)
	if err != nil {
		return nil, err
	}
	stop := c.report(size)
	ins, parts, err := c.inspect(ctx)
	stop()
	if err != nil {
		return nil, err
	}
	if err := format.Belongs(c.file, ins); err != nil {
		return nil, err
	}
	if m := c.b.Manifest; m != nil {
		if err := compare(m, c.file, ins, parts); err != nil {
			return nil, err
		}
	}
	return c.result(ins), nil
}

// inspect reads the archive.
func (c *checker) inspect(ctx context.Context) (*format.Inspection, *partSums, error) {
	in, err := c.b.Archive(ctx)
	if err != nil {
		return nil, nil, err
	}
	defer in.Close()
	parts := newPartSums(c.b.Manifest)
	ins, err := format.Inspect(ctx, &source{in, c, parts}, format.InspectOptions{OnMessage: c.message})
	return ins, parts, err
}

// source counts and digests what is read.
type source struct {
	r     io.Reader
	c     *checker
	parts *partSums
}

func (s *source) Read(p []byte) (int, error) {
	n, err := s.r.Read(p)
	s.c.read.Add(int64(n))
	s.parts.write(p[:n])
	return n, err
}

func (c *checker) message(m *format.Message) error {
	c.seen.Add(1)
	if m.TTL > 0 {
		if at, ok := m.ExpiresAt(); ok && at.Before(c.o.Now) {
			c.expired++
		}
	}
	c.cover.message(m.Subject)
	return nil
}

// report calls Progress until the returned function is called.
func (c *checker) report(total int64) (stop func()) {
	if c.o.Progress == nil {
		return func() {}
	}
	quit, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		tick := time.NewTicker(200 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-quit:
				return
			case <-tick.C:
				c.o.Progress(Progress{Bytes: c.read.Load(), Total: total, Messages: c.seen.Load()})
			}
		}
	}()
	return func() { close(quit); <-ended }
}

func (c *checker) result(ins *format.Inspection) *Report {
	r := &Report{
		Location: c.b.Location(), Stream: c.file.StreamName(), Format: "v2",
		Bytes: ins.Bytes, RawBytes: ins.RawBytes, SHA256: ins.SHA256,
		Figures: ins.Figures, Expired: c.expired, Uncovered: c.cover.result(),
	}
	if m := c.b.Manifest; m != nil {
		r.ID, r.Taken, r.BackupFileSHA256 = m.ID, taken(m), m.BackupFileSHA256
		r.NoConsumers, r.MissingConsumers = m.NoConsumers, m.MissingConsumers
		for i, c := range m.Figures.Consumers { // the same ones: they have been compared
			r.Figures.Consumers[i].Live = c.Live
		}
	}
	r.Notes = notes(r)
	return r
}
