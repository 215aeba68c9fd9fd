package restore

import (
	"context"
	"fmt"
	"math"
	"math/bits"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jetkeep/jetkeep/format"
	"github.com/jetkeep/jetkeep/internal/jsapi"
	"github.com/jetkeep/jetkeep/internal/subject"
)

// preflight makes every check and says what to expect.
func (p *planner) preflight(ctx context.Context) error {
	c, err := parseConfig(p.Config)
	if err != nil {
		return err
	}
	p.find("archive", OK, "sound: %d messages, sequences %d to %d", p.archive.Figures.Messages, p.archive.Figures.FirstSeq, p.archive.Figures.LastSeq)
	p.checkServer(c)
	p.checkPermissions()
	if err := p.checkTarget(ctx); err != nil {
		return err
	}
	p.checkSubjects(c)
	p.checkOverlap(c)
	if c, err = parseConfig(p.Config); err != nil { // a clone's subjects have changed
		return err
	}
	p.checkSizes(c)
	p.checkStorage(c)
	if err := p.checkPeers(ctx, c); err != nil {
		return err
	}
	p.checkAccount(c)
	p.checkLoss(c)
	p.checkConsumers(c)
	p.checkDuplicates(c)
	p.checkSchedules(c)
	p.checkOrigins(ctx, c)
	p.checkSpecial(c)
	p.expect()
	if p.Target.Existing == TargetActivating {
		// The run that began has passed all else, and nothing is sent any more.
		p.Findings = slices.DeleteFunc(p.Findings, func(f Finding) bool { return f.Level == Refusal && f.Check != "target" })
	}
	return nil
}

// expect says what the loaded stream should look like.
func (p *planner) expect() {
	s, st := p.scan, p.archive.Head.State
	e := &p.Expected
	e.Messages, e.Expired, e.Lost, e.Kept = s.messages, s.expired, s.lost, s.kept
	e.LastSeq = st.LastSeq
	e.FirstSeq = st.LastSeq + 1
	if s.messages > 0 {
		e.FirstSeq = s.firstSeq
	}
	e.Scheduled = s.scheduled
	p.Rewrite = p.Rewrite || s.expired > 0
	if p.skew != 0 {
		p.find("clock", Warning, "the server's clock is %v off this machine's: expiry is reckoned by the server's", p.skew.Round(time.Second))
	}
}

// versionAtLeast compares "2.15.3-RC.1" and the like.
func versionAtLeast(version string, want ...int) bool {
	core, _, _ := strings.Cut(version, "-")
	for i, part := range strings.Split(core, ".") {
		if i >= len(want) {
			return true
		}
		n, err := strconv.Atoi(part)
		if err != nil {
			return false
		}
		if n != want[i] {
			return n > want[i]
		}
	}
	return true
}

func (p *planner) checkServer(c config) {
	v := p.Target.Version
	if versionAtLeast(v, 2, 15) {
		p.find("version", OK, "server %s takes V2 archives", v)
	} else {
		p.find("version", Refusal, "server %s is too old for a V2 archive: 2.15 or later is needed", v)
	}
	var need int
	if raw := c.Metadata["_nats.req.level"]; raw != "" {
		need, _ = strconv.Atoi(raw)
	}
	if have := p.account.API.Level; need > have {
		p.find("api-level", Refusal, "the configuration needs API level %d, the server has %d", need, have)
	}
	if c.Replicas > 1 && p.Target.Cluster == "" {
		p.find("replicas", Refusal, "num_replicas %d on a single server: use --replicas 1", c.Replicas)
	}
	if c.Placement != nil && c.Placement.Cluster != "" && p.Target.Cluster != "" && c.Placement.Cluster != p.Target.Cluster {
		p.find("placement", Unknown, "placement in cluster %q, and this is %q: use --placement-cluster to change it", c.Placement.Cluster, p.Target.Cluster)
	} else if c.Placement != nil && p.Target.Cluster == "" {
		p.find("placement", Warning, "the configuration's placement means nothing on a single server")
	}
}

