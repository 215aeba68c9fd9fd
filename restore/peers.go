package restore

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/jetkeep/jetkeep/internal/jsapi"
)

// checkPeers looks at what only the system account shows: the servers' versions,
// tags and room. Without it all of that is unknown, and the server says in its
// answer to the restore request whether it finds enough peers.
func (p *planner) checkPeers(ctx context.Context, c config) error {
	if p.o.System == nil {
		p.peersUnknown(c)
		return nil
	}
	all, err := jsapi.Servers(ctx, p.o.System)
	if err != nil {
		return fmt.Errorf("system account: %w", err)
	}
	eligible := slices.DeleteFunc(all, func(s jsapi.ServerStat) bool { return !p.eligible(s, c) })
	var old, full []string
	for _, s := range eligible {
		if !versionAtLeast(s.Version, 2, 15) {
			old = append(old, s.Name+" ("+s.Version+")")
		}
		if need, room := p.need(c), room(s, c); need > room {
			full = append(full, fmt.Sprintf("%s (%d)", s.Name, room))
		}
	}
	if len(old) > 0 {
		p.find("peer-version", Refusal, "servers too old for a V2 archive: %s", strings.Join(old, ", "))
	}
	what := fmt.Sprintf("%d servers have JetStream and fit the placement, %d are needed", len(eligible), c.Replicas)
	switch {
	case len(eligible) < c.Replicas:
		p.find("peers", Refusal, "%s", what)
	case len(eligible)-len(full) < c.Replicas:
		p.find("peers", Refusal, "%s; %d bytes are needed on each, and these have less left: %s", what, p.need(c), strings.Join(full, ", "))
	default:
		p.find("peers", OK, "%s, and %d of them have the %d bytes to spare", what, len(eligible)-len(full), p.need(c))
	}
	return nil
}

func (p *planner) peersUnknown(c config) {
	if p.Target.Cluster != "" {
		p.find("peers", Unknown, "whether cluster %q has %d servers of 2.15 or later that fit the placement, only the system account shows (--system-context); the server says when the restore begins", p.Target.Cluster, c.Replicas)
	}
	p.find("server-room", Unknown, "how much room the servers' disk and memory have, only the system account shows (--system-context); a restoring server needs memory of the order of the data, %d bytes", p.scan.bytes)
}

// eligible tells whether a server could hold a replica.
func (p *planner) eligible(s jsapi.ServerStat, c config) bool {
	cluster := p.Target.Cluster
	if c.Placement != nil && c.Placement.Cluster != "" && p.Target.Cluster != "" {
		cluster = c.Placement.Cluster
	}
	if s.Domain != p.Target.Domain || s.Cluster != cluster {
		return false
	}
	if c.Placement == nil {
		return true
	}
	for _, tag := range c.Placement.Tags {
		if !slices.ContainsFunc(s.Tags, func(t string) bool { return strings.EqualFold(t, tag) }) {
			return false
		}
	}
	return true
}

// need is what one replica takes, or reserves.
func (p *planner) need(c config) uint64 {
	return max(p.scan.bytes, uint64(max(c.MaxBytes, 0)))
}

// room is what a server has left.
func room(s jsapi.ServerStat, c config) uint64 {
	most, used := s.MaxStorage, max(s.Storage, s.ReservedStorage)
	if c.Storage == "memory" {
		most, used = s.MaxMemory, max(s.Memory, s.ReservedMemory)
	}
	return uint64(max(most, 0)) - min(used, uint64(max(most, 0)))
}
