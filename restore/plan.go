package restore

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/jetkeep/jetkeep/backup/repo"
	"github.com/jetkeep/jetkeep/format"
	"github.com/jetkeep/jetkeep/internal/jsapi"
)

// Options of a restore. The zero value restores a stream as it was.
type Options struct {
	// Domain or APIPrefix say where the JetStream API is; RequestTimeout limits
	// one request to it (default 5 s).
	Domain         string
	APIPrefix      string
	RequestTimeout time.Duration
	// Server, Account and Context label the target in the plan.
	Server, Account, Context string

	// System is a connection of the system account, which shows what a plain
	// account can't see: the servers' versions, tags and room. It may be nil.
	System *nats.Conn

	// As restores under another name. A KV bucket's or object store's subjects
	// move with it.
	As string
	// Subjects replaces the configuration's subjects.
	Subjects []string
	// Config replaces the backup's configuration.
	Config *format.Object
	// Replicas, Placement… and Storage ("file", "memory") replace what the
	// configuration says; zero values leave it. PlacementTags of one empty
	// string removes the placement.
	Replicas         int
	PlacementCluster string
	PlacementTags    []string
	Storage          string
	// NoConsumers leaves the consumers out.
	NoConsumers bool
	// AcceptLoss consents to messages that the target's limits will remove.
	AcceptLoss bool
	// KeepFailed keeps a staged stream when the restore fails.
	KeepFailed bool
	// FullCheck compares the loaded stream with the backup entry by entry,
	// instead of its figures.
	FullCheck bool

	// ChunkSize and WindowSize in bytes: what one message carries, and how much
	// is in flight. Zero: 256 KiB, 8 MiB.
	ChunkSize, WindowSize int
	// IdleTimeout is how long either side may be silent. Zero: 30 s.
	IdleTimeout time.Duration
	// FinishTimeout limits what the server does after the last chunk, and how
	// long its replicas take to catch up. Zero: 15 min.
	FinishTimeout time.Duration

	// Progress is called now and then from another goroutine; it may be nil.
	Progress func(Progress)
}

// Phase of a restore.
type Phase string

// The phases, in order.
const (
	PhasePlan     Phase = "plan"     // reading the backup
	PhaseSend     Phase = "send"     // to the server
	PhaseFinish   Phase = "finish"   // the server completes the stream
	PhaseCheck    Phase = "check"    // against the plan
	PhaseActivate Phase = "activate" // the real configuration
	PhaseRollBack Phase = "roll back"
)

// Progress says how far a restore is. Bytes and Total are of the decompressed
// archive and 0 where that says nothing.
type Progress struct {
	Phase        Phase
	Bytes, Total int64
	Messages     uint64
	// Waiting says what is being waited for: a replica, a leader.
	Waiting string
}

func (o *Options) defaults() {
	if o.ChunkSize == 0 {
		o.ChunkSize = 256 << 10
	}
	if o.WindowSize == 0 {
		o.WindowSize = 8 << 20
	}
	if o.IdleTimeout == 0 {
		o.IdleTimeout = 30 * time.Second
	}
	if o.FinishTimeout == 0 {
		o.FinishTimeout = 15 * time.Minute
	}
}

// Level of a finding.
type Level string

// The levels. Unknown says that nothing could be found out.
const (
	OK      Level = "ok"
	Warning Level = "warning"
	Refusal Level = "refusal"
	Unknown Level = "unknown"
)

// Finding is what one preflight check found.
type Finding struct {
	// Check names the check: "target", "subject-overlap", ….
	Check string `json:"check"`
	Level Level  `json:"level"`
	Text  string `json:"text"`
}

// Plan is what a restore would do, and what should come of it.
type Plan struct {
	// RestoreID marks the staged stream.
	RestoreID string `json:"restore_id"`
	Source    Source `json:"source"`
	Target    Target `json:"target"`
	// Config is the configuration that will be in force in the end.
	Config   format.Object `json:"config"`
	Findings []Finding     `json:"findings"`
	Expected Expected      `json:"expected"`
	// Rewrite says that the archive is encoded anew, since messages change or
	// go; otherwise its blocks are passed on as they are.
	Rewrite bool `json:"rewrite"`

	backup   *repo.Backup
	file     *format.BackupFile
	archive  *format.Inspection
	scan     *scan
	rename   *bucketRename // nil but for a bucket under another name
	existing *jsapi.StreamInfo
	// clone says that the stream that was backed up still exists, beside the
	// one to be restored.
	clone bool
	// nameless are the messages, in ascending order, whose source header loses
	// its origin's identity.
	nameless []uint64
	skew     time.Duration
	o        Options
}