// checkTarget says what the name being taken means.
func (p *planner) checkTarget(ctx context.Context) error {
	name := p.Target.Stream
	m := marker{}
	if p.existing != nil {
		m = markerOf(p.existing.Config)
	}
	switch p.Target.Existing {
	case TargetNone:
		p.find("target", OK, "no stream %q yet", name)
	case TargetOccupied:
		p.find("target", Refusal, "target stream not empty: %d messages, last sequence %d, %d consumers in %q; restore --as another name, or delete it first",
			p.existing.State.Messages, p.existing.State.LastSeq, p.existing.State.ConsumerCount, name)
	case TargetMissing:
		p.find("target", Refusal, "the cluster has the name %q taken, and no server has the stream: it couldn't be recovered, or a restore of another tool failed; look into it, and remove it by `nats stream rm %s`", name, name)
	case TargetActivating, TargetAbandoned:
		return p.checkInterrupted(ctx, m)
	}
	return nil
}

// checkInterrupted says what becomes of what an earlier run has left.
func (p *planner) checkInterrupted(ctx context.Context, m marker) error {
	name := p.Target.Stream
	busy, err := p.busy(ctx, m)
	if p.existing != nil {
		m = markerOf(p.existing.Config)
	}
	switch {
	case err != nil:
		return err
	case busy != "":
		p.find("target", Refusal, "stream %q is being restored by another run (%s); if that isn't so, remove what it has left by `nats stream rm %s`", name, busy, name)
	case p.existing == nil:
		p.find("target", Warning, "a restore was interrupted before stream %q existed, and the cluster still has its name taken: it will be freed", name)
	case p.Target.Existing == TargetAbandoned:
		p.find("target", Warning, "restore %s of %s was interrupted and left stream %q staged: it will be removed", m.ID, m.Backup, name)
	case m.Backup != p.backupName():
		p.find("target", Refusal, "the activation of stream %q from backup %s was interrupted: finish it by restoring that backup", name, m.Backup)
	default:
		p.find("target", Warning, "restore %s of this backup was interrupted while it activated stream %q: it will be finished", m.ID, name)
	}
	return nil
}

// busy tells whether the restore that staged a stream is still running: its
// process lives on this machine, or the stream is growing. A restore that sends
// nothing for five seconds is dropped by the server.
func (p *planner) busy(ctx context.Context, m marker) (string, error) {
	switch pid, here, alive := m.process(); {
	case alive:
		return fmt.Sprintf("process %d on this machine", pid), nil
	case here:
		return "", nil
	}
	if m.State == stateActivating {
		return "", nil // two can finish it
	}
	if err := sleep(ctx, 6*time.Second); err != nil {
		return "", err
	}
	now, err := p.js.StreamInfo(ctx, p.Target.Stream)
	if jsapi.IsCode(err, jsapi.CodeStreamNotFound) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("looking for stream %q: %w", p.Target.Stream, err)
	}
	if p.existing == nil { // it was only assigned, and shows its marker now
		p.existing, p.Target.Existing = now, judge(now)
		if p.Target.Existing != TargetAbandoned {
			return "", fmt.Errorf("stream %q: %w", p.Target.Stream, ErrTakenOver)
		}
		return p.busy(ctx, markerOf(now.Config))
	}
	if now.State.LastSeq != p.existing.State.LastSeq || now.State.Messages != p.existing.State.Messages {
		return m.Owner + ", and it's growing", nil
	}
	return "", nil
}

// checkSubjects holds the messages' subjects against the configuration. A
// stream's own configuration need not cover its old messages: its subjects may
// have changed since.
func (p *planner) checkSubjects(config) {
	s := p.scan
	if s.covers == nil {
		p.find("subjects", OK, "a mirror or a stream with sources or a transform holds subjects of its own")
		return
	}
	if s.uncoveredAll == 0 {
		p.find("subjects", OK, "every message's subject matches the configuration")
		return
	}
	level, hint := Refusal, ""
	switch {
	case p.own && len(p.o.Subjects) == 0:
		level, hint = Warning, "; the configuration is the backup's own, so they are kept"
	case p.own && p.o.As != "":
		level, hint = Warning, "; a copy with other subjects keeps them"
	}
	p.find("subjects", level, "%d messages on subjects that the configuration doesn't cover: %s%s", s.uncoveredAll, listCounts(s.uncovered), hint)
}

