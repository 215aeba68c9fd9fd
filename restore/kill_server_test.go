package restore_test

import (
	"errors"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/jetkeep/jetkeep/internal/testnats"
	"github.com/jetkeep/jetkeep/restore"
)

// TestKilledServer: kill -9 of the server in each phase of a restore. It's
// started again; the restore goes on, or cleans up, or says what is left; and the
// next one is exact.
func TestKilledServer(t *testing.T) {
	t.Parallel()
	s := testnats.Process(t, testnats.ServerBinary(t, "2.15.3"))
	nc := s.Connect(t)
	stream := testnats.Fill(t, nc, testnats.FillOptions{Messages: 300, Size: 24 << 10, Consumers: true, Configure: func(c *jetstream.StreamConfig) {
		c.Metadata = map[string]string{"k": "v"}
	}})
	before := look(t, nc, stream)
	home, b := inMemory(t, nc, stream)
	for _, when := range []restore.Phase{restore.PhaseSend, restore.PhaseFinish, restore.PhaseCheck, restore.PhaseActivate} {
		t.Run(string(when), func(t *testing.T) {
			remove2(t, nc, stream)
			crash := func() {
				s.Kill()
				s.Start(t)
			}
			o := restore.Options{RequestTimeout: 2 * time.Second, ChunkSize: 32 << 10, WindowSize: 128 << 10, Progress: inPhase(when, crash)}
			if when == restore.PhaseSend {
				o.Progress = nil
			}
			far := must(nats.Connect(s.URL(), nats.MaxReconnects(-1), nats.ReconnectWait(50*time.Millisecond)))(t)
			defer far.Close()
			p := prepare(t, far, b, o)
			if when == restore.PhaseSend {
				halfWay(home, crash)
			}
			_, err := carryOut(t, far, p)
			home.read = nil
			t.Logf("the run ended with: %v", err)
			var failed *restore.TransferError
			var left *restore.LeftBehindError
			switch {
			case err == nil || errors.As(err, &failed):
			case errors.As(err, &left):
				t.Logf("left behind: %s", left.What)
			default:
				t.Errorf("unexpected: %v", err)
			}
			if errors.As(err, &failed) {
				absent(t, nc, stream)
			}
			if err != nil {
				mustRun(t, nc, b, restore.Options{FullCheck: true})
			}
			isThere(t, nc, stream, before)
			greenAgain(t, s.Connect(t, nats.UserInfo(testnats.SystemUser, testnats.SystemUser)), "PING")
		})
	}
}