// Source is the backup of a plan.
type Source struct {
	Stream   string    `json:"stream"`
	ID       string    `json:"id,omitempty"`
	Location string    `json:"location"`
	Format   string    `json:"format"`
	Taken    time.Time `json:"taken,omitzero"`
	Bytes    int64     `json:"bytes"`
	RawBytes int64     `json:"raw_bytes"`
	Messages uint64    `json:"messages"`
}

// Target is where a plan restores to.
type Target struct {
	Stream  string `json:"stream"`
	Server  string `json:"server,omitempty"`
	Version string `json:"version"`
	Cluster string `json:"cluster,omitempty"`
	Account string `json:"account,omitempty"`
	Context string `json:"context,omitempty"`
	Domain  string `json:"domain,omitempty"`
	// Existing is what stands under the name now: "none", "empty" (it will be
	// replaced), "abandoned" (what an interrupted restore left, it will be
	// removed), "activating" (an interrupted activation, it will be finished),
	// "occupied", or "missing" (the cluster has the name taken, and no server has
	// the stream).
	Existing string `json:"existing"`
}

// What can stand under a target's name.
const (
	TargetNone       = "none"
	TargetEmpty      = "empty"
	TargetAbandoned  = "abandoned"
	TargetActivating = "activating"
	TargetOccupied   = "occupied"
	TargetMissing    = "missing"
)

// Expected is what a restore should lead to.
type Expected struct {
	// Messages, FirstSeq and LastSeq of the loaded stream.
	Messages uint64 `json:"messages"`
	FirstSeq uint64 `json:"first_seq"`
	LastSeq  uint64 `json:"last_seq"`
	// Expired messages are left out since their TTL is over.
	Expired uint64 `json:"expired"`
	// Lost messages will be removed by the target's own limits once they're in
	// force; Kept remain.
	Lost uint64 `json:"lost"`
	Kept uint64 `json:"kept"`
	// Scheduled messages wait for their moment; Overdue ones fire while the
	// stream is staged.
	Scheduled uint64             `json:"scheduled,omitempty"`
	Consumers []ExpectedConsumer `json:"consumers,omitempty"`
}

// ExpectedConsumer is a consumer of the restored stream.
type ExpectedConsumer struct {
	Name string `json:"name"`
	// Pending messages were delivered and not acknowledged: they come again.
	Pending uint64 `json:"pending"`
	// Again is how many acknowledged messages come again as well, since a
	// cluster's archive holds the ack floor only.
	Again uint64 `json:"again,omitempty"`
	// Paused says that it stays paused.
	Paused bool `json:"paused,omitempty"`
}

// Refusals returns the findings that forbid the restore.
func (p *Plan) Refusals() []Finding {
	return slices.DeleteFunc(slices.Clone(p.Findings), func(f Finding) bool { return f.Level != Refusal })
}

// now is the server's time.
func (p *Plan) now() time.Time { return time.Now().Add(p.skew) }

// Prepare makes the plan for restoring a backup. It reads the whole archive and
// changes nothing. A damaged backup is an error; everything else that forbids
// the restore is a finding.
func Prepare(ctx context.Context, nc *nats.Conn, b *repo.Backup, o Options) (*Plan, error) {
	o.defaults()
	js, err := o.client(nc)
	if err != nil {
		return nil, err
	}
	defer js.Close()
	p := &planner{js: js, Plan: &Plan{RestoreID: newID(), backup: b, o: o}, meter: newMeter(o.Progress)}
	defer p.meter.stop()
	if err := p.readSource(ctx); err != nil {
		return nil, err
	}
	if err := p.lookAtTarget(ctx); err != nil {
		return nil, err
	}
	if err := p.configure(); err != nil {
		return nil, err
	}
	if p.Source.Format != "v2" {
		p.find("format", Refusal, "a V1 archive (of a server before 2.15) can't be restored by this version of jetkeep; `nats stream restore` can")
		return p.Plan, nil
	}
	if err := p.readArchive(ctx); err != nil {
		return nil, err
	}
	if err := p.preflight(ctx); err != nil {
		return nil, err
	}
	return p.Plan, nil
}