// listCounts lists subjects, most messages first.
func listCounts(counts map[string]uint64) string {
	names := make([]string, 0, len(counts))
	for n := range counts {
		names = append(names, n)
	}
	slices.SortFunc(names, func(a, b string) int {
		if d := int64(counts[b]) - int64(counts[a]); d != 0 {
			return int(d)
		}
		return strings.Compare(a, b)
	})
	const most = 5
	var b strings.Builder
	for i, n := range names[:min(len(names), most)] {
		if i > 0 {
			b.WriteString(", ")
		}
		fmt.Fprintf(&b, "%s (%d)", n, counts[n])
	}
	if len(names) > most {
		fmt.Fprintf(&b, " and %d more", len(names)-most)
	}
	return b.String()
}

// checkOverlap looks for other streams with the same subjects. A clone under
// another name gives way: it stays on its private subject.
func (p *planner) checkOverlap(c config) {
	found := p.overlaps(c.Subjects)
	switch {
	case len(found) == 0:
		p.find("subject-overlap", OK, "no other stream of the account listens on the same subjects")
	case p.o.As == "" || len(p.o.Subjects) > 0:
		p.find("subject-overlap", Refusal, "subjects overlap: %s", strings.Join(found, ", "))
		return
	default:
		p.setClone()
		p.Config.Set("subjects", []string{p.private()})
		p.find("subject-overlap", Warning, "subjects overlap (%s): the clone %q takes no publishes but on %s; --subjects gives it subjects of its own", strings.Join(found, ", "), p.Target.Stream, p.private())
		if still := p.overlaps([]string{p.private()}); len(still) > 0 {
			p.find("subject-overlap", Refusal, "the private subject overlaps as well: %s", strings.Join(still, ", "))
		}
		return
	}
	beside := func(s *jsapi.StreamInfo) bool { return s.Name() == p.Source.Stream }
	if p.o.As == "" || !slices.ContainsFunc(p.others, beside) {
		return
	}
	p.setClone()
	if len(c.Subjects) == 0 && len(c.Sources) > 0 { // without either it would listen on its name
		p.Config.Set("subjects", []string{p.private()})
	}
}

// setClone makes a stream harmless that lives beside the one that it was backed
// up from, or one on the same subjects: what reaches out would come twice.
func (p *planner) setClone() {
	p.clone = true
	var lacks []string
	for _, field := range []string{"sources", "republish"} {
		if raw := p.Config.Raw(field); raw != nil && string(raw) != "null" {
			lacks = append(lacks, "it has no "+field)
		}
	}
	p.Config.Delete("sources", "republish")
	for _, k := range p.consumers(p.archive.Head) {
		if deliver := k.Config.Raw("deliver_subject"); deliver != nil && string(deliver) != `""` {
			lacks = append(lacks, "its push consumers stay paused")
			break
		}
	}
	if len(lacks) > 0 {
		p.find("clone", Warning, "stream %q is a clone: %s", p.Target.Stream, strings.Join(lacks, ", "))
	}
}

func (p *planner) overlaps(subjects []string) (found []string) {
	for _, other := range p.others {
		oc, err := parseConfig(other.Config)
		if err != nil {
			continue
		}
		for _, theirs := range oc.Subjects {
			for _, ours := range subjects {
				if subject.Overlap(ours, theirs) {
					found = append(found, fmt.Sprintf("%s with %s of stream %s", ours, theirs, other.Name()))
				}
			}
		}
	}
	return found
}

