package format

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strings"
	"time"
)

const magic = "NATSARC1"

// Head is what an archive holds before its messages.
type Head struct {
	State State
	// StateJSON is state.json as it came.
	StateJSON json.RawMessage
	// Time stamps the head's entries, in Unix nanoseconds.
	Time      int64
	Consumers []Consumer
}

// Consumer is a consumer entry. Its configuration and state are kept as they
// came.
type Consumer struct {
	Name   string
	Config Object
	State  Object
}

// ConsumerState is the part of a consumer's state that jetkeep looks at.
type ConsumerState struct {
	Delivered SequencePair `json:"delivered"`
	AckFloor  SequencePair `json:"ack_floor"`
	// Pending are the delivered and unacknowledged stream sequences.
	Pending map[uint64]json.RawMessage `json:"pending"`
}

// entry is an entry's fields; the slices point into the walked data.
type entry struct {
	name            []byte
	time            int64
	seq             uint64
	header, payload []byte
}

var errShort = errors.New("entry isn't complete")

// parseEntry reads the entry at the beginning of p and returns its length. When
// p ends too early it returns errShort, and the length as far as it's known: at
// least one byte more than p has.
func parseEntry(p []byte, e *entry, mostName, mostBody uint64) (int, error) {
	var nums [5]uint64
	at := 0
	for i := range nums {
		v, n := binary.Uvarint(p[at:])
		if n < 0 {
			return 0, errors.New("number in an entry overflows")
		}
		if n == 0 {
			return len(p) + 1, errShort
		}
		nums[i] = v
		at += n
	}
	nameLen, hdr, payload := nums[0], nums[3], nums[4]
	if nameLen > mostName {
		return 0, fmt.Errorf("entry name of %d bytes", nameLen)
	}
	if hdr > mostBody || payload > mostBody-hdr {
		return 0, fmt.Errorf("entry of %d header and %d payload bytes", hdr, payload)
	}
	total := at + int(nameLen) + int(hdr) + int(payload)
	if total > len(p) {
		return total, errShort
	}
	e.name = p[at : at+int(nameLen)]
	at += int(nameLen)
	e.header = p[at : at+int(hdr)]
	at += int(hdr)
	e.payload = p[at:total:total]
	e.time = int64(nums[1]>>1) ^ -int64(nums[1]&1) // zigzag, as encoding/binary
	e.seq = nums[2]
	return total, nil
}

// walker checks entries as decompressed data arrives in pieces.
type walker struct {
	onHead    func(*Head) error
	onMessage func(*Message) error

	chunk     int64 // where the S2 chunk with the data begins, for errors
	offset    int64 // decompressed, of the next entry
	carry     []byte
	seenMagic bool
	head      *Head
	headDone  bool
	names     map[string]bool // of the consumers
	ended     bool
	lastSeq   uint64
	lastName  string // last good entry before the messages
	ttlText   []byte // the last Nats-TTL, and what it means
	ttl       int64
	figures   figureCounter
	msg       Message
}

// walk takes the next piece. It returns how many bytes of it belong to the head.
func (w *walker) walk(data []byte) (headBytes int, err error) {
	size := len(data)
	for len(data) > 0 {
		if w.ended {
			return 0, w.corrupt(0, "data behind the end marker")
		}
		inHead := !w.headDone
		n, err := w.step(data)
		if err != nil {
			return 0, err
		}
		data = data[n:]
		if inHead {
			headBytes = size - len(data)
		}
	}
	return headBytes, nil
}

// step takes one entry, or as much of one as there is, from the beginning of
// data and returns how many bytes it took.
func (w *walker) step(data []byte) (int, error) {
	if !w.seenMagic {
		return w.stepMagic(data)
	}
	mostName, mostBody := uint64(maxSubject), uint64(maxMessage)
	if !w.headDone {
		mostBody = uint64(max(0, min(maxJSON, maxHead-w.offset)))
	}
	var e entry
	if len(w.carry) == 0 {
		n, err := parseEntry(data, &e, mostName, mostBody)
		switch {
		case err == errShort:
			w.carry = append(w.carry, data...)
			return len(data), nil
		case err != nil:
			return 0, w.corrupt(0, err.Error())
		}
		if err := w.entry(&e); err != nil {
			return 0, err
		}
		w.offset += int64(n)
		return n, nil
	}
	// An entry goes on from the piece before: take what it still lacks.
	taken := 0
	for {
		n, err := parseEntry(w.carry, &e, mostName, mostBody)
		if err == nil {
			if err := w.entry(&e); err != nil {
				return 0, err
			}
			w.offset += int64(n)
			w.carry = w.carry[:0]
			return taken, nil
		}
		if err != errShort {
			return 0, w.corrupt(0, err.Error())
		}
		lack := min(n-len(w.carry), len(data)-taken)
		if lack == 0 {
			return taken, nil
		}
		w.carry = append(w.carry, data[taken:taken+lack]...)
		taken += lack
	}
}

