package backup

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/jetkeep/jetkeep/format"
)

// Original says what a stream really is, when the one that is backed up is a copy
// that was changed to do no harm: a stopped server's, opened by another. The
// backup then holds the original's configurations with the copy's data.
type Original struct {
	// Config is the stream's configuration, for backup.json.
	Config format.Object
	// Created is when the stream was created; zero if that isn't known.
	Created time.Time
	// Consumers are the configurations of its consumers, by name. Each consumer
	// in the archive needs one.
	Consumers map[string]format.Object
	// Check is asked about the archive when all of it has arrived and before the
	// backup exists, in place of what is asked of a live stream; an error makes
	// the backup fail. It may be nil.
	Check func(context.Context, *format.Inspection) error
}

// describe corrects what a manifest says of where the backup is from.
func (o *Original) describe(m *format.Manifest) {
	if o == nil {
		return
	}
	m.Server.Name = "" // that of the server that opened the copy
	if !o.Created.IsZero() {
		m.Created = o.Created
	}
}

// head returns an archive's head with the consumers' own configurations.
func (o *Original) head(h *format.Head) (*format.Head, error) {
	out := *h
	out.Consumers = make([]format.Consumer, len(h.Consumers))
	for i, c := range h.Consumers {
		cfg, ok := o.Consumers[c.Name]
		if !ok {
			return nil, fmt.Errorf("consumer %q: its original configuration isn't known", c.Name)
		}
		if !cfg.Has("name") {
			// The server that snapshots gives every consumer its name.
			cfg = cfg.Clone()
			cfg.Set("name", c.Name)
		}
		c.Config = cfg
		out.Consumers[i] = c
	}
	return &out, nil
}

// archive is the archive that from reads, with its head as it was originally.
// stop ends a read that waits.
func (o *Original) archive(ctx context.Context, from io.Reader, stop func()) *originalArchive {
	r, w := io.Pipe()
	a := &originalArchive{PipeReader: r, stop: stop, done: make(chan struct{})}
	var head *format.Head
	relay := format.NewRelay(w, func() (*format.Head, error) { return o.head(head) })
	go func() {
		defer close(a.done)
		_, err := format.Inspect(ctx, from, format.InspectOptions{
			OnHead:  func(h *format.Head) error { head = h; return nil },
			OnBlock: relay.Block,
		})
		w.CloseWithError(err) // nil is io.EOF
	}()
	return a
}

type originalArchive struct {
	*io.PipeReader
	stop func()
	done chan struct{}
}

// close ends the reading at once.
func (a *originalArchive) close() {
	a.PipeReader.Close()
	a.stop()
	<-a.done
}