// checkSizes holds the largest message against what a message may be.
func (p *planner) checkSizes(c config) {
	l := p.scan.largest
	if most := p.js.Conn().MaxPayload(); int64(l.Bytes) > most {
		p.find("message-size", Refusal, "message sequence %d on %q has %d bytes, the server's max_payload is %d", l.Seq, l.Subject, l.Bytes, most)
	}
	if c.MaxSize > 0 && int64(l.Bytes) > c.MaxSize {
		p.find("message-size", Refusal, "message sequence %d on %q has %d bytes, max_msg_size is %d (%d messages are larger)", l.Seq, l.Subject, l.Bytes, c.MaxSize, p.scan.tooLarge)
	}
	if l.Seq != 0 && int64(l.Bytes) <= p.js.Conn().MaxPayload() && (c.MaxSize <= 0 || int64(l.Bytes) <= c.MaxSize) {
		p.find("message-size", OK, "the largest message has %d bytes, max_payload is %d", l.Bytes, p.js.Conn().MaxPayload())
	}
}

// tier returns the limits that the stream falls under.
func (p *planner) tier(c config) (t jsapi.Tier, tiered, ok bool) {
	if len(p.account.Tiers) == 0 {
		return p.account.Tier, false, true
	}
	t, ok = p.account.Tiers["R"+strconv.Itoa(c.Replicas)]
	return t, true, ok
}

// replicated multiplies by a number of replicas and stays at the most there is.
func replicated(n uint64, replicas int) uint64 {
	if hi, lo := bits.Mul64(n, uint64(max(replicas, 1))); hi == 0 {
		return lo
	}
	return math.MaxUint64
}

// checkStorage reckons as a restoring server does: the messages count as used,
// max_bytes as reserved; in a tier its limit holds for each replica.
func (p *planner) checkStorage(c config) {
	t, tiered, ok := p.tier(c)
	if !ok {
		p.find("storage", Refusal, "the account has no limits for %d replicas", c.Replicas)
		return
	}
	used, reserved, limit := t.Storage, t.ReservedStorage, t.Limits.MaxStorage
	if c.Storage == "memory" {
		used, reserved, limit = t.Memory, t.ReservedMemory, t.Limits.MaxMemory
	}
	need := replicated(p.need(c), c.Replicas)
	if limit < 0 {
		p.find("storage", OK, "%d bytes are needed for %d replicas; the account sets no limit", need, c.Replicas)
	} else {
		room := uint64(limit)
		if tiered {
			room = replicated(room, c.Replicas)
		}
		taken := max(used, reserved)
		if p.existing != nil && p.Target.Existing != TargetOccupied { // it gives way
			old, _ := parseConfig(p.existing.Config)
			taken -= min(taken, replicated(max(p.existing.State.Bytes, uint64(max(old.MaxBytes, 0))), old.Replicas))
		}
		level := OK
		if need > room || taken > room-need {
			level = Refusal
		}
		p.find("storage", level, "%d bytes are needed for %d replicas; the account may hold %d, of which %d are taken", need, c.Replicas, room, taken)
	}
}

// checkAccount holds the account's other limits against the stream.
func (p *planner) checkAccount(c config) {
	t, _, ok := p.tier(c)
	if !ok {
		return
	}
	l := t.Limits
	if p.Target.Existing == TargetNone && l.MaxStreams > 0 && t.Streams >= l.MaxStreams {
		p.find("streams", Refusal, "the account has %d streams and may have %d", t.Streams, l.MaxStreams)
	}
	n := len(p.consumers(p.archive.Head))
	if l.MaxConsumers > 0 && n > l.MaxConsumers {
		p.find("consumers", Refusal, "%d consumers, and the account may have %d", n, l.MaxConsumers)
	}
	if c.MaxConsumers > 0 && n > c.MaxConsumers {
		p.find("consumers", Refusal, "%d consumers, and max_consumers is %d", n, c.MaxConsumers)
	}
	if l.MaxBytesRequired && c.MaxBytes <= 0 {
		p.find("max-bytes", Refusal, "the account requires max_bytes, and the configuration has none: give one by --config")
	}
	most := l.StorageMaxStreamBytes
	if c.Storage == "memory" {
		most = l.MemoryMaxStreamBytes
	}
	if want := max(c.MaxBytes, int64(p.scan.bytes)); most > 0 && want > most {
		p.find("max-bytes", Refusal, "the stream needs %d bytes, and the account allows %d a stream", want, most)
	}
}