func (w *walker) stepMagic(data []byte) (int, error) {
	n := min(len(magic)-len(w.carry), len(data))
	w.carry = append(w.carry, data[:n]...)
	if len(w.carry) < len(magic) {
		return n, nil
	}
	if got := string(w.carry); got != magic {
		return 0, w.foreign(got)
	}
	w.carry = w.carry[:0]
	w.seenMagic = true
	w.offset = int64(len(magic))
	return n, nil
}

// foreign tells a V1 archive, a tar of a stream's files, from anything
// else. Its first entry is meta.inf, or a PAX header.
func (w *walker) foreign(got string) error {
	if strings.HasPrefix(got, "meta.inf") || strings.HasPrefix(got, "meta.sum") || strings.HasPrefix(got, "PaxHead") {
		return w.damage(ErrV1, 0, "a tar of store files, as servers before 2.15 write it")
	}
	return w.damage(ErrNotArchive, 0, fmt.Sprintf("begins with %q instead of %q", got, magic))
}

// entry takes a whole entry.
func (w *walker) entry(e *entry) error {
	if w.headDone {
		return w.message(e)
	}
	if w.head == nil {
		return w.state(e)
	}
	return w.consumer(e)
}

func (w *walker) state(e *entry) error {
	if string(e.name) != "state.json" || e.seq != 0 {
		return w.corrupt(0, fmt.Sprintf("first entry is %q, not state.json", clip(e.name)))
	}
	body := string(e.header) + string(e.payload)
	h := &Head{StateJSON: json.RawMessage(body), Time: e.time}
	if _, err := ParseObject(h.StateJSON); err != nil {
		return w.corrupt(0, "state.json: "+err.Error())
	}
	if err := json.Unmarshal(h.StateJSON, &h.State); err != nil {
		return w.corrupt(0, "state.json: "+err.Error())
	}
	if err := h.State.check(); err != nil {
		return w.corrupt(0, "state.json: "+err.Error())
	}
	w.head = h
	w.lastName = "state.json"
	return w.maybeEndHead()
}

// check tells whether a stream's figures can be true together; nats-server asks
// for the same before it restores.
func (s *State) check() error {
	switch {
	case s.ConsumerCount < 0:
		return errors.New("negative consumer_count")
	case s.Bytes > math.MaxInt64:
		return fmt.Errorf("%d bytes", s.Bytes)
	case s.LastSeq > maxSeq || s.FirstSeq > maxSeq+1:
		return fmt.Errorf("sequences up to %d", max(s.LastSeq, s.FirstSeq))
	case s.FirstSeq == 0:
		if s.LastSeq != 0 || s.Messages != 0 {
			return errors.New("first_seq 0 with messages or a last_seq")
		}
	case s.FirstSeq > s.LastSeq:
		if s.FirstSeq-1 != s.LastSeq || s.Messages != 0 {
			return fmt.Errorf("first_seq %d, last_seq %d and %d messages disagree", s.FirstSeq, s.LastSeq, s.Messages)
		}
	case s.Messages > s.LastSeq-s.FirstSeq+1:
		return fmt.Errorf("%d messages between sequences %d and %d", s.Messages, s.FirstSeq, s.LastSeq)
	}
	return nil
}

