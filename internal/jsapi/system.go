package jsapi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
)

// ServerStat is what a server says of its JetStream to the system account.
// Sizes are in bytes; the reserved ones sum up max_bytes.
type ServerStat struct {
	Name, Cluster, Domain, Version  string
	Tags                            []string
	Memory, Storage                 uint64
	ReservedMemory, ReservedStorage uint64
	MaxMemory, MaxStorage           int64
}

// quiet is how long no further server has answered when all have.
const quiet = 750 * time.Millisecond

// Servers asks all servers that have JetStream enabled, over a connection of
// the system account.
func Servers(ctx context.Context, system *nats.Conn) ([]ServerStat, error) {
	const ping = "$SYS.REQ.SERVER.PING.JSZ"
	sub, err := system.SubscribeSync(system.NewInbox())
	if err != nil {
		return nil, err
	}
	defer func() { _ = sub.Unsubscribe() }()
	if err := system.PublishRequest(ping, sub.Subject, nil); err != nil {
		return nil, fmt.Errorf("%s: %w", ping, err)
	}
	var all []ServerStat
	for wait := defaultTimeout; ; wait = quiet {
		rctx, cancel := context.WithTimeout(ctx, wait)
		m, err := sub.NextMsgWithContext(rctx)
		cancel()
		switch {
		case ctx.Err() != nil:
			return nil, context.Cause(ctx)
		case errors.Is(err, nats.ErrNoResponders) || err != nil && len(all) == 0:
			return nil, fmt.Errorf("no server answers %s: is this a connection of the system account? (%w)", ping, ErrNoResponders)
		case err != nil:
			slices.SortFunc(all, func(a, b ServerStat) int { return strings.Compare(a.Name, b.Name) })
			return all, nil
		}
		s, ok, err := parseServerStat(m.Data)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", ping, err)
		}
		if ok {
			all = append(all, s)
		}
	}
}

func parseServerStat(data []byte) (s ServerStat, ok bool, err error) {
	var a struct {
		Server struct {
			Name    string   `json:"name"`
			Cluster string   `json:"cluster"`
			Domain  string   `json:"domain"`
			Version string   `json:"ver"`
			Tags    []string `json:"tags"`
		} `json:"server"`
		Data struct {
			Disabled        bool   `json:"disabled"`
			Memory          uint64 `json:"memory"`
			Storage         uint64 `json:"storage"`
			ReservedMemory  uint64 `json:"reserved_memory"`
			ReservedStorage uint64 `json:"reserved_storage"`
			Config          struct {
				MaxMemory  int64 `json:"max_memory"`
				MaxStorage int64 `json:"max_storage"`
			} `json:"config"`
		} `json:"data"`
	}
	if err := json.Unmarshal(data, &a); err != nil {
		return s, false, err
	}
	return ServerStat{
		Name: a.Server.Name, Cluster: a.Server.Cluster, Domain: a.Server.Domain, Version: a.Server.Version, Tags: a.Server.Tags,
		Memory: a.Data.Memory, Storage: a.Data.Storage,
		ReservedMemory: a.Data.ReservedMemory, ReservedStorage: a.Data.ReservedStorage,
		MaxMemory: a.Data.Config.MaxMemory, MaxStorage: a.Data.Config.MaxStorage,
	}, !a.Data.Disabled, nil
}
