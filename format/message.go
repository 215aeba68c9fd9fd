package format

import (
	"bytes"
	"errors"
	"fmt"
	"time"
)

// Message is a message of an archive. Its slices are valid only during the call
// that hands it out.
type Message struct {
	Seq uint64
	// Time is when it was stored, in Unix nanoseconds.
	Time int64
	// TTL is its time to live in seconds: 0 without one, negative for "never".
	TTL     int64
	Subject []byte
	Header  []byte
	Payload []byte
}

// ExpiresAt returns when the message's own TTL ends; ok is false when it has
// none that does.
func (m *Message) ExpiresAt() (t time.Time, ok bool) {
	if m.TTL <= 0 {
		return time.Time{}, false
	}
	// A TTL beyond 292 years wraps around, and ends in the past: as on the server.
	return time.Unix(0, m.Time).Add(time.Duration(m.TTL) * time.Second), true
}

// Size is what max_payload and max_msg_size are held against: header and
// payload bytes.
func (m *Message) Size() int { return len(m.Header) + len(m.Payload) }

// StoreSize is what the message takes up in a file store (nats-server: 22 bytes
// of record head, 8 of checksum, 4 of header length where there are headers).
func (m *Message) StoreSize() uint64 {
	n := uint64(22 + 8 + len(m.Subject) + len(m.Header) + len(m.Payload))
	if len(m.Header) > 0 {
		n += 4
	}
	return n
}

// HeaderValue returns the first value of a header as the server looks it up,
// case-sensitive and without leading spaces, or nil.
func HeaderValue(header []byte, key string) []byte {
	for at := 0; ; {
		i := bytes.Index(header[at:], []byte(key))
		if i < 2 {
			// Also where the key follows right behind a place that wasn't it: as
			// on the server, which gives up there.
			return nil
		}
		i += at
		end := i + len(key)
		if header[i-1] != '\n' || header[i-2] != '\r' || end >= len(header) || header[end] != ':' {
			at = end
			continue
		}
		v := bytes.TrimLeft(header[end+1:], " ")
		if cr := bytes.Index(v, []byte("\r\n")); cr >= 0 {
			v = v[:cr]
		}
		return v
	}
}

// ttlHeader carries a message's own time to live (NATS ADR-43).
const ttlHeader = "Nats-TTL"

// MessageTTL reads the Nats-TTL of a header block, in seconds: 0 without one,
// -1 for "never". It accepts what the server does: a Go duration of at least a
// second, or a number of seconds.
func MessageTTL(header []byte) (int64, error) {
	return parseTTL(HeaderValue(header, ttlHeader))
}

func parseTTL(v []byte) (int64, error) {
	if len(v) == 0 {
		return 0, nil
	}
	if bytes.EqualFold(v, []byte("never")) {
		return -1, nil
	}
	if n, ok := parseSeconds(v); ok && string(v) != "0" {
		if n < 0 {
			return 0, fmt.Errorf("%s %q is too large", ttlHeader, clip(v))
		}
		return n, nil
	}
	d, err := time.ParseDuration(string(v))
	switch {
	case err != nil:
		return 0, fmt.Errorf("%s %q doesn't parse", ttlHeader, clip(v))
	case d < time.Second:
		return 0, fmt.Errorf("%s %q is below a second", ttlHeader, clip(v))
	}
	return int64(d.Seconds()), nil
}

// parseSeconds reads a decimal number. One that is too large wraps around: as
// on the server, which stores messages with such a TTL.
func parseSeconds(s []byte) (n int64, ok bool) {
	for _, c := range s {
		if c < '0' || c > '9' {
			return 0, false
		}
		n = n*10 + int64(c-'0')
	}
	return n, true
}

// Bounds that a sound archive keeps.
const (
	maxSubject = 65535
	// maxMessage is above any max_payload in use; the server refuses to start
	// with one above 64 MiB without raised limits.
	maxMessage = 128 << 20
	// maxJSON bounds state.json and each consumer, at about 50 bytes a pending
	// message, maxHead all of them together, since they're kept in memory.
	maxJSON = 256 << 20
	maxHead = 1 << 30
	// maxConsumerName is the server's own bound.
	maxConsumerName = 255
	// maxSeq keeps clear of holes that kill a server (seen at 2^62).
	maxSeq = 1<<62 - 1
)

// CheckSubject tells whether a message can have been published on a subject: at
// most 65,535 bytes, no empty token, no white space, no wildcard token.
func CheckSubject(s []byte) error {
	switch {
	case len(s) == 0:
		return errors.New("empty subject")
	case len(s) > maxSubject:
		return fmt.Errorf("subject of %d bytes (at most %d)", len(s), maxSubject)
	}
	start := 0
	for i := 0; i <= len(s); i++ {
		if i < len(s) {
			switch s[i] {
			case ' ', '\t', '\r', '\n', '\f':
				return fmt.Errorf("white space in subject %q", clip(s))
			case '.':
			default:
				continue
			}
		}
		switch tok := s[start:i]; {
		case len(tok) == 0:
			return fmt.Errorf("empty token in subject %q", clip(s))
		case len(tok) == 1 && (tok[0] == '*' || tok[0] == '>'):
			return fmt.Errorf("wildcard in subject %q", clip(s))
		}
		start = i + 1
	}
	return nil
}

// checkHeader tells whether a header block begins and ends as one does.
func checkHeader(h []byte) error {
	if !bytes.HasPrefix(h, []byte("NATS/1.0")) {
		return errors.New("header block doesn't begin with NATS/1.0")
	}
	if !bytes.HasSuffix(h, []byte("\r\n\r\n")) {
		return errors.New("header block doesn't end in an empty line")
	}
	return nil
}

// clip shortens untrusted text for messages.
func clip(s []byte) string {
	const most = 80
	if len(s) > most {
		return string(s[:most]) + "…"
	}
	return string(s)
}