func (w *walker) consumer(e *entry) error {
	name, found := strings.CutPrefix(string(e.name), "consumers/")
	if !found || e.seq != 0 {
		return w.corrupt(0, fmt.Sprintf("consumer %d of %d is missing: found entry %q", len(w.head.Consumers)+1, w.head.State.ConsumerCount, clip(e.name)))
	}
	if name == "" || len(name) > maxConsumerName || strings.ContainsAny(name, " .*>/\\\t\r\n\f\x00") {
		return w.corrupt(0, fmt.Sprintf("consumer name %q", clip([]byte(name))))
	}
	var c struct{ Config, State *Object }
	if err := json.Unmarshal([]byte(string(e.header)+string(e.payload)), &c); err != nil {
		return w.corrupt(0, fmt.Sprintf("consumer %q: %v", name, err))
	}
	if c.Config == nil || c.State == nil {
		return w.corrupt(0, fmt.Sprintf("consumer %q lacks its config or state", name))
	}
	if w.names[name] {
		return w.corrupt(0, fmt.Sprintf("consumer %q is there twice", name))
	}
	if w.names == nil {
		w.names = map[string]bool{}
	}
	w.names[name] = true
	consumer := Consumer{Name: name, Config: *c.Config, State: *c.State}
	if err := w.figures.consumer(&consumer); err != nil {
		return w.corrupt(0, fmt.Sprintf("consumer %q: %v", name, err))
	}
	w.head.Consumers = append(w.head.Consumers, consumer)
	w.lastName = string(e.name)
	return w.maybeEndHead()
}

func (w *walker) maybeEndHead() error {
	if len(w.head.Consumers) < w.head.State.ConsumerCount {
		return nil
	}
	w.headDone = true
	w.figures.begin(&w.head.State)
	if w.onHead != nil {
		return w.onHead(w.head)
	}
	return nil
}

func (w *walker) message(e *entry) error {
	if len(e.name) == 0 && e.seq == 0 && e.time == 0 && len(e.header) == 0 && len(e.payload) == 0 {
		w.ended = true
		return nil
	}
	s := &w.head.State
	switch {
	case e.seq == 0 && bytes.HasPrefix(e.name, []byte("consumers/")):
		return w.corrupt(0, fmt.Sprintf("entry %q behind the %d consumers that consumer_count announces", clip(e.name), s.ConsumerCount))
	case e.seq == 0:
		return w.corrupt(0, fmt.Sprintf("entry %q without a sequence", clip(e.name)))
	case e.seq <= w.lastSeq:
		return w.corrupt(e.seq, fmt.Sprintf("sequence %d after %d", e.seq, w.lastSeq))
	case e.seq < s.FirstSeq:
		return w.corrupt(e.seq, fmt.Sprintf("sequence below first_seq %d", s.FirstSeq))
	case e.seq > s.LastSeq:
		return w.corrupt(e.seq, fmt.Sprintf("sequence above last_seq %d", s.LastSeq))
	}
	m := &w.msg
	*m = Message{Seq: e.seq, Time: e.time, Subject: e.name, Header: e.header, Payload: e.payload}
	known := w.figures.tally.add(m.Subject)
	if !known {
		if err := CheckSubject(m.Subject); err != nil {
			return w.corrupt(e.seq, err.Error())
		}
	}
	if len(m.Header) > 0 {
		if err := checkHeader(m.Header); err != nil {
			return w.corrupt(e.seq, err.Error())
		}
		if err := w.readTTL(m); err != nil {
			return w.corrupt(e.seq, err.Error())
		}
	}
	w.figures.message(m, w.lastSeq)
	w.lastSeq = e.seq
	if w.onMessage != nil {
		return w.onMessage(m)
	}
	return nil
}

// readTTL sets the TTL of a message with headers. It remembers the last one,
// since a stream's are mostly alike.
func (w *walker) readTTL(m *Message) error {
	v := HeaderValue(m.Header, ttlHeader)
	if len(v) == 0 {
		return nil
	}
	if !bytes.Equal(v, w.ttlText) {
		ttl, err := parseTTL(v)
		if err != nil {
			return err
		}
		w.ttlText, w.ttl = append(w.ttlText[:0], v...), ttl
	}
	m.TTL = w.ttl
	return nil
}

// finish tells whether the archive is complete.
func (w *walker) finish() error {
	if w.ended {
		return nil
	}
	reason := "no end marker"
	if len(w.carry) > 0 {
		reason = "ends inside an entry"
	}
	return w.damage(ErrTruncated, 0, reason)
}

func (w *walker) corrupt(seq uint64, reason string) error {
	return w.damage(ErrCorrupt, seq, reason)
}

func (w *walker) damage(kind error, seq uint64, reason string) error {
	return &DamageError{Err: kind, Reason: reason, Offset: w.chunk, RawOffset: w.offset, Seq: seq, LastGood: w.lastGood()}
}

func (w *walker) lastGood() string {
	if w.lastSeq == 0 {
		return w.lastName
	}
	return fmt.Sprintf("message sequence %d of %s", w.lastSeq, time.Unix(0, w.figures.lastTime).UTC().Format(time.RFC3339))
}
