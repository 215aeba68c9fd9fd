package format

import (
	"fmt"
	"hash/crc32"
	"sync"

	"github.com/klauspost/compress/s2"
)

// S2 framing. https://github.com/google/snappy/blob/main/framing_format.txt,
// with blocks of up to 4 MiB.
const (
	chunkCompressed   = 0x00
	chunkUncompressed = 0x01
	chunkSkippable    = 0x80 // up to chunkPadding
	chunkIdentifier   = 0xff

	chunkHeader = 4
	chunkSum    = 4
	maxBlock    = 4 << 20
)

// StreamIdentifier begins an S2 stream.
const StreamIdentifier = "\xff\x06\x00\x00S2sTwO"

// snappyIdentifier begins a Snappy stream, which no server writes.
const snappyIdentifier = "\xff\x06\x00\x00sNaPpY"

// Padding is an empty S2 chunk. Sent between chunks and after the stream
// identifier, it changes nothing and shows a restoring server a live sender.
const Padding = "\xfe\x00\x00\x00"

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// blockSum is the masked CRC-32C of a chunk's decompressed data.
func blockSum(data []byte) uint32 {
	c := crc32.Checksum(data, castagnoli)
	return (c>>15 | c<<17) + 0xa282ead8
}

// Block is one data chunk of an archive. Its slices are valid only during the
// call that hands it out.
type Block struct {
	// Offset is where the chunk begins in the archive as stored, RawOffset
	// where its data begins decompressed.
	Offset, RawOffset int64
	// Raw is the chunk as stored, ready to be passed on in another S2 stream.
	Raw []byte
	// Data is its content, checked against its CRC.
	Data []byte
	// HeadBytes is how much of Data, from its beginning, belongs to what comes
	// before the messages.
	HeadBytes int

	buf []byte // holds Data when the block was compressed
	// Either is what ends the inspection in place of data.
	damage *DamageError
	abort  error
}

var blockPool = sync.Pool{New: func() any { return new(Block) }}

func newBlock(offset int64) *Block {
	b := blockPool.Get().(*Block)
	*b = Block{Offset: offset, Raw: b.Raw[:0], buf: b.buf}
	return b
}

func (b *Block) release() { blockPool.Put(b) }

// decode fills Data from Raw and checks it against its CRC.
func (b *Block) decode() error {
	body := b.Raw[chunkHeader:]
	if len(body) < chunkSum {
		return fmt.Errorf("S2 chunk of %d bytes is too short", len(body))
	}
	sum := uint32(body[0]) | uint32(body[1])<<8 | uint32(body[2])<<16 | uint32(body[3])<<24
	body = body[chunkSum:]
	if b.Raw[0] == chunkUncompressed {
		b.Data = body
	} else {
		n, err := s2.DecodedLen(body)
		if err != nil || n > maxBlock {
			return fmt.Errorf("S2 chunk doesn't declare a size up to %d bytes", maxBlock)
		}
		if cap(b.buf) < n {
			b.buf = make([]byte, n)
		}
		if b.Data, err = s2.Decode(b.buf[:n], body); err != nil {
			return fmt.Errorf("S2 chunk doesn't decode")
		}
	}
	if len(b.Data) > maxBlock {
		return fmt.Errorf("S2 chunk holds more than %d bytes", maxBlock)
	}
	if blockSum(b.Data) != sum {
		return fmt.Errorf("S2 chunk fails its checksum")
	}
	return nil
}

// splitter cuts a byte stream into S2 chunks and hands on those with data.
type splitter struct {
	offset  int64 // of the next byte
	begun   bool  // the stream identifier has been seen
	head    [chunkHeader]byte
	headLen int
	body    int // bytes of the current chunk still to come
	start   int64
	block   *Block // nil while skipping
	ident   []byte // collects an identifier
}

