package restore

import (
	"context"
	"time"

	"github.com/jetkeep/jetkeep/format"
	"github.com/jetkeep/jetkeep/internal/subject"
)

// scan gathers what a plan needs to know of every message.
type scan struct {
	now    time.Time
	limits limits
	edit   func(*format.Message) error // nil: messages stay as they are
	covers *subject.Set                // nil: every subject is fine

	messages, expired uint64
	bytes             uint64 // in the target's store, of messages that haven't expired
	firstSeq          uint64 // of those
	aged              uint64 // older than max_age
	perSubject        map[string]uint64
	overSubject       uint64 // messages above the limit of their subject
	uncovered         map[string]uint64
	uncoveredAll      uint64
	largest           format.LargestMsg
	tooLarge          uint64
	scheduled         uint64
	recentIDs         uint64 // Nats-Msg-Id within the duplicate window
	expiries          map[int64]uint32
	sourced           map[string]*sourced // by the server's own index of sources
	live              map[string]*format.LiveConsumer
	rolledBack        []*rolledBack
	// lost messages go by the target's limits; kept ones stay.
	lost, kept uint64
}

// limits of the target that remove or refuse messages.
type limits struct {
	memory     bool
	maxAge     time.Duration
	maxMsgs    int64
	maxBytes   int64
	maxPer     int64
	maxSize    int64 // header and payload; 0 unlimited
	window     time.Duration
	discardNew bool
	schedules  bool
	// countPer says that messages have to be counted by subject: the target's
	// limit is lower than the source's.
	countPer bool
}

// expiryHorizon is how far ahead expiries are counted by the second: a restore
// is checked within that time.
const expiryHorizon = 36 * time.Hour

const maxUncovered = 1000

// rolledBack is a consumer that the archive has at its ack floor, as a cluster's
// does: what it had been delivered beyond comes again.
type rolledBack struct {
	name        string
	after, upTo uint64
	filter      *subject.Set // nil: everything
	again       uint64
}

// head finds the consumers that were rolled back.
func (s *scan) head(h *format.Head) error {
	for _, k := range h.Consumers {
		var st format.ConsumerState
		var cfg struct {
			Filter  string   `json:"filter_subject"`
			Filters []string `json:"filter_subjects"`
		}
		live := s.live[k.Name]
		if live == nil || k.State.Decode(&st) != nil || k.Config.Decode(&cfg) != nil || live.Delivered.Stream <= st.Delivered.Stream {
			continue
		}
		r := &rolledBack{name: k.Name, after: st.Delivered.Stream, upTo: live.Delivered.Stream}
		if cfg.Filter != "" {
			cfg.Filters = append(cfg.Filters, cfg.Filter)
		}
		if len(cfg.Filters) > 0 {
			r.filter = subject.NewSet(cfg.Filters)
		}
		s.rolledBack = append(s.rolledBack, r)
	}
	return nil
}

// again returns how many messages come to a consumer again.
func (s *scan) again(consumer string) uint64 {
	for _, r := range s.rolledBack {
		if r.name == consumer {
			return r.again
		}
	}
	return 0
}

// liveConsumers are the consumers as they were when the backup began.
func (p *Plan) liveConsumers() map[string]*format.LiveConsumer {
	live := map[string]*format.LiveConsumer{}
	if m := p.backup.Manifest; m != nil {
		for _, f := range m.Figures.Consumers {
			live[f.Name] = f.Live
		}
	}
	return live
}

func newScan(p *Plan) *scan {
	return &scan{
		live: p.liveConsumers(),
		now:  p.now(), limits: p.limits(), edit: p.edit(), covers: p.coverage(),
		perSubject: map[string]uint64{}, uncovered: map[string]uint64{}, expiries: map[int64]uint32{}, sourced: map[string]*sourced{},
	}
}

// storeSize is what a message takes up in the target's store (nats-server:
// 16 bytes of overhead in memory).
func (l *limits) storeSize(m *format.Message) uint64 {
	if l.memory {
		return uint64(len(m.Subject) + len(m.Header) + len(m.Payload) + 16)
	}
	return m.StoreSize()
}

// over reports whether a message's TTL is over.
func (s *scan) over(m *format.Message) bool {
	at, ok := m.ExpiresAt()
	return ok && s.now.After(at)
}

func (s *scan) old(m *format.Message) bool {
	return s.limits.maxAge > 0 && time.Unix(0, m.Time).Before(s.now.Add(-s.limits.maxAge))
}

