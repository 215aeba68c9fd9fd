package restore

import (
	"bytes"
	"cmp"
	"context"
	"slices"
	"strconv"
	"time"

	"github.com/jetkeep/jetkeep/format"
	"github.com/jetkeep/jetkeep/internal/jsapi"
)

// A stream with sources knows how far it has read each of them by the header
// that it puts on what it sources, of five fields and, from 2.15 on, a sixth:
//
//	<stream> <sequence> <filter> <transform> <subject> [<identity of the stream>]
//
// The identity is new for an origin that was restored, and a server that sees
// another one than it expects begins with that origin anew: everything comes a
// second time. So where the origin isn't the one that was sourced from, and
// seems to hold the same messages, the identity is taken out of the last header
// of each source. The server then goes on behind the sequence in it.
const sourceHeader = "Nats-Stream-Source"

// sourced is how far a stream has read a source.
type sourced struct {
	stream string // with ":" and a hash where it's external or by a consumer
	seq    uint64 // in the origin, of the last message read
	// Of the message with the last header.
	at    uint64
	time  time.Time
	ident bool
}

// parseSource reads the fields of a source header; n is how many there are.
func parseSource(header []byte) (fields [6][]byte, n int) {
	for f := range bytes.SplitSeq(format.HeaderValue(header, sourceHeader), []byte(" ")) {
		if n == len(fields) {
			return fields, 0
		}
		fields[n] = f
		n++
	}
	return fields, n
}

// noteSource keeps the last header of each source.
func (s *scan) noteSource(m *format.Message) {
	f, n := parseSource(m.Header)
	if n < 4 {
		return
	}
	seq, err := strconv.ParseUint(string(f[1]), 10, 64)
	if err != nil || len(f[0])+len(f[2])+len(f[3]) > maxSourceKey {
		return
	}
	// The server's own index of a source.
	key := string(f[0]) + " " + string(f[2]) + " " + string(f[3])
	was := s.sourced[key]
	if was == nil {
		if len(s.sourced) >= maxSourced {
			return
		}
		was = &sourced{stream: string(f[0])}
		s.sourced[key] = was
	}
	was.seq, was.at, was.time, was.ident = seq, m.Seq, time.Unix(0, m.Time), n == 6
}

// maxSourced and maxSourceKey bound what a hostile archive makes us remember.
const (
	maxSourced   = 10_000
	maxSourceKey = 1024
)

// checkSource looks for an origin that the stream sources from.
func (p *planner) checkSource(ctx context.Context, o *origin) {
	var read []*sourced
	for _, s := range p.scan.sourced {
		if s.stream == o.Name || o.external() && bytes.HasPrefix([]byte(s.stream), []byte(o.Name+":")) {
			read = append(read, s)
		}
	}
	if len(read) == 0 {
		p.findOrigin(ctx, "source", o, 0)
		if p.scan.messages > 0 || p.archive.Head.State.LastSeq > 0 {
			p.find("source", Warning, "the backup holds no message from %q that says how far it was read: all that it has will come, again or not", o.Name)
		}
		return
	}
	last := slices.MaxFunc(read, func(a, b *sourced) int { return cmp.Compare(a.seq, b.seq) })
	if o.external() {
		p.find("source", Unknown, "its source %q is in another account or domain: it's read on behind sequence %d", o.Name, last.seq)
		p.forgetIdentity(read)
		return
	}
	info, err := p.js.StreamInfo(ctx, o.Name)
	switch {
	case jsapi.IsCode(err, jsapi.CodeStreamNotFound):
		p.find("source", Warning, "its source %q doesn't exist: nothing will arrive until it does, and then only what comes behind sequence %d", o.Name, last.seq)
	case err != nil:
		p.find("source", Unknown, "its source %q: %v", o.Name, err)
		return
	case info.Created.Before(last.time):
		p.find("source", OK, "its source %q exists", o.Name)
		return
	case info.State.LastSeq < last.seq:
		p.find("source", Warning, "its source %q was created after the backup, and ends at sequence %d of %d that the backup holds: the server takes it for a new one and reads all of it", o.Name, info.State.LastSeq, last.seq)
		return
	default:
		p.find("source", OK, "its source %q was created anew: it's read on behind sequence %d, so that nothing comes twice", o.Name, last.seq)
	}
	p.forgetIdentity(read)
}

// forgetIdentity has the identity taken out of the last headers.
func (p *planner) forgetIdentity(read []*sourced) {
	for _, s := range read {
		if s.ident {
			p.Rewrite = true
			p.nameless = append(p.nameless, s.at)
		}
	}
	slices.Sort(p.nameless)
}

// dropIdentity takes the identity out of a source header, if there is one.
func dropIdentity(header []byte) []byte {
	f, n := parseSource(header)
	if n != 6 {
		return header
	}
	line := bytes.Index(header, []byte("\r\n"+sourceHeader+":"))
	end := line + 2 + bytes.Index(header[line+2:], []byte("\r\n"))
	return slices.Concat(header[:end-len(f[5])-1], header[end:])
}

// checkReaders warns of streams that source from the one being restored: they
// can't tell it from a new one.
func (p *planner) checkReaders() {
	for _, other := range p.others {
		c, err := parseConfig(other.Config)
		if err != nil {
			continue
		}
		for _, s := range c.Sources {
			if s.Name == p.Target.Stream && !s.external() {
				p.find("readers", Warning, "stream %q sources from %q: it will take it for a new one and read all of it again, unless its source gets an opt_start_seq (%d to go on where the backup ends) beforehand",
					other.Name(), p.Target.Stream, p.archive.Head.State.LastSeq+1)
			}
		}
	}
}
