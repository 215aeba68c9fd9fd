package restore

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/jetkeep/jetkeep/format"
)

// Store takes a replayed stream. Its two operations are those of the server's
// own store; sequences come in ascending order and without a hole. The slices
// are valid only during the call.
type Store interface {
	// StoreRawMsg stores a message; ts is in Unix nanoseconds, ttl in seconds
	// (0 none, negative "never").
	StoreRawMsg(subject, hdr, msg []byte, seq uint64, ts, ttl int64) error
	// SkipMsgs uses up n sequences from seq on, without messages.
	SkipMsgs(seq, n uint64) error
}

// ReplayOptions of a replay. The zero value replays everything that hasn't
// expired.
type ReplayOptions struct {
	// Now tells which TTLs are over; nil means time.Now.
	Now func() time.Time
	// OnHead is called before the first message; it may be nil.
	OnHead func(*format.Head) error
	// Edit may change a message but for its sequence, before it's stored; it
	// may be nil.
	Edit func(*format.Message) error
}

// Replayed counts what a replay did.
type Replayed struct {
	*format.Inspection
	// Stored messages, and messages skipped because their TTL was over.
	Stored, Expired uint64
}

// Replay reads an archive, checks it on the way, and writes its messages into a
// store. Deleted sequences become gaps; so does a message whose TTL is over,
// which keeps its sequence and loses its data; and so do sequences between the
// last message and the stream's last sequence, so that none is used twice.
//
// What was stored before an error stays stored: only the nil error means that
// the archive was whole.
func Replay(ctx context.Context, archive io.Reader, s Store, o ReplayOptions) (*Replayed, error) {
	r := &replayer{store: s, o: o}
	if r.o.Now == nil {
		r.o.Now = time.Now
	}
	ins, err := format.Inspect(ctx, archive, format.InspectOptions{OnHead: r.head, OnMessage: r.message})
	if err != nil {
		return nil, err
	}
	if last := ins.Head.State.LastSeq; r.next <= last && last > 0 {
		if err := s.SkipMsgs(r.next, last-r.next+1); err != nil {
			return nil, fmt.Errorf("failed to process trailing gap: %w", err)
		}
	}
	return &Replayed{Inspection: ins, Stored: r.stored, Expired: r.expired}, nil
}

type replayer struct {
	store           Store
	o               ReplayOptions
	next            uint64 // the sequence that follows what was stored or skipped
	stored, expired uint64
}

func (r *replayer) head(h *format.Head) error {
	r.next = h.State.FirstSeq
	if r.o.OnHead != nil {
		return r.o.OnHead(h)
	}
	return nil
}

func (r *replayer) message(m *format.Message) error {
	if gap := m.Seq - r.next; gap > 0 {
		if err := r.store.SkipMsgs(r.next, gap); err != nil {
			return fmt.Errorf("failed to process gap: %w", err)
		}
	}
	r.next = m.Seq + 1
	if at, ok := m.ExpiresAt(); ok && r.o.Now().After(at) {
		r.expired++
		if err := r.store.SkipMsgs(m.Seq, 1); err != nil {
			return fmt.Errorf("failed to process expired message sequence %d: %w", m.Seq, err)
		}
		return nil
	}
	if r.o.Edit != nil {
		if err := r.o.Edit(m); err != nil {
			return &StoreError{Seq: m.Seq, Err: err}
		}
	}
	if err := r.store.StoreRawMsg(m.Subject, m.Header, m.Payload, m.Seq, m.Time, m.TTL); err != nil {
		return &StoreError{Seq: m.Seq, Err: err}
	}
	r.stored++
	return nil
}

// archiveStore writes an archive. An archive says nothing of skipped sequences:
// its reader sees them in the numbers.
type archiveStore struct {
	w   *format.Writer
	msg format.Message
}

func (a *archiveStore) StoreRawMsg(subject, hdr, msg []byte, seq uint64, ts, ttl int64) error {
	a.msg = format.Message{Subject: subject, Header: hdr, Payload: msg, Seq: seq, Time: ts, TTL: ttl}
	return a.w.WriteMessage(&a.msg)
}

func (a *archiveStore) SkipMsgs(uint64, uint64) error { return nil }
