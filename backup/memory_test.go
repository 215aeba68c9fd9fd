package backup_test

import (
	"os"
	"runtime"
	"testing"
	"time"

	"github.com/jetkeep/jetkeep/backup"
	"github.com/jetkeep/jetkeep/internal/testnats"
)

// TestMemory: what a backup keeps in memory doesn't grow with the stream. The
// server is another process, so that all of the heap is ours. JETKEEP_SOAK=1
// takes 20 times as much.
func TestMemory(t *testing.T) {
	s := testnats.Process(t, testnats.ServerBinary(t, "2.15.3"))
	nc := s.Connect(t)
	messages := 8000 // of 16 KiB
	if os.Getenv("JETKEEP_SOAK") == "1" {
		messages *= 20
	}
	peak := func(n int) uint64 {
		stream := fill(t, nc, n)
		most := peakHeap(func() {
			take(t, nc, newRepo(t), backup.Options{Stream: stream})
		})
		check(t, newJetStream(t, nc).DeleteStream(t.Context(), stream))
		return most
	}
	few, many := peak(messages/8), peak(messages)
	t.Logf("peak heap: %d MiB for %d MiB, %d MiB for %d MiB", few>>20, messages/8*16>>10, many>>20, messages*16>>10)
	// The bound is that of window, blocks and garbage, and well below the data;
	// the small one may end before it gets there.
	if bound := uint64(60 << 20); many > bound {
		t.Errorf("it took %d bytes of heap for eight times the messages, %d before", many, few)
	}
}

// peakHeap is how much the heap grows, garbage included, while f runs.
func peakHeap(f func()) uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	base, peak := m.HeapInuse, m.HeapInuse
	done, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for {
			select {
			case <-done:
				return
			case <-time.After(10 * time.Millisecond):
			}
			var m runtime.MemStats
			runtime.ReadMemStats(&m)
			peak = max(peak, m.HeapInuse)
		}
	}()
	f()
	close(done)
	<-ended
	return peak - base
}
