package restore

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jetkeep/jetkeep/format"
	"github.com/jetkeep/jetkeep/internal/jsapi"
	"github.com/jetkeep/jetkeep/internal/snapshot"
)

// check holds the staged stream against the plan, by figures that the server is
// asked for anew: those in its answer to a restore aren't settled yet.
func (r *runner) check(ctx context.Context) error {
	r.meter.enter(PhaseCheck, 0)
	want := r.p.consumers(r.p.archive.Head)
	for n := 0; ; n++ {
		diffs, err := r.compareFigures(ctx, want)
		if err != nil {
			return err
		}
		if len(diffs) == 0 {
			break
		}
		if r.p.Target.Cluster == "" || n >= settleTries {
			return &CheckError{Stream: r.name, Differences: diffs}
		}
		if err := sleep(ctx, 500*time.Millisecond); err != nil {
			return err
		}
	}
	if r.p.o.FullCheck {
		return r.fullCheck(ctx)
	}
	return nil
}

// settleTries is how often figures that differ are looked at again in a cluster,
// where a consumer's new leader may answer before it knows its state.
const settleTries = 20

// compareFigures waits for the stream to settle and returns what differs from
// the plan.
func (r *runner) compareFigures(ctx context.Context, want []format.Consumer) ([]string, error) {
	info, err := r.settle(ctx, len(want))
	if err != nil {
		return nil, err
	}
	consumers, err := r.compareConsumers(want)
	return append(r.compareState(info), consumers...), err
}

// offlineGrace is how long replicas are waited for that are offline.
const offlineGrace = 10 * time.Second

// settle waits until every replica is current and every consumer has a leader.
// In a cluster a restore is answered before that. With a server down that may
// never be: so once nothing else is missing, replicas that are offline are
// waited for only a while, and any replica only for so long, if a majority is
// current without them. They follow by themselves; the result names them.
func (r *runner) settle(ctx context.Context, consumers int) (*jsapi.StreamInfo, error) {
	deadline := time.Now().Add(r.p.o.FinishTimeout)
	var enough time.Time // since when a majority is all that can be had
	defer r.meter.wait("")
	for {
		info, pending, err := r.staged(ctx, consumers)
		if err != nil {
			return nil, err
		}
		var reps replicas
		if pending == "" {
			reps = replicasOf(info)
			pending = reps.pending()
		}
		late := time.Now().After(deadline)
		switch {
		case pending == "":
			return info, nil
		case reps.majority() && len(reps.lagging) == 0 && enough.IsZero():
			enough = time.Now()
		case !reps.majority() || len(reps.lagging) > 0:
			enough = time.Time{}
		}
		if reps.majority() && (late || !enough.IsZero() && time.Since(enough) > offlineGrace) {
			r.behind = reps.behind()
			return info, nil
		}
		if late {
			return nil, fmt.Errorf("%w: the staged stream %q hasn't settled within %v: %s", ErrNoAnswer, r.name, r.p.o.FinishTimeout, pending)
		}
		r.meter.wait(pending)
		if err := sleep(ctx, 250*time.Millisecond); err != nil {
			return nil, err
		}
	}
}

// staged looks at the staged stream. It returns what the stream lacks before its
// figures can be trusted, but for replicas.
func (r *runner) staged(ctx context.Context, consumers int) (info *jsapi.StreamInfo, pending string, err error) {
	info, err = r.js.StreamInfo(ctx, r.name)
	switch {
	case err != nil && !jsapi.Temporary(err) && !jsapi.IsCode(err, jsapi.CodeStreamNotFound):
		return nil, "", fmt.Errorf("looking at the staged stream %q: %w", r.name, err)
	case err != nil:
		return nil, err.Error(), nil
	case markerOf(info.Config).ID != r.p.RestoreID:
		return nil, "", fmt.Errorf("stream %q: %w", r.name, ErrTakenOver)
	case info.Cluster != nil && info.Cluster.Leader == "":
		return nil, "no leader", nil
	}
	pending, err = r.consumersUnsettled(ctx, consumers)
	return info, pending, err
}

// replicas are those of a stream by what is known of them.
type replicas struct {
	current          int // with the leader
	lagging, offline []string
}

func replicasOf(info *jsapi.StreamInfo) replicas {
	r := replicas{current: 1}
	if info.Cluster == nil {
		return r
	}
	for _, f := range info.Cluster.Replicas {
		switch {
		case f.Offline || !f.Current && f.Active > offlineGrace:
			r.offline = append(r.offline, f.Name)
		case !f.Current || f.Lag > 0:
			r.lagging = append(r.lagging, f.Name)
		default:
			r.current++
		}
	}
	return r
}

func (r *replicas) majority() bool {
	return r.current > (r.current+len(r.lagging)+len(r.offline))/2
}

// pending says what is being waited for.
func (r *replicas) pending() string { return strings.Join(r.behind(), ", ") }

// behind says which replicas aren't current.
func (r *replicas) behind() (texts []string) {
	for _, name := range r.lagging {
		texts = append(texts, fmt.Sprintf("the replica on %s isn't current", name))
	}
	for _, name := range r.offline {
		texts = append(texts, fmt.Sprintf("the replica on %s is offline", name))
	}
	return texts
}

