package restore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jetkeep/jetkeep/format"
	"github.com/jetkeep/jetkeep/internal/jsapi"
)

// activate makes a staged and checked stream live. Before its second step a
// failure is rolled back; after it nothing is ever deleted, and a later run can
// go on from where this one stopped.
func (r *runner) activate(ctx context.Context) error {
	r.meter.enter(PhaseActivate, 0)
	if err := r.stillOurs(ctx); err != nil {
		return r.undo(ctx, err)
	}
	ctx, stop := lingering(ctx, activationGrace)
	defer stop()
	live := r.p.mark(r.p.Config, stateActivating)
	if err := r.update(ctx, live, func(m marker) bool { return m.ID == r.p.RestoreID && m.State == stateActivating }); err != nil {
		if ctx.Err() == nil && isFinal(err) {
			return r.undo(ctx, err) // refused: the stream is still staged
		}
		return r.undecided(err)
	}
	return r.complete(ctx, r.p.Config)
}

// isFinal reports whether an error says that a request was turned down.
func isFinal(err error) bool {
	var denied *jsapi.PermissionError
	return errors.As(err, &denied) || isAPIError(err) && !jsapi.Temporary(err)
}

// stillOurs reads the stream once more before it's activated.
func (r *runner) stillOurs(ctx context.Context) error {
	var info *jsapi.StreamInfo
	var list *jsapi.StreamList
	err := together(func() (err error) {
		if info, err = r.info(ctx); err != nil {
			return fmt.Errorf("stream %q before its activation: %w", r.name, err)
		}
		return nil
	}, func() (err error) {
		list, err = retried(ctx, func() (*jsapi.StreamList, error) { return r.js.Streams(ctx) })
		if err != nil {
			return fmt.Errorf("listing streams: %w", err)
		}
		return nil
	})
	if err != nil {
		return err
	}
	if m := markerOf(info.Config); m.ID != r.p.RestoreID || m.State != stateStaged {
		return fmt.Errorf("stream %q: %w", r.name, ErrTakenOver)
	}
	// A server that crashed after the check may have lost what it had in memory.
	if diffs := r.compareState(info); len(diffs) > 0 {
		return &CheckError{Stream: r.name, Differences: diffs}
	}
	c, err := parseConfig(r.p.Config)
	if err != nil {
		return err
	}
	p := &planner{Plan: r.p}
	for _, s := range list.Streams {
		if s.Name() != r.name {
			p.others = append(p.others, s)
		}
	}
	if found := p.overlaps(c.Subjects); len(found) > 0 {
		return fmt.Errorf("another stream has taken the subjects meanwhile: %s", found[0])
	}
	return nil
}

// update changes the stream's configuration. An update without an answer is
// settled by reading what the configuration is now.
func (r *runner) update(ctx context.Context, cfg format.Object, done func(marker) bool) (err error) {
	for n := range 6 {
		if _, err = r.js.UpdateStream(ctx, cfg); err == nil {
			return nil
		}
		if !jsapi.Temporary(err) || ctx.Err() != nil {
			return fmt.Errorf("updating stream %q: %w", r.name, err)
		}
		if info, ierr := r.js.StreamInfo(ctx, r.name); ierr == nil && done(markerOf(info.Config)) {
			return nil
		}
		if serr := sleep(ctx, time.Second<<n/2); serr != nil {
			return serr
		}
	}
	return fmt.Errorf("updating stream %q: %w", r.name, err)
}

// complete gives the consumers their own state back and takes the marker off.
func (r *runner) complete(ctx context.Context, final format.Object) error {
	if err := r.wakeConsumers(ctx); err != nil {
		return r.undecided(err)
	}
	if err := r.update(ctx, final, func(m marker) bool { return m.ID == "" }); err != nil {
		return r.undecided(err)
	}
	return nil
}

// wakeConsumers undoes what staging changed in the consumers.
func (r *runner) wakeConsumers(ctx context.Context) error {
	for n := 0; ; n++ {
		list, err := r.consumers(ctx)
		if err != nil {
			return err
		}
		for some := range slices.Chunk(list.Consumers, wakeTogether) {
			var wakes []func() error
			for _, info := range some {
				wakes = append(wakes, func() error { return r.wakeOne(ctx, info) })
			}
			if err := together(wakes...); err != nil {
				return err
			}
		}
		if len(list.Missing) == 0 {
			return nil
		}
		if n >= 20 { // as after the loss of a leader, which another one follows
			return fmt.Errorf("consumers of stream %q don't answer: %s", r.name, strings.Join(list.Missing, ", "))
		}
		if err := sleep(ctx, time.Second); err != nil {
			return err
		}
	}
}

