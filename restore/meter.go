package restore

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/jetkeep/jetkeep/format"
)

// meter reports progress: at the beginning of each phase, and now and then from
// a goroutine of its own. It never reports twice at once, nor after stop.
type meter struct {
	report          func(Progress)
	bytes, messages atomic.Int64

	mu    sync.Mutex // while reporting
	phase Phase
	total int64
	note  string
	quit  chan struct{}
	done  sync.WaitGroup
}

// newMeter starts a meter; report may be nil. Stop it in the end.
func newMeter(report func(Progress)) *meter {
	m := &meter{report: report, quit: make(chan struct{})}
	if report != nil {
		m.done.Go(m.run)
	}
	return m
}

// enter begins a phase; total is 0 where it isn't known.
func (m *meter) enter(phase Phase, total int64) {
	if m.report == nil {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.phase, m.total, m.note = phase, total, ""
	m.bytes.Store(0)
	m.messages.Store(0)
	m.say()
}

// wait says what the phase waits for, "" nothing any more.
func (m *meter) wait(what string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.note = what
}

// say reports; m.mu is held.
func (m *meter) say() {
	m.report(Progress{Phase: m.phase, Bytes: m.bytes.Load(), Total: m.total, Messages: uint64(m.messages.Load()), Waiting: m.note})
}

func (m *meter) run() {
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-m.quit:
			return
		case <-tick.C:
			m.mu.Lock()
			if m.phase != "" {
				m.say()
			}
			m.mu.Unlock()
		}
	}
}

func (m *meter) block(b *format.Block) error {
	m.bytes.Add(int64(len(b.Data)))
	return nil
}

func (m *meter) message(*format.Message) error {
	m.messages.Add(1)
	return nil
}

// stop ends the reports.
func (m *meter) stop() {
	close(m.quit)
	m.done.Wait()
}