func (r *runner) consumersUnsettled(ctx context.Context, want int) (string, error) {
	list, err := r.js.Consumers(ctx, r.name)
	switch {
	case jsapi.Temporary(err):
		return err.Error(), nil
	case err != nil:
		return "", fmt.Errorf("listing the consumers of the staged stream %q: %w", r.name, err)
	}
	if len(list.Consumers) < want && r.p.Target.Cluster != "" {
		return fmt.Sprintf("%d of %d consumers answer", len(list.Consumers), want), nil
	}
	for _, c := range list.Consumers {
		if c.Cluster != nil && c.Cluster.Leader == "" {
			return fmt.Sprintf("consumer %s has no leader", c.Name), nil
		}
	}
	r.settled = list
	return "", nil
}

// compareState compares counts and sequences. While the stream was loading,
// further TTLs may have ended; and it may have grown.
func (r *runner) compareState(info *jsapi.StreamInfo) (diffs []string) {
	p, st, e := r.p, info.State, r.p.Expected
	gone := p.scan.mayExpireBy(p.now().Add(2 * time.Second))
	least := e.Messages - min(e.Messages, gone)
	grows := p.grows()
	if !grows && st.Messages > e.Messages || e.Scheduled == 0 && st.Messages < least {
		want := fmt.Sprint(e.Messages)
		if gone > 0 {
			want = fmt.Sprintf("%d to %d", least, e.Messages)
		}
		diffs = append(diffs, fmt.Sprintf("%d messages instead of %s", st.Messages, want))
	}
	if st.LastSeq != e.LastSeq && (!grows || st.LastSeq < e.LastSeq) {
		diffs = append(diffs, fmt.Sprintf("last sequence %d instead of %d", st.LastSeq, e.LastSeq))
	}
	if st.FirstSeq != e.FirstSeq && (gone == 0 || st.FirstSeq < e.FirstSeq) && !grows {
		diffs = append(diffs, fmt.Sprintf("first sequence %d instead of %d", st.FirstSeq, e.FirstSeq))
	}
	return diffs
}

// grows reports whether messages come into a staged stream: scheduled ones that
// fire, or a mirror's.
func (p *Plan) grows() bool {
	c, _ := parseConfig(p.Config)
	return p.Expected.Scheduled > 0 || c.Mirror != nil
}

// compareConsumers compares the consumers' positions with the archive's.
func (r *runner) compareConsumers(want []format.Consumer) (diffs []string, err error) {
	have := map[string]*jsapi.ConsumerInfo{}
	for _, c := range r.settled.Consumers {
		have[c.Name] = c
	}
	for _, k := range want {
		c := have[k.Name]
		if c == nil {
			diffs = append(diffs, fmt.Sprintf("consumer %q is missing", k.Name))
			continue
		}
		delete(have, k.Name)
		var st format.ConsumerState
		if err := k.State.Decode(&st); err != nil {
			return nil, fmt.Errorf("consumer %q: %w", k.Name, err)
		}
		if c.Delivered != st.Delivered || c.AckFloor != st.AckFloor {
			diffs = append(diffs, fmt.Sprintf("consumer %q stands at delivered %d, ack floor %d instead of %d, %d",
				k.Name, c.Delivered.Stream, c.AckFloor.Stream, st.Delivered.Stream, st.AckFloor.Stream))
		}
		if uint64(c.NumAckPending) > uint64(len(st.Pending)) {
			diffs = append(diffs, fmt.Sprintf("consumer %q has %d messages pending instead of %d", k.Name, c.NumAckPending, len(st.Pending)))
		}
	}
	for name := range have {
		diffs = append(diffs, fmt.Sprintf("consumer %q isn't in the backup", name))
	}
	return diffs, nil
}

// fullCheck compares the staged stream with the backup entry by entry. A
// snapshot that fails is taken again: it only reads.
func (r *runner) fullCheck(ctx context.Context) (err error) {
	for n := range 3 {
		var second *format.SecondError
		if err = r.compareOnce(ctx); !errors.As(err, &second) || ctx.Err() != nil {
			return err
		}
		// Whatever is wrong with it, the backup is sound.
		err = fmt.Errorf("snapshot of the staged stream %q: %v", r.name, second.Err)
		if serr := sleep(ctx, time.Second<<n); serr != nil {
			return serr
		}
	}
	return err
}

// compareOnce takes a snapshot and compares it with the backup.
func (r *runner) compareOnce(ctx context.Context) error {
	live, err := snapshot.Start(ctx, r.js, snapshot.Options{
		Stream: r.name, NoConsumers: true,
		ChunkSize: r.p.o.ChunkSize, WindowSize: r.p.o.WindowSize, Hold: 2 * int64(r.p.o.WindowSize), Idle: r.p.o.IdleTimeout,
	})
	if err != nil {
		return fmt.Errorf("snapshot of the staged stream %q: %w", r.name, err)
	}
	defer live.Close()
	archive, err := r.p.backup.Archive(ctx)
	if err != nil {
		return err
	}
	defer archive.Close()
	diff, err := format.Compare(ctx, archive, live, format.CompareOptions{
		Edit: r.p.edit(),
		// What has expired by now may be missing.
		Gone: func(m *format.Message) bool {
			at, ok := m.ExpiresAt()
			return ok && r.p.now().Add(2*time.Second).After(at)
		},
		Progress: func(m *format.Message) { r.meter.messages.Add(1); r.meter.bytes.Add(int64(m.Size())) },
	})
	if err != nil {
		return fmt.Errorf("comparing the staged stream %q with its backup: %w", r.name, err)
	}
	if r.p.grows() {
		diff.Extra = 0
	}
	if diff.Total() > 0 {
		return &CheckError{Stream: r.name, Differences: diff.Texts()}
	}
	return nil
}