func (o *Options) client(nc *nats.Conn) (*jsapi.Client, error) {
	return jsapi.New(nc, jsapi.Options{Domain: o.Domain, Prefix: o.APIPrefix, Timeout: o.RequestTimeout})
}

// newID makes a restore id: it names the private subject, too.
func newID() string {
	id := repo.NewID(time.Now().UTC())
	return strings.NewReplacer(".", "", ":", "").Replace(id)
}

// planner makes a plan.
type planner struct {
	*Plan
	js      *jsapi.Client
	meter   *meter
	account *jsapi.AccountInfo
	others  []*jsapi.StreamInfo // the account's other streams
	own     bool                // the configuration is the backup's own
	user    *jsapi.UserInfo     // nil with userErr
	userErr error
}

func (p *planner) find(check string, level Level, text string, args ...any) {
	p.Findings = append(p.Findings, Finding{Check: check, Level: level, Text: fmt.Sprintf(text, args...)})
}

func (p *planner) readSource(ctx context.Context) error {
	file, err := p.backup.BackupFile(ctx)
	if err != nil {
		return err
	}
	size, err := p.backup.ArchiveSize(ctx)
	if err != nil {
		return err
	}
	p.file = file
	p.Source = Source{
		Stream: file.StreamName(), Location: p.backup.Location(), Format: p.backup.Format(), Bytes: size,
	}
	if m := p.backup.Manifest; m != nil {
		p.Source.ID, p.Source.Taken = m.ID, m.Started
	}
	p.Target.Stream = p.Source.Stream
	if p.o.As != "" {
		p.Target.Stream = p.o.As
	}
	return nil
}

// lookAtTarget finds out what stands under the target's name, and what the
// server and the account are like.
func (p *planner) lookAtTarget(ctx context.Context) error {
	nc := p.js.Conn()
	t := &p.Target
	t.Version, t.Cluster = nc.ConnectedServerVersion(), nc.ConnectedClusterName()
	t.Server, t.Account, t.Context = p.o.Server, p.o.Account, p.o.Context
	var list *jsapi.StreamList
	asked := time.Now()
	err := together(func() error {
		info, err := p.js.StreamInfo(ctx, t.Stream)
		switch {
		case err == nil:
			p.skew = clockSkew(asked, time.Now(), info.TimeStamp)
			p.existing = info
			t.Existing = judge(info)
		case jsapi.IsCode(err, jsapi.CodeStreamNotFound):
			t.Existing = TargetNone
		default:
			return fmt.Errorf("looking for stream %q: %w", t.Stream, err)
		}
		return nil
	}, func() (err error) {
		if p.account, err = p.js.AccountInfo(ctx); err != nil {
			return fmt.Errorf("account information: %w", err)
		}
		return nil
	}, func() (err error) {
		if list, err = p.js.Streams(ctx); err != nil {
			return fmt.Errorf("listing streams: %w", err)
		}
		return nil
	}, func() error {
		p.user, p.userErr = p.js.UserInfo(ctx)
		return nil
	})
	if err != nil {
		return err
	}
	if p.user != nil && t.Account == "" {
		t.Account = p.user.Account
	}
	answered := time.Now()
	t.Domain = p.account.Domain
	if t.Existing == TargetNone && slices.Contains(list.Missing, t.Stream) {
		if err := p.lookAtGhost(ctx); err != nil {
			return err
		}
	}
	for _, s := range list.Streams {
		if s.Name() != t.Stream {
			p.others = append(p.others, s)
		}
		if p.skew == 0 {
			p.skew = clockSkew(asked, answered, s.TimeStamp)
		}
	}
	return nil
}

