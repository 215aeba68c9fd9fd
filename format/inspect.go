package format

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"hash"
	"io"
	"sync/atomic"
)

// InspectOptions says who is called while an archive is inspected. Every
// function may be nil; they're called in the archive's order, one at a time,
// from a goroutine of the inspector's. An error that one returns ends the
// inspection and comes back as it is.
type InspectOptions struct {
	// OnHead is called once, before the first message.
	OnHead func(*Head) error
	// OnMessage is called for each message, once it has been checked.
	OnMessage func(*Message) error
	// OnBlock is called for each data chunk, once it has been decoded, checked
	// against its CRC, and every entry that ends in it has been checked.
	OnBlock func(*Block) error
}

// Inspection is what an archive turned out to be.
type Inspection struct {
	Head    *Head
	Figures Figures
	// Bytes is the archive's size as stored, RawBytes decompressed.
	Bytes, RawBytes int64
	// SHA256 is the digest of the archive as stored, in hexadecimal.
	SHA256 string
}

// Inspector checks an archive while its bytes are written to it: framing, block
// checksums, entries and every invariant of a sound archive. It decodes and
// walks in goroutines of its own, at most a few blocks behind the writer, so
// that a Write blocks when the functions in [InspectOptions] are slow.
//
// End it with [Inspector.Close], also after an error.
type Inspector struct {
	options InspectOptions
	split   splitter
	sum     hash.Hash
	walk    walker
	raw     int64
	decode  chan *Block
	checked chan *Block
	done    chan struct{}
	failed  atomic.Bool
	err     error // set before done is closed
	closed  bool
}

// blocksAhead bounds how far decoding runs ahead of walking, and splitting
// ahead of decoding.
const blocksAhead = 2

// NewInspector begins an inspection.
func NewInspector(o InspectOptions) *Inspector {
	i := &Inspector{
		options: o,
		sum:     sha256.New(),
		walk:    walker{onHead: o.OnHead, onMessage: o.OnMessage},
		decode:  make(chan *Block, blocksAhead),
		checked: make(chan *Block, blocksAhead),
		done:    make(chan struct{}),
	}
	go i.decoder()
	go i.walker()
	return i
}

// Write takes the next bytes of the archive. After damage was found it returns
// that error, as Close does.
func (i *Inspector) Write(p []byte) (int, error) {
	if i.closed || i.failed.Load() {
		return 0, cmp.Or(i.stop(), io.ErrClosedPipe)
	}
	i.sum.Write(p)
	if d := i.split.write(p, i.emit); d != nil {
		i.emit(&Block{damage: d})
		return 0, i.stop()
	}
	return len(p), nil
}

func (i *Inspector) emit(b *Block) { i.decode <- b }

// stop ends the goroutines and returns their error.
func (i *Inspector) stop() error {
	if !i.closed {
		i.closed = true
		close(i.decode)
	}
	<-i.done
	return i.err
}

// Close ends the inspection and returns what was found, or the first damage or
// error of a callback.
func (i *Inspector) Close() (*Inspection, error) {
	if !i.closed {
		if d := i.split.finish(); d != nil {
			i.emit(&Block{damage: d})
		}
	}
	if err := i.stop(); err != nil {
		return nil, err
	}
	return &Inspection{
		Head:    i.walk.head,
		Figures: i.walk.figures.finish(i.walk.lastSeq),
		Bytes:   i.split.offset, RawBytes: i.raw,
		SHA256: hex.EncodeToString(i.sum.Sum(nil)),
	}, nil
}

func (i *Inspector) decoder() {
	defer close(i.checked)
	for b := range i.decode {
		if len(b.Raw) > 0 && !i.failed.Load() {
			if err := b.decode(); err != nil {
				b.damage = &DamageError{Err: ErrCorrupt, Reason: err.Error(), Offset: b.Offset}
			}
		}
		i.checked <- b
	}
}

func (i *Inspector) walker() {
	defer close(i.done)
	for b := range i.checked {
		if i.err == nil {
			if i.err = i.block(b); i.err != nil {
				i.failed.Store(true)
			}
		}
		b.release()
	}
	if i.err == nil {
		i.walk.chunk = i.split.offset
		i.err = i.walk.finish()
	}
}

// block walks one block. A block with neither data nor an error stands for a
// stream identifier between blocks.
func (i *Inspector) block(b *Block) (err error) {
	i.walk.chunk = b.Offset
	switch {
	case b.abort != nil:
		return b.abort
	case b.damage != nil:
		return i.explain(b.damage)
	case i.walk.ended && len(b.Raw) == 0:
		return i.walk.corrupt(0, "another S2 stream behind the end marker")
	case i.walk.ended:
		return i.walk.corrupt(0, "data behind the end marker")
	case len(b.Raw) == 0:
		return nil
	}
	b.RawOffset = i.raw
	i.raw += int64(len(b.Data))
	if b.HeadBytes, err = i.walk.walk(b.Data); err != nil {
		return err
	}
	if i.options.OnBlock != nil {
		return i.options.OnBlock(b)
	}
	return nil
}

// explain adds to damage of the framing what the walk knows.
func (i *Inspector) explain(d *DamageError) error {
	d.RawOffset = i.raw
	d.LastGood = i.walk.lastGood()
	if i.walk.ended {
		d.Err = ErrCorrupt // nothing that belongs to the archive has been cut off
		d.Reason += ", behind the end marker"
	}
	return d
}

// Inspect reads an archive to its end and checks it.
func Inspect(ctx context.Context, r io.Reader, o InspectOptions) (*Inspection, error) {
	i := NewInspector(o)
	buf := make([]byte, 256<<10)
	for {
		n, err := r.Read(buf)
		if n > 0 {
			if _, werr := i.Write(buf[:n]); werr != nil {
				i.Close()
				return nil, werr
			}
		}
		if err == nil {
			err = context.Cause(ctx)
		}
		switch {
		case err == io.EOF:
			return i.Close()
		case err != nil:
			i.emit(&Block{abort: err})
			i.stop()
			return nil, err
		}
	}
}
