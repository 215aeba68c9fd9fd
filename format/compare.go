package format

import (
	"bytes"
	"context"
	"fmt"
	"io"
)

// CompareOptions of a comparison; every field may be nil.
type CompareOptions struct {
	// Edit changes a message of the first archive before it's compared.
	Edit func(*Message) error
	// Gone reports that a message of the first archive may be missing in the
	// second.
	Gone func(*Message) bool
	// Progress is called for each message of the first archive.
	Progress func(*Message)
}

// Differences between two archives' messages.
type Differences struct {
	// Compared is how many sequences both have.
	Compared uint64
	// Changed messages have another content at the same sequence, Missing ones
	// only the first archive has, Extra ones only the second.
	Changed, Missing, Extra uint64
	// First holds the first few.
	First []Difference
}

// Difference is one message that differs.
type Difference struct {
	Seq     uint64
	Subject string
	// What differs: "subject", "time", "header", "payload", "missing", "extra".
	What string
}

// Total counts all that differ.
func (d *Differences) Total() uint64 { return d.Changed + d.Missing + d.Extra }

// Texts describes the differences in a few lines.
func (d *Differences) Texts() []string {
	texts := []string{fmt.Sprintf("%d messages changed, %d missing, %d extra", d.Changed, d.Missing, d.Extra)}
	for _, f := range d.First {
		texts = append(texts, fmt.Sprintf("sequence %d on %q: %s", f.Seq, f.Subject, f.What))
	}
	return texts
}

const firstDifferences = 10

func (d *Differences) note(count *uint64, m *Message, what string) {
	*count++
	if len(d.First) < firstDifferences {
		d.First = append(d.First, Difference{Seq: m.Seq, Subject: string(m.Subject), What: what})
	}
}

// Compare reads two archives side by side and compares their messages: subject,
// time, header and payload at each sequence. Both are inspected; damage to
// either is an error. Memory stays within a few blocks.
//
// After an error b may be in the middle of a last Read.
func Compare(ctx context.Context, a, b io.Reader, o CompareOptions) (*Differences, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	d := &Differences{}
	other := pull(ctx, b)
	_, err := Inspect(ctx, a, InspectOptions{OnMessage: func(m *Message) error {
		if o.Progress != nil {
			o.Progress(m)
		}
		if o.Edit != nil {
			if err := o.Edit(m); err != nil {
				return err
			}
		}
		for {
			theirs, err := other.peek()
			if err != nil {
				return err
			}
			switch {
			case theirs == nil || theirs.Seq > m.Seq:
				if o.Gone == nil || !o.Gone(m) {
					d.note(&d.Missing, m, "missing")
				}
				return nil
			case theirs.Seq < m.Seq:
				d.note(&d.Extra, theirs, "extra")
				other.advance()
				continue
			}
			d.Compared++
			if what := differs(m, theirs); what != "" {
				d.note(&d.Changed, m, what)
			}
			other.advance()
			return nil
		}
	}})
	if err != nil {
		return nil, err
	}
	for {
		theirs, err := other.peek()
		if err != nil {
			return nil, err
		}
		if theirs == nil {
			return d, nil
		}
		d.note(&d.Extra, theirs, "extra")
		other.advance()
	}
}

// SecondError is an error of the second archive of a comparison, or of reading
// it.
type SecondError struct{ Err error }

func (e *SecondError) Error() string { return "the second archive: " + e.Err.Error() }

// Unwrap returns the error.
func (e *SecondError) Unwrap() error { return e.Err }

func differs(a, b *Message) string {
	switch {
	case !bytes.Equal(a.Subject, b.Subject):
		return "subject"
	case a.Time != b.Time:
		return "time"
	case !bytes.Equal(a.Header, b.Header):
		return "header"
	case !bytes.Equal(a.Payload, b.Payload):
		return "payload"
	}
	return ""
}

// puller turns an inspection around: messages are asked for instead of handed
// out.
type puller struct {
	ctx      context.Context // ends the inspection
	messages chan *Message
	taken    chan struct{}
	err      error // set before messages is closed
	current  *Message
	ended    bool
}

func pull(ctx context.Context, r io.Reader) *puller {
	p := &puller{ctx: ctx, messages: make(chan *Message), taken: make(chan struct{})}
	go func() {
		defer close(p.messages)
		if _, err := Inspect(ctx, r, InspectOptions{OnMessage: p.offer}); err != nil {
			p.err = &SecondError{err}
		}
	}()
	return p
}

// offer hands a message over and waits until it's no longer needed, since its
// slices are valid only that long.
func (p *puller) offer(m *Message) error {
	select {
	case p.messages <- m:
	case <-p.ctx.Done():
		return context.Cause(p.ctx)
	}
	select {
	case <-p.taken:
		return nil
	case <-p.ctx.Done():
		return context.Cause(p.ctx)
	}
}

// peek returns the next message, or nil at the end of a sound archive.
func (p *puller) peek() (*Message, error) {
	if p.current == nil && !p.ended {
		select {
		case m, ok := <-p.messages:
			p.current, p.ended = m, !ok
		case <-p.ctx.Done():
			return nil, context.Cause(p.ctx)
		}
	}
	if p.ended {
		return nil, p.err
	}
	return p.current, nil
}

func (p *puller) advance() {
	p.current = nil
	select {
	case p.taken <- struct{}{}:
	case <-p.ctx.Done():
	}
}