// wakeTogether is how many consumers are woken at a time.
const wakeTogether = 16

// wakeOne wakes a consumer if it's staged.
func (r *runner) wakeOne(ctx context.Context, info *jsapi.ConsumerInfo) error {
	cfg, until, staged, err := unstaged(info)
	if err == nil && staged {
		err = r.wake(ctx, info.Name, cfg, until)
	}
	if err != nil {
		return fmt.Errorf("consumer %q of stream %q: %w", info.Name, r.name, err)
	}
	return nil
}

// wake ends a consumer's pause before its marker goes, so that an interrupted
// run is found at the marker.
func (r *runner) wake(ctx context.Context, name string, cfg format.Object, until time.Time) error {
	var deliver string
	_ = cfg.Get("deliver_subject", &deliver)
	stays := r.p.clone && deliver != ""
	// An update doesn't change the pause, but in a cluster the consumer's API
	// level follows from what it says.
	switch {
	case stays:
		cfg.Set("pause_until", pauseUntil())
	case !until.IsZero():
		cfg.Set("pause_until", until)
	}
	if !stays {
		if _, err := retried(ctx, func() (any, error) {
			return nil, r.js.PauseConsumer(ctx, r.name, name, until)
		}); err != nil {
			return err
		}
	}
	_, err := retried(ctx, func() (*jsapi.ConsumerInfo, error) { return r.js.UpdateConsumer(ctx, r.name, cfg) })
	if jsapi.IsCode(err, jsapi.CodeConsumerDoesNotExist, jsapi.CodeConsumerNotFound) {
		return nil // its own threshold has run out already
	}
	return err
}

// info asks for the stream, with patience.
func (r *runner) info(ctx context.Context) (*jsapi.StreamInfo, error) {
	return retried(ctx, func() (*jsapi.StreamInfo, error) { return r.js.StreamInfo(ctx, r.name) })
}

// consumers lists the stream's consumers, with patience.
func (r *runner) consumers(ctx context.Context) (*jsapi.ConsumerList, error) {
	list, err := retried(ctx, func() (*jsapi.ConsumerList, error) { return r.js.Consumers(ctx, r.name) })
	if err != nil {
		return nil, fmt.Errorf("listing the consumers of stream %q: %w", r.name, err)
	}
	return list, nil
}

// activationGrace is how long an activation goes on once it's interrupted. It
// takes two requests a consumer: better done than left half-way.
const activationGrace = 10 * time.Second

// lingering returns a context that ends a while after its parent.
func lingering(parent context.Context, grace time.Duration) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(context.WithoutCancel(parent))
	stop := context.AfterFunc(parent, func() {
		select {
		case <-ctx.Done():
		case <-time.After(grace):
			cancel(context.Cause(parent))
		}
	})
	return ctx, func() {
		stop()
		cancel(context.Canceled)
	}
}

// retried repeats a request that may succeed a little later.
func retried[T any](ctx context.Context, f func() (T, error)) (v T, err error) {
	for n := range 6 {
		if v, err = f(); err == nil || !jsapi.Temporary(err) {
			return v, err
		}
		if serr := sleep(ctx, time.Second<<n/2); serr != nil {
			return v, serr
		}
	}
	return v, err
}

// undecided is what remains when an activation can't go on.
func (r *runner) undecided(err error) error {
	return &LeftBehindError{Stream: r.name, Err: err,
		What: fmt.Sprintf("stream %q holds all its messages and may be partly activated; run the same restore again to finish it", r.name)}
}

// resume finishes an interrupted activation.
func (r *runner) resume(ctx context.Context) (*Result, error) {
	ctx, stop := lingering(ctx, activationGrace)
	defer stop()
	info, err := r.info(ctx)
	if err != nil {
		return nil, r.undecided(err)
	}
	if m := markerOf(info.Config); m.State != stateActivating || m.Backup != r.p.backupName() {
		return nil, r.takenOver()
	}
	final := info.Config.Clone()
	cleanMetadata(&final)
	if err := r.complete(ctx, final); err != nil {
		return nil, err
	}
	res := r.result(context.WithoutCancel(ctx))
	res.Finished = true
	return res, nil
}