// write cuts p; each whole data chunk, and each identifier after the first as a
// block without Raw, goes to emit. A broken frame is returned as an error.
func (s *splitter) write(p []byte, emit func(*Block)) *DamageError {
	for len(p) > 0 {
		if s.body == 0 {
			n := copy(s.head[s.headLen:], p)
			if s.headLen == 0 {
				s.start = s.offset
			}
			s.headLen += n
			s.offset += int64(n)
			p = p[n:]
			if s.headLen < chunkHeader {
				return nil
			}
			s.headLen = 0
			if err := s.open(emit); err != nil {
				return err
			}
			continue
		}
		n := min(len(p), s.body)
		switch {
		case s.block != nil:
			s.block.Raw = append(s.block.Raw, p[:n]...)
		case s.head[0] == chunkIdentifier:
			s.ident = append(s.ident, p[:n]...)
		}
		s.body -= n
		s.offset += int64(n)
		p = p[n:]
		if s.body == 0 {
			if err := s.close(emit); err != nil {
				return err
			}
		}
	}
	return nil
}

// open begins a chunk whose header is complete.
func (s *splitter) open(emit func(*Block)) *DamageError {
	size := int(s.head[1]) | int(s.head[2])<<8 | int(s.head[3])<<16
	kind := s.head[0]
	if !s.begun && kind != chunkIdentifier {
		return &DamageError{Err: ErrNotArchive, Reason: "doesn't begin with an S2 stream identifier", Offset: s.start}
	}
	switch {
	case kind == chunkIdentifier:
		if size != len(StreamIdentifier)-chunkHeader {
			return s.foreign("S2 stream identifier of the wrong length")
		}
		s.ident = append(s.ident[:0], s.head[:]...)
	case kind == chunkCompressed || kind == chunkUncompressed:
		if size > s2.MaxEncodedLen(maxBlock)+chunkSum {
			return s.corrupt(fmt.Sprintf("S2 chunk of %d bytes", size))
		}
		s.block = newBlock(s.start)
		s.block.Raw = append(s.block.Raw, s.head[:]...)
	case kind < chunkSkippable:
		return s.corrupt(fmt.Sprintf("S2 chunk of unknown type 0x%02x", kind))
	case kind == chunkSkippable|chunkCompressed || kind == chunkSkippable|chunkUncompressed:
		// The checksum doesn't cover the type, and skipping the chunk would pass
		// off its messages as deleted.
		return s.corrupt(fmt.Sprintf("S2 chunk of type 0x%02x, a data chunk with one bit flipped", kind))
	}
	s.body = size
	if size == 0 {
		return s.close(emit)
	}
	return nil
}

// close ends a chunk whose body is complete.
func (s *splitter) close(emit func(*Block)) *DamageError {
	if s.block != nil {
		b := s.block
		s.block = nil
		emit(b)
		return nil
	}
	if s.head[0] == chunkIdentifier {
		switch string(s.ident) {
		case StreamIdentifier:
		case snappyIdentifier:
			return s.foreign("a Snappy stream, not S2")
		default:
			return s.foreign("unknown S2 stream identifier")
		}
		if s.begun {
			emit(newBlock(s.start))
		}
		s.begun = true
	}
	return nil
}

// foreign is about a stream identifier: at the very start it means that this
// isn't an archive, later that one is damaged.
func (s *splitter) foreign(reason string) *DamageError {
	if !s.begun {
		return &DamageError{Err: ErrNotArchive, Reason: reason, Offset: s.start}
	}
	return s.corrupt(reason)
}

func (s *splitter) corrupt(reason string) *DamageError {
	return &DamageError{Err: ErrCorrupt, Reason: reason, Offset: s.start}
}

// finish tells whether the input ended between two chunks of an S2 stream.
func (s *splitter) finish() *DamageError {
	switch {
	case s.offset == 0:
		return &DamageError{Err: ErrTruncated, Reason: "no data at all"}
	case !s.begun:
		return &DamageError{Err: ErrTruncated, Reason: "ends inside the S2 stream identifier"}
	case s.headLen != 0 || s.body != 0:
		return &DamageError{Err: ErrTruncated, Reason: "ends inside an S2 chunk", Offset: s.start}
	}
	return nil
}
