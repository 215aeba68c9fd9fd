package format

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/klauspost/compress/s2"
)

// Writer encodes an archive: [Writer.WriteHead], then messages in ascending
// sequence, then [Writer.Close]. It checks what a reader would refuse, so that
// what it wrote can be read.
type Writer struct {
	s2      *s2.Writer
	scratch []byte
	check   walker
	err     error
	closed  bool
}

// NewWriter returns a Writer onto w. It keeps about two blocks of a mebibyte in
// memory.
func NewWriter(w io.Writer) *Writer {
	return &Writer{s2: s2.NewWriter(w, s2.WriterConcurrency(1))}
}

// ErrUsage says that a Writer's methods were called out of order.
var ErrUsage = errors.New("format: writer used out of order")

// WriteHead begins the archive. The state's consumer_count is set to the number
// of consumers; the rest of StateJSON is written as it is, or State when
// StateJSON is empty.
func (w *Writer) WriteHead(h *Head) error {
	if w.check.headDone || w.closed {
		return w.fail(ErrUsage)
	}
	data, err := AppendHead(w.scratch[:0], h)
	if err != nil {
		return w.fail(err)
	}
	return w.write(data)
}

// AppendHead appends what an archive holds before its messages: the magic bytes,
// the state and the consumers.
func AppendHead(p []byte, h *Head) ([]byte, error) {
	var state Object
	var err error
	if len(h.StateJSON) > 0 {
		state, err = ParseObject(h.StateJSON)
	} else {
		var raw []byte
		if raw, err = json.Marshal(h.State); err == nil {
			state, err = ParseObject(raw)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("state.json: %w", err)
	}
	state.Set("consumer_count", len(h.Consumers))
	body, err := json.Marshal(state)
	if err != nil {
		return nil, fmt.Errorf("state.json: %w", err)
	}
	p = append(p, magic...)
	p = appendEntry(p, &entry{name: []byte("state.json"), time: h.Time, payload: body})
	for _, c := range h.Consumers {
		body, err := json.Marshal(struct {
			Config Object `json:"config"`
			State  Object `json:"state"`
		}{c.Config, c.State})
		if err != nil {
			return nil, fmt.Errorf("consumer %q: %w", c.Name, err)
		}
		p = appendEntry(p, &entry{name: []byte("consumers/" + c.Name), time: h.Time, payload: body})
	}
	return p, nil
}

// Flush writes out what is buffered, as a block of its own.
func (w *Writer) Flush() error {
	if w.err != nil || w.closed {
		return w.err
	}
	return w.fail(w.s2.Flush())
}

// WriteMessage appends a message; its TTL is what its header says.
func (w *Writer) WriteMessage(m *Message) error {
	if !w.check.headDone || w.closed {
		return w.fail(ErrUsage)
	}
	if m.Seq == 0 { // without a subject and a time it would be an end marker
		return w.fail(w.check.corrupt(0, "message without a sequence"))
	}
	return w.write(appendEntry(w.scratch[:0], &entry{name: m.Subject, time: m.Time, seq: m.Seq, header: m.Header, payload: m.Payload}))
}

// Close writes the end marker and everything that is still buffered. It doesn't
// close the underlying writer. After an error it writes nothing more.
func (w *Writer) Close() error {
	if w.closed {
		return w.err
	}
	if !w.check.headDone {
		w.fail(ErrUsage)
	}
	w.closed = true
	if w.err == nil {
		w.write(appendEntry(w.scratch[:0], &entry{}))
	}
	if w.err != nil {
		return w.err
	}
	return w.fail(w.s2.Close())
}

// write checks data and passes it on.
func (w *Writer) write(data []byte) error {
	w.scratch = data[:0]
	if w.err != nil {
		return w.err
	}
	if _, err := w.check.walk(data); err != nil {
		return w.fail(err)
	}
	_, err := w.s2.Write(data)
	return w.fail(err)
}

func (w *Writer) fail(err error) error {
	if w.err == nil {
		w.err = err
	}
	return w.err
}

func appendEntry(p []byte, e *entry) []byte {
	p = binary.AppendUvarint(p, uint64(len(e.name)))
	p = binary.AppendVarint(p, e.time)
	p = binary.AppendUvarint(p, e.seq)
	p = binary.AppendUvarint(p, uint64(len(e.header)))
	p = binary.AppendUvarint(p, uint64(len(e.payload)))
	p = append(p, e.name...)
	p = append(p, e.header...)
	return append(p, e.payload...)
}

// Relay passes the checked blocks of an archive on to w as they are, with
// another head: what nothing has to change in isn't encoded again. Give its
// Block method to [InspectOptions].OnBlock.
type Relay struct {
	w     io.Writer
	head  func() (*Head, error)
	begun bool // the head has been written
	done  bool // and what followed the archive's own
}

// NewRelay returns a Relay onto w; head is asked once, when the archive's own
// head has been read.
func NewRelay(w io.Writer, head func() (*Head, error)) *Relay {
	return &Relay{w: w, head: head}
}

// Begin writes the head right away, as a block of its own, instead of when the
// archive's own has been read.
func (r *Relay) Begin() error {
	h, err := r.head()
	if err != nil {
		return err
	}
	data, err := AppendHead(nil, h)
	if err != nil {
		return err
	}
	r.begun = true
	return r.encode(data)
}

// encode writes data as S2 blocks.
func (r *Relay) encode(data ...[]byte) error {
	enc := s2.NewWriter(r.w, s2.WriterConcurrency(1))
	for _, p := range data {
		if _, err := enc.Write(p); err != nil {
			return err
		}
	}
	return enc.Close()
}

// Block passes one block on.
func (r *Relay) Block(b *Block) error {
	if r.done {
		_, err := r.w.Write(b.Raw)
		return err
	}
	rest := b.Data[b.HeadBytes:]
	if len(rest) == 0 {
		return nil // the head goes on, or ends just here: the next block has the messages
	}
	r.done = true
	if r.begun {
		return r.encode(rest)
	}
	h, err := r.head()
	if err != nil {
		return err
	}
	data, err := AppendHead(nil, h)
	if err != nil {
		return err
	}
	return r.encode(data, rest)
}
