package format

import (
	"errors"
	"fmt"
	"strings"
)

// Kinds of damage; [DamageError] wraps one of them.
var (
	// ErrTruncated says that the archive ends before its end marker.
	ErrTruncated = errors.New("truncated archive")
	// ErrCorrupt says that the archive breaks its format or an invariant.
	ErrCorrupt = errors.New("corrupt archive")
	// ErrNotArchive says that the data isn't an archive at all.
	ErrNotArchive = errors.New("not a stream archive")
	// ErrV1 says that the data is an archive of a server before 2.15.
	ErrV1 = errors.New("V1 archive")
)

// DamageError says where an archive is damaged.
type DamageError struct {
	// Err is ErrTruncated, ErrCorrupt, ErrNotArchive or ErrV1.
	Err error
	// Reason says what is wrong, without the place.
	Reason string
	// Offset is where, in bytes of the archive as stored, the S2 chunk begins in
	// which the damage showed; RawOffset where, in decompressed bytes, the entry
	// does, or the chunk's data when the chunk itself is damaged.
	Offset, RawOffset int64
	// Seq is the message that is damaged; 0 when that isn't known.
	Seq uint64
	// LastGood names the last entry that was whole, "" before the first one:
	// "state.json", "consumers/C", or a message's sequence and time.
	LastGood string
}

func (e *DamageError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %s", e.Err, e.Reason)
	if e.Seq != 0 {
		fmt.Fprintf(&b, " (message sequence %d)", e.Seq)
	}
	fmt.Fprintf(&b, " at byte %d (decompressed %d)", e.Offset, e.RawOffset)
	if e.LastGood != "" {
		fmt.Fprintf(&b, "; last good entry: %s", e.LastGood)
	} else if !errors.Is(e.Err, ErrNotArchive) && !errors.Is(e.Err, ErrV1) {
		b.WriteString("; no good entry before it")
	}
	return b.String()
}

// Unwrap returns the kind of damage.
func (e *DamageError) Unwrap() error { return e.Err }
