package restore_test

import (
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/jetkeep/jetkeep/internal/jsapi"
	"github.com/jetkeep/jetkeep/internal/testnats"
	"github.com/jetkeep/jetkeep/restore"
)

// T6: a server that doesn't say how a restore ended is waited for with progress
// and up to a limit, and then what exists is looked at and removed.
func TestSilenceAfterTheLastChunkHasALimit(t *testing.T) {
	t.Parallel()
	s := testnats.Single(t)
	direct := s.Connect(t)
	stream := testnats.Fill(t, direct, testnats.FillOptions{Messages: 50})
	b := take(t, direct, stream)
	remove(t, direct, stream)

	link := testnats.Proxy(t, s.HostPort(), testnats.ProxyOptions{})
	nc, err := nats.Connect(link.URL())
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	var waited atomic.Int32
	p, err := restore.Prepare(ctx(t), nc, b, restore.Options{
		FinishTimeout: 2 * time.Second, IdleTimeout: 20 * time.Second,
		Progress: func(p restore.Progress) {
			switch p.Phase {
			case restore.PhaseFinish:
				waited.Add(1)
				link.Stall()
			case restore.PhaseRollBack:
				link.Resume()
			}
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	_, err = restore.Run(ctx(t), nc, p)
	var undone *restore.TransferError
	if !errors.Is(err, restore.ErrNoAnswer) || !errors.As(err, &undone) {
		t.Fatalf("after %v: %v", time.Since(began), err)
	}
	if n := waited.Load(); n < 3 {
		t.Errorf("progress was reported %d times while waiting", n)
	}
	if _, err := client(t, direct).StreamInfo(ctx(t), stream); !jsapi.IsCode(err, jsapi.CodeStreamNotFound) {
		t.Errorf("what is left: %v", err)
	}
	if _, _, err := run(t, direct, b, restore.Options{}); err != nil {
		t.Errorf("the next try: %v", err)
	}
}
