package restore_test

import (
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/jetkeep/jetkeep/internal/testnats"
	"github.com/jetkeep/jetkeep/restore"
)

// setOwner makes a staged stream that of another process.
func setOwner(t testing.TB, nc *nats.Conn, stream, owner string) {
	t.Helper()
	metadata := testnats.StreamConfig(t, nc, stream)["metadata"].(map[string]any)
	metadata["jetkeep.restore.owner"] = owner
	update(t, nc, stream, map[string]any{"metadata": metadata})
}

// A restore that was killed at any step is recognised by the next one: before
// its activation it's removed, from then on it's finished.
func TestInterruptedRestores(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ step, asleep int }{
		"staged":                   {2, 0},
		"before the consumers":     {3, 0},
		"some consumers are awake": {4, 3},
		"before the marker goes":   {4, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			nc := testnats.Single(t).Connect(t)
			stream := testnats.Fill(t, nc, testnats.FillOptions{Messages: 60, Consumers: true})
			want := look(t, nc, stream)
			b := take(t, nc, stream)
			other := take(t, nc, stream)
			remove(t, nc, stream)
			check(t, restore.RunUntil(ctx(t), nc, prepare(t, nc, b, restore.Options{}), c.step, c.asleep))

			if c.step == 2 {
				if _, err := tryPublish(t, nc, stream+".new", "x"); !errors.Is(err, nats.ErrNoResponders) && !strings.Contains(fmt.Sprint(err), "no response") {
					t.Errorf("a staged stream takes publishes: %v", err)
				}
			} else {
				refused(t, nc, other, restore.Options{}, "target", stream, "@"+b.Manifest.ID)
			}
			p, res := mustRun(t, nc, b, restore.Options{})
			if c.step == 2 {
				if p.Target.Existing != restore.TargetAbandoned || res.Finished {
					t.Errorf("%+v %+v", p.Target, res)
				}
				finding(t, p, "target", restore.Warning, "interrupted", "removed")
			} else {
				if p.Target.Existing != restore.TargetActivating || !res.Finished || res.Sent != 0 {
					t.Errorf("%+v %+v", p.Target, res)
				}
				finding(t, p, "target", restore.Warning, "finished")
			}
			same(t, stream, want, look(t, nc, stream))
			refused(t, nc, b, restore.Options{}, "target", "not empty")
		})
	}
}

// What another process is still restoring is left alone.
func TestRunningRestores(t *testing.T) {
	t.Parallel()
	nc := testnats.Single(t).Connect(t)
	stream := testnats.Fill(t, nc, testnats.FillOptions{Messages: 60})
	want := look(t, nc, stream)
	b := take(t, nc, stream)
	remove(t, nc, stream)
	check(t, restore.RunUntil(ctx(t), nc, prepare(t, nc, b, restore.Options{}), 2, 0))
	child := exec.Command("sleep", "60")
	if err := child.Start(); err != nil {
		t.Skip(err)
	}
	machine, _, _ := strings.Cut(testnats.StreamConfig(t, nc, stream)["metadata"].(map[string]any)["jetkeep.restore.owner"].(string), "/")
	setOwner(t, nc, stream, fmt.Sprintf("%s/%d", machine, child.Process.Pid))
	refused(t, nc, b, restore.Options{}, "target", "another run", fmt.Sprint("process ", child.Process.Pid))

	check(t, child.Process.Kill())
	_ = child.Wait()
	prepare(t, nc, b, restore.Options{})

	// From another machine it's judged by whether it grows.
	setOwner(t, nc, stream, "elsewhere/1")
	private := testnats.StreamConfig(t, nc, stream)["subjects"].([]any)[0].(string)
	stop := make(chan struct{})
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		for {
			select {
			case <-stop:
				return
			default:
				_, _ = nc.Request(private, nil, 1e9)
			}
		}
	}()
	p := prepare(t, nc, b, restore.Options{})
	close(stop)
	<-stopped
	finding(t, p, "target", restore.Refusal, "another run", "growing")
	mustRun(t, nc, b, restore.Options{})
	same(t, stream, want, look(t, nc, stream))
}

// Two restores of one process don't remove each other's stream.
func TestTwoRestoresInOneProcess(t *testing.T) {
	t.Parallel()
	nc := testnats.Single(t).Connect(t)
	stream := testnats.Fill(t, nc, testnats.FillOptions{Messages: 60})
	b := take(t, nc, stream)
	remove(t, nc, stream)
	var second *restore.Plan
	p := must(restore.Prepare(ctx(t), nc, b, restore.Options{Progress: func(s restore.Progress) {
		if s.Phase == restore.PhaseCheck && second == nil {
			second = prepare(t, nc, b, restore.Options{})
		}
	}}))(t)
	must(restore.Run(ctx(t), nc, p))(t)
	finding(t, second, "target", restore.Refusal, "another run")
}

// An abandoned stream that has been taken over, or finished, between plan and
// run isn't removed.
func TestAbandonedAndThenTaken(t *testing.T) {
	t.Parallel()
	nc := testnats.Single(t).Connect(t)
	stream := testnats.Fill(t, nc, testnats.FillOptions{Messages: 60})
	b := take(t, nc, stream)
	remove(t, nc, stream)
	check(t, restore.RunUntil(ctx(t), nc, prepare(t, nc, b, restore.Options{}), 2, 0))
	p := prepare(t, nc, b, restore.Options{})
	update(t, nc, stream, map[string]any{"metadata": map[string]string{}, "subjects": []string{stream + ".>"}})
	before := everything(t, nc)
	if _, err := restore.Run(ctx(t), nc, p); !errors.Is(err, restore.ErrTakenOver) {
		t.Error(err)
	}
	same(t, "the account", before, everything(t, nc))
}
