package restore

import (
	"sync/atomic"
	"time"

	"github.com/jetkeep/jetkeep/format"
)

// meter reports progress of one phase from a goroutine of its own.
type meter struct {
	bytes, messages atomic.Int64
	quit            chan struct{}
}

func newMeter(report func(Progress), phase Phase, total int64) *meter {
	m := &meter{quit: make(chan struct{})}
	if report == nil {
		return m
	}
	say := func() {
		report(Progress{Phase: phase, Bytes: m.bytes.Load(), Total: total, Messages: uint64(m.messages.Load())})
	}
	say()
	go func() {
		tick := time.NewTicker(200 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-m.quit:
				return
			case <-tick.C:
				say()
			}
		}
	}()
	return m
}

func (m *meter) block(b *format.Block) error {
	m.bytes.Add(int64(len(b.Data)))
	return nil
}

func (m *meter) stop() { close(m.quit) }
