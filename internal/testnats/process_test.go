package testnats

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestChildProcessIsKilledPausedAndRestarted(t *testing.T) {
	c := Process(t, ServerBinary(t, "2.15.3"), Options{SyncInterval: time.Second})
	nc := c.Connect(t)
	stream := Fill(t, nc, FillOptions{Messages: 50})
	before := Dump(t, nc, stream)
	c.Pause(t)
	if _, err := nc.Request("$JS.API.INFO", nil, 100*time.Millisecond); err == nil {
		t.Error("a paused server answered")
	}
	c.Continue(t)
	if d := cmp.Diff(before, Dump(t, nc, stream)); d != "" {
		t.Error(d)
	}
	c.Kill()
	c.Start(t)
	if d := cmp.Diff(before, Dump(t, c.Connect(t), stream)); d != "" {
		t.Error(d)
	}
	c.Pause(t)
	c.Stop(t)
}

func TestOlderServers(t *testing.T) {
	for _, version := range []string{"2.12.15", "2.14.9"} {
		t.Run(version, func(t *testing.T) {
			nc := Process(t, ServerBinary(t, version), Options{Domain: "old"}).Connect(t)
			if got := nc.ConnectedServerVersion(); got != version {
				t.Errorf("version %s", got)
			}
			Dump(t, nc, Fill(t, nc, FillOptions{TTL: time.Hour, Consumers: true}))
		})
	}
}

func TestPeer(t *testing.T) {
	out, err := exec.Command(Peer(t), "--version").CombinedOutput()
	if err != nil || !strings.Contains(string(out), PeerVersion) {
		t.Errorf("%s, %v", out, err)
	}
}

func TestSmallDiskIsFull(t *testing.T) {
	dir := SmallDisk(t, 1<<20)
	err := os.WriteFile(filepath.Join(dir, "x"), make([]byte, 2<<20), 0o600)
	if !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("got %v", err)
	}
}
