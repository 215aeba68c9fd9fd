package format

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// figureCounter gathers an archive's [Figures] entry by entry.
type figureCounter struct {
	f         Figures
	tally     subjectTally
	state     *State
	firstTime int64
	lastTime  int64
	largest   struct {
		seq     uint64
		size    int
		subject []byte
	}
	minExpiry, maxExpiry time.Time
}

func (c *figureCounter) begin(s *State) {
	c.state = s
	c.f.FirstSeq, c.f.LastSeq = s.FirstSeq, s.LastSeq
}

func (c *figureCounter) consumer(k *Consumer) error {
	var cfg struct {
		Name    string     `json:"name"`
		Durable string     `json:"durable_name"`
		Deliver string     `json:"deliver_subject"`
		Pause   *time.Time `json:"pause_until"`
	}
	if err := k.Config.Decode(&cfg); err != nil {
		return fmt.Errorf("config: %w", err)
	}
	if cfg.Durable != "" && cfg.Durable != k.Name || cfg.Name != "" && cfg.Name != k.Name {
		return fmt.Errorf("its config names it %q", cmp.Or(cfg.Durable, cfg.Name))
	}
	var st struct {
		Delivered SequencePair        `json:"delivered"`
		AckFloor  SequencePair        `json:"ack_floor"`
		Pending   map[uint64]struct{} `json:"pending"` // there may be millions
	}
	if err := k.State.Decode(&st); err != nil {
		return fmt.Errorf("state: %w", err)
	}
	c.f.Consumers = append(c.f.Consumers, ConsumerFigures{
		Name: k.Name, Durable: cfg.Durable != "", Push: cfg.Deliver != "",
		Paused:    cfg.Pause != nil && cfg.Pause.After(time.Now()),
		Delivered: st.Delivered, AckFloor: st.AckFloor, Pending: uint64(len(st.Pending)),
	})
	return nil
}

// message counts m, which follows the message at prev.
func (c *figureCounter) message(m *Message, prev uint64) {
	f := &c.f
	if f.Messages == 0 {
		c.firstTime = m.Time
		prev = c.state.FirstSeq - 1
	}
	f.Messages++
	if m.Seq != prev+1 {
		f.Gaps++
	}
	f.Bytes += uint64(m.Size())
	f.StoreBytes += m.StoreSize()
	c.lastTime = m.Time
	if size := m.Size(); size > c.largest.size || c.largest.seq == 0 {
		c.largest.seq, c.largest.size = m.Seq, size
		c.largest.subject = append(c.largest.subject[:0], m.Subject...)
	}
	switch {
	case m.TTL < 0:
		f.TTL.Never++
	case m.TTL > 0:
		f.TTL.Messages++
		at, _ := m.ExpiresAt()
		if c.minExpiry.IsZero() || at.Before(c.minExpiry) {
			c.minExpiry = at
		}
		if at.After(c.maxExpiry) {
			c.maxExpiry = at
		}
	}
}

// finish returns the figures. last is the last message's sequence.
func (c *figureCounter) finish(last uint64) Figures {
	f := c.f
	if f.Messages > 0 {
		f.FirstTime = time.Unix(0, c.firstTime).UTC()
		f.LastTime = time.Unix(0, c.lastTime).UTC()
		f.Largest = &LargestMsg{Seq: c.largest.seq, Subject: string(c.largest.subject), Bytes: uint64(c.largest.size)}
	}
	if f.LastSeq >= f.FirstSeq && f.FirstSeq > 0 {
		f.Deleted = f.LastSeq - f.FirstSeq + 1 - f.Messages
		if f.Deleted > 0 && last != f.LastSeq {
			f.Gaps++ // the trailing one, or the only one when no message is left
		}
	}
	if !c.minExpiry.IsZero() {
		f.TTL.FirstExpiry, f.TTL.LastExpiry = c.minExpiry.UTC(), c.maxExpiry.UTC()
	}
	f.Subject = c.tally.finish(c.state)
	return f
}

// Bounds of the subject tally: beyond them memory would grow with the stream.
const (
	maxSubjects     = 100_000
	maxSubjectBytes = 8 << 20
	topSubjects     = 1000
)

// subjectTally counts messages by subject, exactly until there are too many
// subjects. From then on it keeps the frequent ones by lossy counting: whenever
// the table is full, every count is lowered and the subjects at zero go.
type subjectTally struct {
	index   map[string]int32
	names   []string
	counts  []uint64
	bytes   int
	partial bool
	lowered uint64 // what has been subtracted from every count
}

// add counts a subject and reports whether it had been counted before.
func (t *subjectTally) add(subject []byte) (known bool) {
	if i, ok := t.index[string(subject)]; ok {
		t.counts[i]++
		return true
	}
	if len(t.names) >= maxSubjects || t.bytes+len(subject) > maxSubjectBytes {
		t.partial = true
		t.lower()
	}
	if t.index == nil {
		t.index = map[string]int32{}
	}
	name := string(subject)
	t.index[name] = int32(len(t.names))
	t.names = append(t.names, name)
	t.counts = append(t.counts, 1)
	t.bytes += len(name)
	return false
}

// lower makes room: it subtracts the median, so that at least half the subjects
// go.
func (t *subjectTally) lower() {
	sorted := slices.Clone(t.counts)
	slices.Sort(sorted)
	by := sorted[len(sorted)/2]
	kept := 0
	clear(t.index)
	t.bytes = 0
	for i, n := range t.counts {
		if n <= by {
			continue
		}
		t.names[kept], t.counts[kept] = t.names[i], n-by
		t.index[t.names[kept]] = int32(kept)
		t.bytes += len(t.names[kept])
		kept++
	}
	clear(t.names[kept:])
	t.names, t.counts = t.names[:kept], t.counts[:kept]
	t.lowered += by
}

func (t *subjectTally) finish(s *State) SubjectTally {
	out := SubjectTally{Count: uint64(len(t.names)), Exact: !t.partial}
	if t.partial {
		out.Count = uint64(max(s.NumSubjects, 0))
	}
	top := make([]SubjectCount, len(t.names))
	for i := range t.names {
		top[i] = SubjectCount{Subject: t.names[i], Messages: t.counts[i] + t.lowered}
	}
	slices.SortFunc(top, func(a, b SubjectCount) int {
		return cmp.Or(cmp.Compare(b.Messages, a.Messages), cmp.Compare(a.Subject, b.Subject))
	})
	out.Top = slices.Clone(top[:min(len(top), topSubjects)])
	return out
}