// checkLoss says which messages won't come back, or won't stay.
func (p *planner) checkLoss(c config) {
	s := p.scan
	if s.expired > 0 {
		src, _ := parseConfig(p.file.Config)
		level, why := OK, "their sequences are kept"
		if !src.AllowTTL {
			// A stream without allow_msg_ttl keeps such messages; a restoring
			// server drops them all the same.
			level, why = p.lossLevel(), "the stream doesn't have allow_msg_ttl, so it had kept them; a restoring server doesn't"
		}
		p.find("expired", level, "%d of %d messages have a TTL that is over: %s", s.expired, p.archive.Figures.Messages, why)
	}
	if s.lost == 0 {
		p.find("loss", OK, "the target's limits keep all %d messages", s.messages)
		return
	}
	var why []string
	if s.aged > 0 {
		why = append(why, fmt.Sprintf("%d are older than max_age %v", s.aged, c.MaxAge))
	}
	if s.overSubject > 0 {
		why = append(why, fmt.Sprintf("%d are above max_msgs_per_subject %d", s.overSubject, c.MaxPer))
	}
	if s.overMsgs(s.messages) {
		why = append(why, fmt.Sprintf("max_msgs is %d", c.MaxMsgs))
	}
	if s.overBytes(s.bytes) {
		why = append(why, fmt.Sprintf("max_bytes is %d of %d needed", c.MaxBytes, s.bytes))
	}
	hint := ""
	if !p.o.AcceptLoss {
		hint = "; --accept-loss consents"
	}
	p.find("loss", p.lossLevel(), "%d of %d messages would be removed once the limits are in force: %s%s", s.lost, s.messages, strings.Join(why, ", "), hint)
}

// lossLevel is how loss is judged.
func (p *planner) lossLevel() Level {
	if p.o.AcceptLoss {
		return Warning
	}
	return Refusal
}

// checkConsumers says what becomes of the consumers.
func (p *planner) checkConsumers(c config) {
	kept := p.consumers(p.archive.Head)
	if m := p.backup.Manifest; m != nil {
		if len(m.MissingConsumers) > 0 {
			p.find("consumers", Warning, "the server listed consumers that the archive lacks: %s", strings.Join(m.MissingConsumers, ", "))
		}
	}
	p.checkConsumerLimits(c, kept)
	now := p.now()
	for _, k := range kept {
		var cfg struct {
			Deliver string     `json:"deliver_subject"`
			Pause   *time.Time `json:"pause_until"`
		}
		var st format.ConsumerState
		if k.Config.Decode(&cfg) != nil || k.State.Decode(&st) != nil {
			continue // the inspection has read both
		}
		e := ExpectedConsumer{Name: k.Name, Pending: uint64(len(st.Pending))}
		e.Paused = cfg.Pause != nil && cfg.Pause.After(now) || p.clone && cfg.Deliver != ""
		if n := p.scan.again(k.Name); n > 0 {
			e.Pending = min(p.scan.live[k.Name].AckPending, n)
			e.Again = n - e.Pending
			p.find("redelivery", Warning, "consumer %q: a cluster's archive holds its ack floor only, so %d messages come again, of which %d were acknowledged", k.Name, n, e.Again)
		}
		p.Expected.Consumers = append(p.Expected.Consumers, e)
	}
	if gone := len(p.archive.Head.Consumers) - len(kept); gone > 0 && p.o.NoConsumers {
		p.find("consumers", Warning, "%d consumers are left out (--no-consumers)", gone)
	}
	if c.Retention == "interest" && p.scan.messages > 0 && len(kept) == 0 {
		p.find("interest", p.lossLevel(), "an interest stream with %d messages and no consumer to want them: the server may remove them; --accept-loss consents", p.scan.messages)
	}
}

