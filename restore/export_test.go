package restore

import (
	"context"
	"io"

	"github.com/nats-io/nats.go"

	"github.com/jetkeep/jetkeep/internal/jsapi"
)

// RunUnstaged sends a plan's archive as it is, with its own configuration, as
// the nats CLI does.
func RunUnstaged(ctx context.Context, nc *nats.Conn, p *Plan) error {
	js, err := jsapi.New(nc, jsapi.Options{})
	if err != nil {
		return err
	}
	defer js.Close()
	subject, err := js.StartRestore(ctx, p.Target.Stream, p.Config, p.file.State)
	if err != nil {
		return err
	}
	archive, err := p.backup.Archive(ctx)
	if err != nil {
		return err
	}
	defer archive.Close()
	s, err := newSender(ctx, js, subject, p.o)
	if err != nil {
		return err
	}
	defer s.close()
	if _, err := io.Copy(s, archive); err != nil {
		return err
	}
	return s.finish(p.o.FinishTimeout)
}

// RunUntil carries a plan out and stops, as if killed, before one of the steps
// of its activation: 2 leaves a staged stream, 3 one with its configuration, 4
// one whose consumers are awake but for those left asleep.
func RunUntil(ctx context.Context, nc *nats.Conn, p *Plan, step, asleep int) error {
	js, err := jsapi.New(nc, jsapi.Options{})
	if err != nil {
		return err
	}
	defer js.Close()
	r := &runner{js: js, p: p, name: p.Target.Stream, meter: newMeter(nil)}
	defer r.meter.stop()
	if err := r.makeRoom(ctx); err != nil {
		return err
	}
	if err := r.load(ctx); err != nil || step <= 2 {
		return err
	}
	if _, err := js.UpdateStream(ctx, p.mark(p.Config, stateActivating)); err != nil || step <= 3 {
		return err
	}
	list, err := js.Consumers(ctx, r.name)
	if err != nil {
		return err
	}
	for _, info := range list.Consumers[asleep:] {
		cfg, until, _, err := unstaged(info)
		if err == nil {
			err = r.wake(ctx, info.Name, cfg, until)
		}
		if err != nil {
			return err
		}
	}
	return nil
}
