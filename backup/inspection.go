package backup

import (
	"errors"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jetkeep/jetkeep/format"
)

// inspection reads an archive and inspects what it reads. It returns io.EOF
// only once the archive is known to be whole and sound, so that nothing else
// is ever stored.
type inspection struct {
	from   io.Reader
	ins    *format.Inspector
	verify func(*format.Inspection) error
	result *format.Inspection // once Read has returned io.EOF
	err    error              // that ended the reading
	closed bool               // ins is

	bytes, raw, messages atomic.Int64
	quit                 chan struct{}
	reporter             sync.WaitGroup
}

// inspect begins an inspection of r; it has to be stopped.
func inspect(r io.Reader, verify func(*format.Inspection) error) *inspection {
	in := &inspection{from: r, verify: verify, quit: make(chan struct{})}
	in.ins = format.NewInspector(format.InspectOptions{
		OnMessage: func(*format.Message) error { in.messages.Add(1); return nil },
		OnBlock:   func(b *format.Block) error { in.raw.Add(int64(len(b.Data))); return nil },
	})
	return in
}

// Read reads and inspects.
func (in *inspection) Read(p []byte) (int, error) {
	if in.err != nil {
		return 0, in.err
	}
	n, err := in.from.Read(p)
	if n > 0 {
		in.bytes.Add(int64(n))
		if _, werr := in.ins.Write(p[:n]); werr != nil {
			err = werr
		}
	}
	if err == io.EOF {
		err = in.finish()
	}
	in.err = err
	return n, err
}

func (in *inspection) finish() error {
	in.closed = true
	result, err := in.ins.Close()
	if err != nil {
		return err
	}
	if err := in.verify(result); err != nil {
		return err
	}
	in.result = result
	return io.EOF
}

// outcome returns what was found, given how the writer ended. The error of
// reading goes before what the writer made of it.
func (in *inspection) outcome(err error) (*format.Inspection, error) {
	switch {
	case in.err != nil && in.err != io.EOF:
		return nil, in.err
	case err != nil:
		return nil, err
	case in.result == nil:
		return nil, errors.New("the writer stopped before the archive's end")
	}
	return in.result, nil
}

// stop ends the inspection. Nothing is reported afterwards.
func (in *inspection) stop() {
	close(in.quit)
	in.reporter.Wait()
	if !in.closed {
		in.closed = true
		in.ins.Close() // frees its goroutines; the reason is known already
	}
}

// report calls f now and then, and a last time at the end.
func (in *inspection) report(f func(Progress), total int64) {
	if f == nil {
		return
	}
	in.reporter.Go(func() {
		tick := time.NewTicker(200 * time.Millisecond)
		defer tick.Stop()
		for ended := false; !ended; {
			select {
			case <-in.quit:
				ended = true
			case <-tick.C:
			}
			f(Progress{Bytes: in.bytes.Load(), RawBytes: in.raw.Load(), Messages: uint64(in.messages.Load()), Total: total})
		}
	})
}
