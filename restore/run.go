package restore

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/jetkeep/jetkeep/format"
	"github.com/jetkeep/jetkeep/internal/jsapi"
)

// Result is what a restore led to.
type Result struct {
	Stream string `json:"stream"`
	// Config and State of the stream as the server shows them in the end.
	Config    format.Object `json:"config"`
	State     format.State  `json:"state"`
	Consumers int           `json:"consumers"`
	// Expired messages were left out, since their TTL was over.
	Expired uint64 `json:"expired"`
	// Finished says that an earlier run's activation was completed, and nothing
	// was sent.
	Finished bool `json:"finished,omitempty"`
	// Sent is how many bytes of archive went to the server.
	Sent int64 `json:"sent"`
	// Warnings about the outcome.
	Warnings []string `json:"warnings,omitempty"`
}

// Run carries a plan out. On an error nothing is left behind, unless it's a
// [*LeftBehindError]; a plan with refusals is [*Refused] before anything is touched.
func Run(ctx context.Context, nc *nats.Conn, p *Plan) (*Result, error) {
	if bad := p.Refusals(); len(bad) > 0 {
		return nil, &Refused{Stream: p.Target.Stream, Findings: bad}
	}
	js, err := p.o.client(nc)
	if err != nil {
		return nil, err
	}
	defer js.Close()
	defer begin(p.RestoreID)()
	r := &runner{js: js, p: p, name: p.Target.Stream, meter: newMeter(p.o.Progress)}
	defer r.meter.stop()
	if p.Target.Existing == TargetActivating {
		return r.resume(ctx)
	}
	if err := r.makeRoom(ctx); err != nil {
		return nil, err
	}
	if err := r.load(ctx); err != nil {
		return nil, r.undo(ctx, err)
	}
	if err := r.activate(ctx); err != nil {
		return nil, err
	}
	return r.result(context.WithoutCancel(ctx)), nil
}

// runner carries out one plan.
type runner struct {
	js    *jsapi.Client
	p     *Plan
	name  string
	meter *meter
	// begun says that the server was asked to restore, so that something of ours
	// may exist; replaced that an empty target was removed for it.
	begun, replaced bool
	// ended says that the server has ended the last attempt for certain.
	ended bool
	// settled are the consumers as they were when the stream had settled.
	settled *jsapi.ConsumerList
	// behind are replicas that couldn't be waited for.
	behind  []string
	expired uint64
	sent    int64
}

// running holds the ids of the restores that this process carries out.
var running sync.Map

// begin notes a restore until the function that it returns is called.
func begin(id string) (end func()) {
	running.Store(id, true)
	return func() { running.Delete(id) }
}

// makeRoom removes what an interrupted restore left, or an empty target.
func (r *runner) makeRoom(ctx context.Context) error {
	switch r.p.Target.Existing {
	case TargetAbandoned:
		return r.removeAbandoned(ctx)
	case TargetEmpty:
		return r.removeEmpty(ctx)
	}
	return nil
}

func (r *runner) removeAbandoned(ctx context.Context) error {
	var before marker
	if r.p.existing != nil {
		before = markerOf(r.p.existing.Config)
	}
	now, err := r.info(ctx)
	if jsapi.IsCode(err, jsapi.CodeStreamNotFound) {
		if r.p.existing == nil {
			return r.delete(ctx)
		}
		return nil
	}
	if err != nil {
		return r.stillStaged(before, err)
	}
	if m := markerOf(now.Config); m.ID != before.ID || m.State == stateActivating {
		return r.takenOver()
	}
	if err := r.outlast(ctx); err != nil {
		return err
	}
	if err := r.delete(ctx); err != nil {
		return r.stillStaged(before, err)
	}
	return nil
}

// stillStaged says that what an interrupted restore left couldn't be removed.
func (r *runner) stillStaged(m marker, err error) error {
	return &LeftBehindError{Stream: r.name, Err: err,
		What: fmt.Sprintf("what restore %s left staged as stream %q; run the same restore again, or remove it by `nats stream rm %s`", m.ID, r.name, r.name)}
}

// takenOver says that a stream isn't ours any more.
func (r *runner) takenOver() error {
	return &LeftBehindError{Stream: r.name, Err: ErrTakenOver,
		What: fmt.Sprintf("stream %q, which doesn't bear our marker any more: look at it before you remove it", r.name)}
}

// outlast waits, in a cluster, until a restore is over that nobody has ended: the
// server drops it after five silent seconds. A stream that is restored under the
// same name meanwhile can lose its consumers to that.
func (r *runner) outlast(ctx context.Context) error {
	if r.p.Target.Cluster == "" {
		return nil
	}
	defer r.meter.wait("")
	r.meter.wait("the interrupted restore has to end on the server")
	return sleep(ctx, 6*time.Second)
}

