package restore

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jetkeep/jetkeep/format"
	"github.com/jetkeep/jetkeep/internal/jsapi"
	"github.com/jetkeep/jetkeep/internal/subject"
)

// config is what jetkeep looks at in a stream configuration.
type config struct {
	Name          string            `json:"name"`
	Subjects      []string          `json:"subjects"`
	Retention     string            `json:"retention"`
	Storage       string            `json:"storage"`
	Discard       string            `json:"discard"`
	Replicas      int               `json:"num_replicas"`
	MaxAge        time.Duration     `json:"max_age"`
	MaxMsgs       int64             `json:"max_msgs"`
	MaxBytes      int64             `json:"max_bytes"`
	MaxPer        int64             `json:"max_msgs_per_subject"`
	MaxSize       int64             `json:"max_msg_size"`
	MaxConsumers  int               `json:"max_consumers"`
	Window        time.Duration     `json:"duplicate_window"`
	AllowTTL      bool              `json:"allow_msg_ttl"`
	Schedules     bool              `json:"allow_msg_schedules"`
	Mirror        *origin           `json:"mirror"`
	Sources       []*origin         `json:"sources"`
	Transform     json.RawMessage   `json:"subject_transform"`
	Metadata      map[string]string `json:"metadata"`
	ConsumerLimit struct {
		InactiveThreshold time.Duration `json:"inactive_threshold"`
		MaxAckPending     int           `json:"max_ack_pending"`
	} `json:"consumer_limits"`
	Placement *struct {
		Cluster string   `json:"cluster"`
		Tags    []string `json:"tags"`
	} `json:"placement"`
}

// origin is a mirror's or sourcing stream's source.
type origin struct {
	Name     string          `json:"name"`
	External json.RawMessage `json:"external"`
}

func (o *origin) external() bool { return len(o.External) > 0 && string(o.External) != "null" }

func parseConfig(o format.Object) (config, error) {
	var c config
	if err := o.Decode(&c); err != nil {
		return c, fmt.Errorf("stream configuration: %w", err)
	}
	if len(c.Subjects) == 0 && c.Mirror == nil && len(c.Sources) == 0 {
		c.Subjects = []string{c.Name}
	}
	if c.Replicas < 0 {
		return c, fmt.Errorf("stream configuration: num_replicas is %d", c.Replicas)
	}
	if c.Replicas == 0 {
		c.Replicas = 1
	}
	return c, nil
}

// configure decides on the configuration that will be in force in the end.
func (p *planner) configure() error {
	cfg := p.file.Config.Clone()
	switch {
	case p.o.Config != nil:
		cfg = p.o.Config.Clone()
	case p.Target.Existing == TargetEmpty:
		cfg = p.existing.Config.Clone()
		p.find("target", Warning, "stream %q exists and is empty: its configuration is kept, and it is replaced", p.Target.Stream)
	default:
		p.own = true
	}
	cleanMetadata(&cfg)
	cfg.Set("name", p.Target.Stream)
	if err := p.renameBucket(&cfg); err != nil {
		p.find("name", Refusal, "%v", err)
	}
	p.override(&cfg)
	p.Config = cfg
	_, err := parseConfig(cfg)
	return err
}

// cleanMetadata removes what a server adds to a configuration that it shows,
// and what an earlier restore may have left.
func cleanMetadata(cfg *format.Object) {
	editMetadata(cfg, func(m map[string]string) {
		delete(m, "_nats.ver")
		delete(m, "_nats.level")
		for k := range m {
			if strings.HasPrefix(k, markerPrefix) {
				delete(m, k)
			}
		}
	})
}

func editMetadata(cfg *format.Object, f func(map[string]string)) {
	m := map[string]string{}
	if cfg.Get("metadata", &m) != nil || m == nil {
		m = map[string]string{}
	}
	f(m)
	if len(m) == 0 {
		cfg.Delete("metadata")
		return
	}
	cfg.Set("metadata", m)
}

// override applies the options that replace fields.
func (p *planner) override(cfg *format.Object) {
	o := p.o
	if len(o.Subjects) > 0 {
		cfg.Set("subjects", o.Subjects)
	}
	if o.Replicas > 0 {
		cfg.Set("num_replicas", o.Replicas)
	}
	if o.Storage != "" {
		cfg.Set("storage", o.Storage)
	}
	if o.PlacementCluster == "" && len(o.PlacementTags) == 0 {
		return
	}
	placement := map[string]any{}
	if o.PlacementCluster != "" {
		placement["cluster"] = o.PlacementCluster
	}
	if tags := slices.DeleteFunc(slices.Clone(o.PlacementTags), func(s string) bool { return s == "" }); len(tags) > 0 {
		placement["tags"] = tags
	}
	if len(placement) == 0 {
		cfg.Delete("placement")
		return
	}
	cfg.Set("placement", placement)
}