// undo rolls a failed restore back and says what became of it. It doesn't stop
// when the context has.
func (r *runner) undo(ctx context.Context, cause error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 90*time.Second)
	defer cancel()
	r.meter.enter(PhaseRollBack, 0)
	if r.p.o.KeepFailed && r.begun && !r.gone(ctx) {
		return &LeftBehindError{Stream: r.name, Err: cause,
			What: fmt.Sprintf("the staged stream %q, as --keep-failed asks; `nats stream rm %s` removes it, and so does the next restore", r.name, r.name)}
	}
	if err := r.undoStaged(ctx); err != nil {
		return &LeftBehindError{Stream: r.name, Err: cause, What: err.Error()}
	}
	if r.replaced {
		if err := r.putBack(ctx); err != nil {
			return &LeftBehindError{Stream: r.name, Err: cause, What: err.Error()}
		}
	}
	var refused *Refused
	if errors.As(cause, &refused) || errors.Is(cause, context.Canceled) {
		return cause
	}
	return &TransferError{Stream: r.name, Err: cause}
}

// gone reports whether the stream doesn't exist, for all that can be seen.
func (r *runner) gone(ctx context.Context) bool {
	_, err := r.info(ctx)
	return jsapi.IsCode(err, jsapi.CodeStreamNotFound)
}

// putBack creates the empty target again that was removed.
func (r *runner) putBack(ctx context.Context) error {
	cfg := r.p.existing.Config.Clone()
	cleanMetadata(&cfg)
	if _, err := retried(ctx, func() (*jsapi.StreamInfo, error) { return r.js.CreateStream(ctx, cfg) }); err != nil {
		return fmt.Errorf("the empty stream %q was removed and couldn't be put back: %w", r.name, err)
	}
	return nil
}

// lookFor is how long a failed restore's stream may take to appear: in a cluster
// it does so late, and a server that wasn't told goes on for five seconds.
func (r *runner) lookFor() time.Duration {
	if r.ended && r.p.Target.Cluster == "" {
		return 500 * time.Millisecond
	}
	return 7 * time.Second
}

// reconnect waits for the connection to come back.
func (r *runner) reconnect(ctx context.Context, limit time.Duration) {
	for end := time.Now().Add(limit); !r.js.Conn().IsConnected() && time.Now().Before(end); {
		if sleep(ctx, 50*time.Millisecond) != nil {
			return
		}
	}
}

// undoStaged deletes the stream if it's the one that this run staged. An error
// says what is left.
func (r *runner) undoStaged(ctx context.Context) error {
	if !r.begun {
		return nil
	}
	r.reconnect(ctx, time.Minute)
	if !r.ended {
		_ = r.outlast(ctx) // ctx says so below
	}
	deadline := time.Now().Add(r.lookFor())
	absent := false
	for {
		info, err := r.js.StreamInfo(ctx, r.name)
		var m marker
		if err == nil {
			m = markerOf(info.Config)
		}
		absent = false
		switch {
		case err == nil && m.ID != "" && m.ID != r.p.RestoreID:
			return nil // another restore's: ours has gone
		case err == nil && m.ID == "":
			return fmt.Errorf("stream %q doesn't bear our marker: an application may have taken it over; look at it before you remove it", r.name)
		case err == nil:
			return r.deleteOurs(ctx)
		case jsapi.IsCode(err, jsapi.CodeStreamNotFound):
			var ghost bool
			if ghost, err = r.assigned(ctx); ghost {
				return r.deleteOurs(ctx)
			}
			absent = err == nil
		}
		if time.Now().After(deadline) {
			if absent {
				return nil
			}
			return fmt.Errorf("whether the staged stream %q still exists couldn't be found out (%w); run the same restore again, or remove it by `nats stream rm %s`", r.name, err, r.name)
		}
		if err := sleep(ctx, 300*time.Millisecond); err != nil {
			return fmt.Errorf("the staged stream %q may be left; run the same restore again to remove it", r.name)
		}
	}
}

// assigned reports whether the stream that this run stages is assigned to servers
// of the cluster that don't have it: what a restore leaves that failed early. Its
// name stays taken. It shows only in lists, as missing.
func (r *runner) assigned(ctx context.Context) (bool, error) {
	filter := r.p.private()
	if c, _ := parseConfig(r.p.Config); c.Mirror != nil {
		filter = ""
	}
	list, err := r.js.StreamsOn(ctx, filter)
	return err == nil && slices.Contains(list.Missing, r.name), err
}

func (r *runner) deleteOurs(ctx context.Context) error {
	if err := r.delete(ctx); err != nil {
		return fmt.Errorf("the staged stream %q couldn't be removed (%w); run the same restore again, or remove it by `nats stream rm %s`", r.name, err, r.name)
	}
	return nil
}
