package restore_test

import (
	"strings"
	"testing"

	"github.com/jetkeep/jetkeep/internal/testnats"
	"github.com/jetkeep/jetkeep/restore"
)

// found returns a plan's findings of one check.
func found(p *restore.Plan, check string) (out []restore.Finding) {
	for _, f := range p.Findings {
		if f.Check == check {
			out = append(out, f)
		}
	}
	return out
}

func TestSystemAccountShowsPeers(t *testing.T) {
	t.Parallel()
	s := testnats.Single(t)
	nc := s.Connect(t)
	stream := testnats.Fill(t, nc, testnats.FillOptions{Messages: 20})
	b := take(t, nc, stream)
	remove(t, nc, stream)

	plain, err := restore.Prepare(ctx(t), nc, b, restore.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if f := found(plain, "server-room"); len(f) != 1 || f[0].Level != restore.Unknown {
		t.Errorf("without the system account: %+v", f)
	}
	system := s.ConnectSystem(t)
	seen, err := restore.Prepare(ctx(t), nc, b, restore.Options{System: system})
	if err != nil {
		t.Fatal(err)
	}
	if f := found(seen, "peers"); len(f) != 1 || f[0].Level != restore.OK || !strings.Contains(f[0].Text, "1 servers") {
		t.Errorf("with the system account: %+v", f)
	}
	if f := found(seen, "server-room"); len(f) != 0 {
		t.Errorf("still unknown: %+v", f)
	}
	if _, err := restore.Prepare(ctx(t), nc, b, restore.Options{System: nc}); err == nil || !strings.Contains(err.Error(), "system account") {
		t.Errorf("a plain connection as the system account: %v", err)
	}
}

func TestPeersWithoutRoomAreRefused(t *testing.T) {
	t.Parallel()
	s := testnats.Single(t)
	nc := s.Connect(t)
	stream := testnats.Fill(t, nc, testnats.FillOptions{Messages: 200, Size: 4096})
	b := take(t, nc, stream)
	small := testnats.Single(t, testnats.Options{MaxStore: 64 << 10})
	p, err := restore.Prepare(ctx(t), small.Connect(t), b, restore.Options{System: small.ConnectSystem(t)})
	if err != nil {
		t.Fatal(err)
	}
	if f := found(p, "peers"); len(f) != 1 || f[0].Level != restore.Refusal || !strings.Contains(f[0].Text, "have less left") {
		t.Errorf("%+v", p.Findings)
	}
}