// delete deletes the stream, for certain: a request without an answer is made
// again.
func (r *runner) delete(ctx context.Context) error {
	_, err := retried(ctx, func() (any, error) { return nil, r.js.DeleteStream(ctx, r.name) })
	if err != nil && !jsapi.IsCode(err, jsapi.CodeStreamNotFound) {
		return err
	}
	return r.waitGone(ctx)
}

func (r *runner) removeEmpty(ctx context.Context) error {
	now, err := r.info(ctx)
	if jsapi.IsCode(err, jsapi.CodeStreamNotFound) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("stream %q: %w", r.name, err)
	}
	if judge(now) != TargetEmpty || !now.Created.Equal(r.p.existing.Created) {
		return &Refused{Stream: r.name, Findings: []Finding{{Check: "target", Level: Refusal,
			Text: fmt.Sprintf("target stream not empty any more: %d messages", now.State.Messages)}}}
	}
	r.replaced = true // or will be: an answer may be all that is missing
	if err := r.delete(ctx); err != nil {
		return r.undo(ctx, fmt.Errorf("replacing the empty stream %q: %w", r.name, err))
	}
	return nil
}

// waitGone waits until a deleted stream's name is free.
func (r *runner) waitGone(ctx context.Context) error {
	for n := 0; ; n++ {
		_, err := r.js.StreamInfo(ctx, r.name)
		if jsapi.IsCode(err, jsapi.CodeStreamNotFound) {
			if left, err := r.assigned(ctx); err == nil && !left {
				return nil
			}
		}
		if n >= 20 {
			return fmt.Errorf("stream %q was deleted and is still there", r.name)
		}
		if err := sleep(ctx, 250*time.Millisecond); err != nil {
			return err
		}
	}
}

func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(d):
		return nil
	}
}

// load stages the stream and checks it. A stream that was deleted just before
// can meet its own old files on the server, which removes them in the
// background: that is tried once more.
func (r *runner) load(ctx context.Context) error {
	err := r.stage(ctx)
	var store *StoreError
	if errors.As(err, &store) && store.Seq == r.firstStored() {
		if uerr := r.undoStaged(ctx); uerr != nil {
			return err
		}
		if serr := sleep(ctx, 2*time.Second); serr != nil {
			return serr
		}
		err = r.stage(ctx)
	}
	if err != nil {
		return err
	}
	return r.check(ctx)
}

// firstStored is the sequence of the first message that a restore stores: old
// files make that one fail.
func (r *runner) firstStored() uint64 { return r.p.scan.firstSeq }

// stage has the server load the archive.
func (r *runner) stage(ctx context.Context) error {
	p := r.p
	subject, err := r.request(ctx)
	if err != nil {
		return err
	}
	s, err := newSender(ctx, r.js, subject, p.o)
	if err != nil {
		return err
	}
	defer s.close()
	r.sent, r.ended = 0, false
	if err = r.send(s); err == nil {
		r.meter.enter(PhaseFinish, 0)
		err = s.finish(p.o.FinishTimeout)
	}
	r.ended = err == nil || s.abort(6*time.Second, err)
	return err
}

// request asks the server to begin, and returns the subject that takes chunks.
// A request without an answer, as while a cluster has no leader, is made again;
// what it may have begun all the same is removed first, and so is a stream that
// an interrupted restore left and that has shown only now.
func (r *runner) request(ctx context.Context) (subject string, err error) {
	for n := 0; ; n++ {
		subject, err = r.js.StartRestore(ctx, r.name, r.p.staged(), r.p.file.State)
		taken := jsapi.IsCode(err, jsapi.CodeRestoreNameExists)
		// In a cluster the failure of an earlier restore may come as the answer.
		passing := jsapi.Temporary(err) || jsapi.IsCode(err, jsapi.CodeRestoreFailed)
		r.begun = r.begun || passing || !isFinal(err)
		if err == nil {
			return subject, nil
		}
		if !passing && !taken || n >= 5 {
			return "", r.refusedByServer(err)
		}
		if serr := sleep(ctx, time.Second<<n/2); serr != nil {
			return "", serr
		}
		if cerr := r.clear(ctx); cerr != nil {
			return "", r.refusedByServer(err)
		}
	}
}

// clear removes what a restore has left under the name, of this run or of one
// that is over; it's an error when something else stands there.
func (r *runner) clear(ctx context.Context) error {
	info, err := r.info(ctx)
	if jsapi.IsCode(err, jsapi.CodeStreamNotFound) {
		if ours, err := r.assigned(ctx); !ours {
			return err
		}
		if err := r.outlast(ctx); err != nil {
			return err
		}
		return r.delete(ctx)
	}
	if err != nil {
		return err
	}
	m := markerOf(info.Config)
	if m.ID == "" || m.State != stateStaged || m.ID != r.p.RestoreID && !m.dead() {
		return ErrTakenOver
	}
	if err := r.outlast(ctx); err != nil {
		return err
	}
	return r.delete(ctx)
}