// renameBucket moves the subjects of a KV bucket or object store to its new name.
func (p *planner) renameBucket(cfg *format.Object) error {
	if p.o.As == "" || p.o.As == p.Source.Stream {
		return nil
	}
	r, err := renaming(p.Source.Stream, p.o.As)
	if r == nil || err != nil {
		return err
	}
	var subjects []string
	if err := cfg.Get("subjects", &subjects); err != nil {
		return err
	}
	for i := range subjects {
		subjects[i] = r.subject(subjects[i])
	}
	cfg.Set("subjects", subjects)
	if err := r.origins(cfg); err != nil {
		return err
	}
	p.rename = r
	p.Rewrite = true
	return nil
}

// private is the subject that a stream is staged on, and a clone stays on.
func (p *Plan) private() string { return privatePrefix + p.RestoreID }

const privatePrefix = "_jetkeep."

// limits reads the limits of the final configuration.
func (p *Plan) limits() limits {
	c, _ := parseConfig(p.Config)
	src, _ := parseConfig(p.file.Config)
	return limits{
		memory: c.Storage == "memory",
		maxAge: c.MaxAge, maxMsgs: c.MaxMsgs, maxBytes: c.MaxBytes, maxPer: c.MaxPer, maxSize: c.MaxSize,
		window: c.Window, discardNew: c.Discard == "new", schedules: c.Schedules,
		countPer: c.MaxPer > 0 && (src.MaxPer <= 0 || c.MaxPer < src.MaxPer),
	}
}

// coverage returns what the final configuration's subjects match, or nil where
// every subject is fine: a mirror has none, and sources bring their own.
func (p *Plan) coverage() *subject.Set {
	c, _ := parseConfig(p.Config)
	if c.Mirror != nil || len(c.Sources) > 0 || len(c.Transform) > 0 && string(c.Transform) != "null" {
		return nil
	}
	return subject.NewSet(c.Subjects)
}

// Marker keys in a stream's metadata.
const (
	markerPrefix = format.MarkerPrefix
	markerID     = format.MarkerID
	markerBackup = format.MarkerBackup
	markerState  = format.MarkerState
	markerOwner  = format.MarkerOwner
	// markerConsumer keeps what staging changed in a consumer.
	markerConsumer = markerPrefix + "consumer"

	stateStaged     = "staged"
	stateActivating = "activating"
)

// marker is what a stream that is being restored bears.
type marker struct{ ID, Backup, State, Owner string }

func markerOf(cfg format.Object) marker {
	var m map[string]string
	if cfg.Get("metadata", &m) != nil {
		return marker{}
	}
	return marker{m[markerID], m[markerBackup], m[markerState], m[markerOwner]}
}

// mark adds the plan's marker to a configuration.
func (p *Plan) mark(cfg format.Object, state string) format.Object {
	cfg = cfg.Clone()
	editMetadata(&cfg, func(m map[string]string) {
		m[markerID] = p.RestoreID
		m[markerBackup] = p.backupName()
		m[markerState] = state
		m[markerOwner] = owner()
	})
	return cfg
}

// backupName tells one backup from another, also where there's no id.
func (p *Plan) backupName() string {
	if p.Source.ID != "" {
		return p.Source.Stream + "@" + p.Source.ID
	}
	return "sha256:" + p.archive.SHA256
}

// owner names this process.
func owner() string { return fmt.Sprintf("%s/%d", machine(), os.Getpid()) }

// machine is where a process id means something: the host, and where there are
// such, the namespace of its processes.
func machine() string {
	host, _ := os.Hostname()
	if ns, err := os.Readlink("/proc/self/ns/pid"); err == nil {
		host += " " + ns
	}
	return host
}

// process tells whether the process that set a marker is of this machine, and
// whether it still carries the restore out.
func (m marker) process() (pid int, here, alive bool) {
	host, id, _ := strings.Cut(m.Owner, "/")
	pid, err := strconv.Atoi(id)
	if err != nil || host != machine() {
		return 0, false, false
	}
	if pid == os.Getpid() {
		_, ours := running.Load(m.ID)
		return pid, true, ours
	}
	return pid, true, processAlive(pid)
}

// dead reports whether a restore is over for certain.
func (m marker) dead() bool {
	_, here, alive := m.process()
	return here && !alive
}

// staged returns the configuration to load the stream with: final wherever it
// can't be changed later, out of reach and without what would remove messages
// or reach out.
func (p *Plan) staged() format.Object {
	c, _ := parseConfig(p.Config)
	cfg := p.mark(p.Config, stateStaged)
	if c.Mirror == nil {
		cfg.Set("subjects", []string{p.private()})
	}
	cfg.Delete("allow_msg_ttl", "subject_delete_marker_ttl", "first_seq", "sources", "republish", "sealed", "allow_direct")
	cfg.Set("max_age", 0)
	if c.MaxMsgs > 0 && p.scan.messages > uint64(c.MaxMsgs) {
		cfg.Set("max_msgs", -1)
	}
	if c.MaxBytes > 0 && p.scan.bytes > uint64(c.MaxBytes) {
		cfg.Set("max_bytes", p.scan.bytes)
	}
	if c.MaxPer > 0 && (p.scan.overSubject > 0 || c.Mirror != nil) {
		cfg.Set("max_msgs_per_subject", -1)
		cfg.Delete("discard_new_per_subject")
	}
	return cfg
}