// checkConsumerLimits holds the consumers against the stream's and the account's
// limits: the server tells only when it comes to them.
func (p *planner) checkConsumerLimits(c config, consumers []format.Consumer) {
	most := c.ConsumerLimit.MaxAckPending
	if t, _, ok := p.tier(c); ok && t.Limits.MaxAckPending > 0 && (most <= 0 || t.Limits.MaxAckPending < most) {
		most = t.Limits.MaxAckPending
	}
	for _, k := range consumers {
		var cfg struct {
			MaxAckPending int           `json:"max_ack_pending"`
			Threshold     time.Duration `json:"inactive_threshold"`
		}
		if k.Config.Decode(&cfg) != nil {
			continue // the server will say so
		}
		if most > 0 && cfg.MaxAckPending > most {
			p.find("consumers", Refusal, "consumer %q has max_ack_pending %d, and the stream or the account allows %d", k.Name, cfg.MaxAckPending, most)
		}
		if limit := c.ConsumerLimit.InactiveThreshold; limit > 0 && cfg.Threshold > limit {
			p.find("consumers", Refusal, "consumer %q has inactive_threshold %v, and consumer_limits allow %v", k.Name, cfg.Threshold, limit)
		}
	}
}

// checkDuplicates says whether a message id could be accepted a second time.
func (p *planner) checkDuplicates(c config) {
	if p.scan.recentIDs == 0 {
		return
	}
	if versionAtLeast(p.Target.Version, 2, 15, 3) {
		p.find("duplicates", OK, "%d messages within the duplicate window of %v keep rejecting their Nats-Msg-Id", p.scan.recentIDs, c.Window)
		return
	}
	p.find("duplicates", Warning, "server %s forgets message ids in a restore until it restarts: %d messages within the duplicate window of %v could be accepted again", p.Target.Version, p.scan.recentIDs, c.Window)
}

func (p *planner) checkSchedules(config) {
	if p.scan.scheduled > 0 {
		p.find("schedules", Warning, "%d messages are scheduled: those that are due fire while the stream is being restored", p.scan.scheduled)
	}
}

// checkOrigins looks for the streams that a mirror or aggregate reads from.
func (p *planner) checkOrigins(ctx context.Context, c config) {
	if c.Mirror != nil {
		p.find("staging", Warning, "a mirror can't be added to a stream later, so it is restored directly instead of being staged first")
		p.findOrigin(ctx, "mirror", c.Mirror, p.archive.Head.State.LastSeq)
	}
	for _, s := range c.Sources {
		p.checkSource(ctx, s)
	}
	p.checkReaders()
}

// findOrigin looks for an origin that should have messages up to a sequence.
func (p *planner) findOrigin(ctx context.Context, kind string, o *origin, lastSeq uint64) {
	if o.external() {
		p.find(kind, Unknown, "its %s %q is in another account or domain", kind, o.Name)
		return
	}
	info, err := p.js.StreamInfo(ctx, o.Name)
	switch {
	case jsapi.IsCode(err, jsapi.CodeStreamNotFound):
		p.find(kind, Warning, "its %s %q doesn't exist: nothing will arrive until it does", kind, o.Name)
	case err != nil:
		p.find(kind, Unknown, "its %s %q: %v", kind, o.Name, err)
	case lastSeq > info.State.LastSeq:
		p.find(kind, Warning, "its %s %q ends at sequence %d, and the backup at %d: the mirror stalls until the origin has caught up", kind, o.Name, info.State.LastSeq, lastSeq)
	default:
		p.find(kind, OK, "its %s %q exists", kind, o.Name)
	}
}

// checkSpecial knows of streams that more than NATS depends on.
func (p *planner) checkSpecial(config) {
	if strings.HasPrefix(p.Target.Stream, "$MQTT_") {
		p.find("mqtt", Warning, "an MQTT stream: its account's sessions are consistent only if all $MQTT_ streams are restored together, before clients connect")
	}
}