func isAPIError(err error) bool {
	var api *jsapi.Error
	return errors.As(err, &api)
}

// refusedByServer turns the server's refusal of a restore request, which comes
// before any data, into one of preflight.
func (r *runner) refusedByServer(err error) error {
	var api *jsapi.Error
	if !errors.As(err, &api) || jsapi.Temporary(err) || jsapi.IsCode(err, jsapi.CodeRestoreFailed) {
		return err
	}
	return &Refused{Stream: r.name, Findings: []Finding{{Check: "server", Level: Refusal, Text: "the server refuses: " + api.Error()}}}
}

// send sends the archive, with its head changed, and holds it against what the
// plan read. The head goes first and by itself: with it the server makes the
// stream, which from then on shows whose it is, however this run ends.
func (r *runner) send(s *sender) error {
	p := r.p
	archive, err := p.backup.Archive(s.ctx)
	if err != nil {
		return err
	}
	defer archive.Close()
	r.meter.enter(PhaseSend, p.rawTotal())
	var ins *format.Inspection
	if p.Rewrite {
		ins, err = r.rewrite(s, archive)
	} else {
		ins, err = r.relay(s, archive)
	}
	if cause := context.Cause(s.ctx); cause != nil && err != nil {
		err = cause // not what it made of the archive
	}
	if err != nil {
		return err
	}
	if ins.SHA256 != p.archive.SHA256 {
		return fmt.Errorf("backup %s: %w: the archive has changed since the plan was made", p.Source.Location, format.ErrMismatch)
	}
	return nil
}

// counted counts what goes to the server.
type counted struct {
	s *sender
	n *int64
}

func (c counted) Write(p []byte) (int, error) {
	n, err := c.s.Write(p)
	*c.n += int64(n)
	return n, err
}

// relay passes the archive's blocks on as they are.
func (r *runner) relay(s *sender, archive io.Reader) (*format.Inspection, error) {
	relay := format.NewRelay(counted{s, &r.sent}, func() (*format.Head, error) { return r.p.stagedHead(r.p.archive.Head) })
	if err := relay.Begin(); err != nil {
		return nil, err
	}
	if err := s.push(); err != nil {
		return nil, err
	}
	return format.Inspect(s.ctx, archive, format.InspectOptions{
		OnMessage: r.meter.message,
		OnBlock: func(b *format.Block) error {
			_ = r.meter.block(b)
			return relay.Block(b)
		},
	})
}

// rewrite replays the archive into a new one.
func (r *runner) rewrite(s *sender, archive io.Reader) (*format.Inspection, error) {
	w := format.NewWriter(counted{s, &r.sent})
	head, err := r.p.stagedHead(r.p.archive.Head)
	if err != nil {
		return nil, err
	}
	for _, step := range []func() error{func() error { return w.WriteHead(head) }, w.Flush, s.push} {
		if err := step(); err != nil {
			return nil, err
		}
	}
	edit := r.p.edit()
	res, err := Replay(s.ctx, archive, &archiveStore{w: w}, ReplayOptions{
		Now: r.p.now,
		Edit: func(m *format.Message) error {
			r.meter.messages.Add(1)
			r.meter.bytes.Add(int64(m.Size()))
			if edit == nil {
				return nil
			}
			return edit(m)
		},
	})
	if err != nil {
		return nil, err
	}
	r.expired = res.Expired
	return res.Inspection, w.Close()
}

// result describes the activated stream.
func (r *runner) result(ctx context.Context) *Result {
	e := r.p.Expected
	info, err := r.info(ctx)
	for n := 0; err == nil && e.Lost > 0 && info.State.Messages > e.Kept && n < 40; n++ {
		if err := sleep(ctx, 250*time.Millisecond); err != nil {
			break
		}
		info, err = r.js.StreamInfo(ctx, r.name) // limits by age take a moment
	}
	res := &Result{Stream: r.name, Expired: r.expired, Sent: r.sent}
	for _, b := range r.behind {
		res.Warnings = append(res.Warnings, b+": a majority is current, and it will follow once it's back")
	}
	if err != nil {
		res.Warnings = append(res.Warnings, fmt.Sprintf("the restored stream is active, and its state couldn't be read: %v", err))
		return res
	}
	res.Config, res.State, res.Consumers = info.Config, info.State, info.State.ConsumerCount
	if lowest := e.Kept - min(e.Kept, r.p.scan.mayExpireBy(r.p.now())); e.Lost > 0 && (info.State.Messages > e.Kept || info.State.Messages < lowest) {
		res.Warnings = append(res.Warnings, fmt.Sprintf("the target's limits were expected to keep %d messages, and the stream has %d", e.Kept, info.State.Messages))
	}
	return res
}
