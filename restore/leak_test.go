package restore_test

import (
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/jetkeep/jetkeep/internal/testnats"
	"github.com/jetkeep/jetkeep/restore"
)

// Neither goroutines nor subscriptions are left, after success and after
// failure; and no progress is reported after Run has returned, nor twice at once.
func TestNothingRunsOn(t *testing.T) { // not in parallel: it counts goroutines
	nc := testnats.Single(t).Connect(t)
	stream := testnats.Fill(t, nc, testnats.FillOptions{Messages: 60})
	h, b := inMemory(t, nc, stream)
	good := h.objects[h.archive()]
	bad := append([]byte{}, good...)
	bad[len(bad)-5] ^= 1
	var reporting, over atomic.Bool
	round := func(archive []byte) {
		remove(t, nc, stream)
		h.objects[h.archive()] = good
		over.Store(false)
		p := must(restore.Prepare(ctx(t), nc, b, restore.Options{FullCheck: true, Progress: func(restore.Progress) {
			if !reporting.CompareAndSwap(false, true) {
				t.Error("two reports at once")
			}
			if over.Load() {
				t.Error("a report after the end")
			}
			reporting.Store(false)
		}}))(t)
		h.objects[h.archive()] = archive
		_, err := restore.Run(ctx(t), nc, p)
		over.Store(true)
		var failed *restore.TransferError
		if err != nil && !errors.As(err, &failed) {
			t.Fatal(err)
		}
		if err != nil { // as before
			h.objects[h.archive()] = good
			mustRun(t, nc, b, restore.Options{})
		}
	}
	round(good)
	before, subs := runtime.NumGoroutine(), nc.NumSubscriptions()
	for range 3 {
		round(good)
		round(bad)
	}
	testnats.Eventually(t, func() error {
		if n := nc.NumSubscriptions(); n > subs {
			return fmt.Errorf("%d subscriptions, %d before", n, subs)
		}
		if n := runtime.NumGoroutine(); n > before+4 {
			buf := make([]byte, 1<<20)
			buf = buf[:runtime.Stack(buf, true)]
			if strings.Contains(string(buf), "jetkeep/restore.") || strings.Contains(string(buf), "jetkeep/format.") {
				return fmt.Errorf("%d goroutines, %d before:\n%s", n, before, buf)
			}
		}
		return nil
	})
}