// lookAtGhost finds out whose stream it is that a cluster has assigned and no
// server has: an interrupted restore's, by its subject. The marker doesn't show.
func (p *planner) lookAtGhost(ctx context.Context) error {
	staged, err := p.js.StreamsOn(ctx, privatePrefix+">")
	if err != nil {
		return fmt.Errorf("listing streams: %w", err)
	}
	p.Target.Existing = TargetMissing
	if slices.Contains(staged.Missing, p.Target.Stream) {
		p.Target.Existing = TargetAbandoned
	}
	return nil
}

// clockSkew is how far the clock of a server is ahead that said its time between
// a question and the answer. Less than a second doesn't count.
func clockSkew(asked, answered, said time.Time) time.Duration {
	const leeway = time.Second
	switch {
	case said.IsZero():
	case said.Before(asked.Add(-leeway)):
		return said.Sub(asked)
	case said.After(answered.Add(leeway)):
		return said.Sub(answered)
	}
	return 0
}

// judge says what an existing stream is to a restore.
func judge(info *jsapi.StreamInfo) string {
	switch m := markerOf(info.Config); {
	case m.State == stateActivating:
		return TargetActivating
	case m.ID != "":
		return TargetAbandoned
	case info.State.Messages == 0 && info.State.LastSeq == 0 && info.State.ConsumerCount == 0:
		return TargetEmpty
	}
	return TargetOccupied
}

// readArchive reads the whole archive: it has to be sound and to belong to the
// rest of the backup, and the plan needs its figures.
func (p *planner) readArchive(ctx context.Context) error {
	s := newScan(p.Plan)
	ins, err := p.pass(ctx, format.InspectOptions{OnHead: s.head, OnMessage: s.message})
	if err != nil {
		return err
	}
	if s.mayExceedSubject(ins.Figures.Subject) {
		s = newScan(p.Plan)
		s.limits.countPer = true
		if ins, err = p.pass(ctx, format.InspectOptions{OnHead: s.head, OnMessage: s.message}); err != nil {
			return err
		}
	}
	p.archive, p.scan = ins, s
	p.Source.Messages, p.Source.RawBytes = ins.Figures.Messages, ins.RawBytes
	if err := p.belongs(ins); err != nil {
		return fmt.Errorf("backup %s: %w", p.Source.Location, err)
	}
	return s.simulate(ctx, p)
}

// pass reads the archive once.
func (p *planner) pass(ctx context.Context, o format.InspectOptions) (*format.Inspection, error) {
	r, err := p.backup.Archive(ctx)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	p.meter.enter(PhasePlan, p.rawTotal())
	o.OnBlock = p.meter.block
	ins, err := format.Inspect(ctx, r, o)
	if err != nil {
		return nil, fmt.Errorf("backup %s: %w", p.Source.Location, err)
	}
	return ins, nil
}

// rawTotal estimates the decompressed archive's size.
func (p *Plan) rawTotal() int64 {
	if p.Source.RawBytes > 0 {
		return p.Source.RawBytes
	}
	if m := p.backup.Manifest; m != nil {
		var n int64
		for _, o := range m.Objects {
			n += o.RawBytes
		}
		return n
	}
	return 0
}

func (p *planner) belongs(ins *format.Inspection) error {
	if err := format.Belongs(p.file, ins); err != nil {
		return err
	}
	m := p.backup.Manifest
	if m == nil {
		return nil
	}
	if m.Stream != p.Source.Stream {
		return fmt.Errorf("%w: the manifest is of stream %q, %s of %q", format.ErrMismatch, m.Stream, format.BackupFileName, p.Source.Stream)
	}
	if len(m.Objects) == 1 && m.Objects[0].SHA256 != ins.SHA256 {
		return fmt.Errorf("%w: the archive's SHA-256 isn't the manifest's", format.ErrMismatch)
	}
	if f := ins.Figures; f.Messages != m.Figures.Messages || f.LastSeq != m.Figures.LastSeq || f.Bytes != m.Figures.Bytes {
		return fmt.Errorf("%w: the manifest counts %d messages of %d bytes up to sequence %d, the archive holds %d of %d up to %d", format.ErrMismatch,
			m.Figures.Messages, m.Figures.Bytes, m.Figures.LastSeq, f.Messages, f.Bytes, f.LastSeq)
	}
	return nil
}