func (s *scan) message(m *format.Message) error {
	if s.over(m) {
		s.expired++
		return nil
	}
	for _, r := range s.rolledBack {
		if r.after < m.Seq && m.Seq <= r.upTo && (r.filter == nil || r.filter.Match(m.Subject)) {
			r.again++
		}
	}
	if at, ok := m.ExpiresAt(); ok && at.Before(s.now.Add(expiryHorizon)) {
		s.expiries[at.Unix()]++
	}
	if s.edit != nil {
		if err := s.edit(m); err != nil {
			return err
		}
	}
	if s.messages == 0 {
		s.firstSeq = m.Seq
	}
	s.messages++
	s.bytes += s.limits.storeSize(m)
	if s.covers != nil && !s.covers.Match(m.Subject) {
		s.uncoveredAll++
		if n, ok := s.uncovered[string(m.Subject)]; ok || len(s.uncovered) < maxUncovered {
			s.uncovered[string(m.Subject)] = n + 1
		}
	}
	if size := m.Size(); uint64(size) > s.largest.Bytes {
		s.largest = format.LargestMsg{Seq: m.Seq, Subject: string(m.Subject), Bytes: uint64(size)}
	}
	if s.limits.maxSize > 0 && int64(m.Size()) > s.limits.maxSize {
		s.tooLarge++
	}
	if s.old(m) {
		s.aged++
	}
	if s.limits.countPer {
		n := s.perSubject[string(m.Subject)] + 1
		s.perSubject[string(m.Subject)] = n
		if n > uint64(s.limits.maxPer) {
			s.overSubject++
		}
	}
	s.headers(m)
	return nil
}

func (s *scan) headers(m *format.Message) {
	if len(m.Header) == 0 {
		return
	}
	s.noteSource(m)
	if s.limits.schedules && len(format.HeaderValue(m.Header, "Nats-Schedule")) > 0 {
		s.scheduled++
	}
	if w := s.limits.window; w > 0 && time.Unix(0, m.Time).After(s.now.Add(-w)) && len(format.HeaderValue(m.Header, "Nats-Msg-Id")) > 0 {
		s.recentIDs++
	}
}

// mayExpireBy counts the messages whose TTL ends before a moment, and that
// hadn't when the plan was made.
func (s *scan) mayExpireBy(t time.Time) (n uint64) {
	for at, count := range s.expiries {
		if at <= t.Unix() {
			n += uint64(count)
		}
	}
	return n
}

// mayExceedSubject reports whether messages have to be counted by subject after
// all: a stream doesn't exceed its own max_msgs_per_subject, but an archive that
// was made otherwise may. The tally's counts are never too low.
func (s *scan) mayExceedSubject(t format.SubjectTally) bool {
	return !s.limits.countPer && s.limits.maxPer > 0 && len(t.Top) > 0 && t.Top[0].Messages > uint64(s.limits.maxPer)
}

// overMsgs and overBytes tell whether the server would drop messages to keep a
// limit: only with discard old. With discard new it keeps them all and refuses
// what comes next.
func (s *scan) overMsgs(n uint64) bool {
	return !s.limits.discardNew && s.limits.maxMsgs > 0 && n > uint64(s.limits.maxMsgs)
}

func (s *scan) overBytes(n uint64) bool {
	return !s.limits.discardNew && s.limits.maxBytes > 0 && n > uint64(s.limits.maxBytes)
}

// simulate works out how many messages the target's limits will leave, by
// reading the archive again where the limits bite. The server enforces max_msgs
// and max_bytes first, from the oldest message on, then max_msgs_per_subject,
// then max_age.
func (s *scan) simulate(ctx context.Context, p *planner) error {
	s.kept = s.messages
	if s.aged == 0 && s.overSubject == 0 && !s.overMsgs(s.messages) && !s.overBytes(s.bytes) {
		return nil
	}
	s.kept = 0
	left, size := s.messages, s.bytes
	seen := map[string]uint64{}
	_, err := p.pass(ctx, format.InspectOptions{OnMessage: func(m *format.Message) error {
		if s.over(m) {
			return nil
		}
		if s.edit != nil {
			if err := s.edit(m); err != nil {
				return err
			}
		}
		crowded := false
		if s.overSubject > 0 {
			n := seen[string(m.Subject)] + 1
			seen[string(m.Subject)] = n
			crowded = s.perSubject[string(m.Subject)]-n >= uint64(s.limits.maxPer)
		}
		switch {
		case s.overMsgs(left) || s.overBytes(size):
			left--
			size -= s.limits.storeSize(m)
		case !crowded && !s.old(m):
			s.kept++
		}
		return nil
	}})
	s.lost = s.messages - s.kept
	return err
}