// pauseUntil is far enough for any restore, and near enough for any timer.
func pauseUntil() time.Time { return time.Now().UTC().AddDate(1, 0, 0).Truncate(time.Second) }

// stagedThreshold keeps an idle consumer while its stream is staged.
const stagedThreshold = 30 * 24 * time.Hour

// stagedHead returns the archive's head with consumers that can't deliver while
// the stream is staged.
func (p *Plan) stagedHead(h *format.Head) (*format.Head, error) {
	out := *h
	out.Consumers = nil
	c, err := parseConfig(p.Config)
	if err != nil {
		return nil, err
	}
	// The server sets so many bytes aside. The archive's figure is of its own
	// store and from before the snapshot.
	state, err := format.ParseObject(h.StateJSON)
	if err != nil {
		return nil, err
	}
	state.Set("bytes", p.scan.bytes)
	if out.StateJSON, err = json.Marshal(state); err != nil {
		return nil, err
	}
	for _, k := range p.consumers(h) {
		cfg := k.Config.Clone()
		kept := map[string]json.RawMessage{}
		for _, field := range []string{"pause_until", "inactive_threshold"} {
			if raw := cfg.Raw(field); raw != nil {
				kept[field] = raw
			}
		}
		if p.rename != nil {
			if err := p.rename.consumer(&cfg); err != nil {
				return nil, fmt.Errorf("consumer %q: %w", k.Name, err)
			}
		}
		note, err := json.Marshal(kept)
		if err != nil {
			return nil, fmt.Errorf("consumer %q: %w", k.Name, err)
		}
		editMetadata(&cfg, func(m map[string]string) {
			delete(m, "_nats.ver")
			delete(m, "_nats.level")
			m[markerConsumer] = string(note)
		})
		cfg.Set("pause_until", pauseUntil())
		p.stageThreshold(&cfg, c)
		var replicas int
		if err := cfg.Get("num_replicas", &replicas); err != nil {
			return nil, fmt.Errorf("consumer %q: %w", k.Name, err)
		}
		if replicas > c.Replicas {
			cfg.Set("num_replicas", 0) // as many as the stream
		}
		k.Config = cfg
		out.Consumers = append(out.Consumers, k)
	}
	return &out, nil
}

// stageThreshold keeps a consumer that goes when idle. One without durable name
// always does, after five seconds if nothing else is said.
func (p *Plan) stageThreshold(cfg *format.Object, c config) {
	var own time.Duration
	var durable string
	_ = cfg.Get("inactive_threshold", &own)
	_ = cfg.Get("durable_name", &durable)
	if durable != "" && own == 0 {
		return
	}
	want := max(own, stagedThreshold)
	if most := c.ConsumerLimit.InactiveThreshold; most > 0 {
		want = min(want, most)
	}
	cfg.Set("inactive_threshold", want)
}

// consumers returns those of the archive that will be restored: not those that
// the server makes itself, for mirrors and sources.
func (p *Plan) consumers(h *format.Head) []format.Consumer {
	if p.o.NoConsumers {
		return nil
	}
	kept := slices.DeleteFunc(slices.Clone(h.Consumers), func(k format.Consumer) bool {
		var direct bool
		return k.Config.Get("direct", &direct) == nil && direct
	})
	for i := range kept {
		raiseFloor(&kept[i], h.State.FirstSeq)
	}
	return kept
}

// raiseFloor has a consumer stand at least before the stream's first message, as
// a new one does. In a cluster a consumer's floor may be lower, and a restoring
// single server would drop all of its state as older than what it has begun with.
func raiseFloor(k *format.Consumer, first uint64) {
	for _, field := range []string{"delivered", "ack_floor"} {
		var at format.SequencePair
		if k.State.Get(field, &at) == nil && first > 0 && at.Stream < first-1 {
			at.Stream = first - 1
			k.State = k.State.Clone()
			k.State.Set(field, at)
		}
	}
}

// unstaged returns a consumer's configuration as it was before staging, and
// until when it was paused; ok is false for a consumer that isn't staged.
func unstaged(info *jsapi.ConsumerInfo) (cfg format.Object, until time.Time, ok bool, err error) {
	var m map[string]string
	if err := info.Config.Get("metadata", &m); err != nil || m[markerConsumer] == "" {
		return format.Object{}, time.Time{}, false, err
	}
	kept, err := format.ParseObject([]byte(m[markerConsumer]))
	if err != nil {
		return format.Object{}, time.Time{}, false, fmt.Errorf("consumer %q: marker: %w", info.Name, err)
	}
	cfg = info.Config.Clone()
	cleanMetadata(&cfg)
	cfg.Delete("pause_until", "inactive_threshold")
	if raw := kept.Raw("inactive_threshold"); raw != nil {
		cfg.Set("inactive_threshold", raw)
	}
	if err := kept.Get("pause_until", &until); err != nil {
		return format.Object{}, time.Time{}, false, fmt.Errorf("consumer %q: marker: %w", info.Name, err)
	}
	return cfg, until, true, nil
}
