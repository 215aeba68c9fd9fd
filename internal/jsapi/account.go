package jsapi

import (
	"context"
	"slices"

	"github.com/nats-io/nats.go"

	"github.com/jetkeep/jetkeep/internal/subject"
)

// AccountInfo is what an account uses of JetStream, and what it may.
type AccountInfo struct {
	// Tier sums up all tiers. With tiers its Limits say nothing.
	Tier
	Domain string `json:"domain,omitempty"`
	API    struct {
		// Level is the API level of the server that answered; 0 before 2.11.
		Level  int    `json:"level"`
		Total  uint64 `json:"total"`
		Errors uint64 `json:"errors"`
	} `json:"api"`
	// Tiers by name ("R1", "R3"), if the account has any.
	Tiers map[string]Tier `json:"tiers,omitempty"`
}

// Tier is the usage and the limits of one tier. Sizes are in bytes, over all
// replicas.
type Tier struct {
	Memory          uint64 `json:"memory"`
	Storage         uint64 `json:"storage"`
	ReservedMemory  uint64 `json:"reserved_memory"`
	ReservedStorage uint64 `json:"reserved_storage"`
	Streams         int    `json:"streams"`
	Consumers       int    `json:"consumers"`
	Limits          Limits `json:"limits"`
}

// Limits of an account or tier. -1 is unlimited; so is 0 for the two limits of
// a single stream.
type Limits struct {
	MaxMemory             int64 `json:"max_memory"`
	MaxStorage            int64 `json:"max_storage"`
	MaxStreams            int   `json:"max_streams"`
	MaxConsumers          int   `json:"max_consumers"`
	MaxAckPending         int   `json:"max_ack_pending"`
	MemoryMaxStreamBytes  int64 `json:"memory_max_stream_bytes"`
	StorageMaxStreamBytes int64 `json:"storage_max_stream_bytes"`
	MaxBytesRequired      bool  `json:"max_bytes_required"`
}

// AccountInfo asks for the account's usage and limits.
func (c *Client) AccountInfo(ctx context.Context) (*AccountInfo, error) {
	var info AccountInfo
	if err := c.Request(ctx, "INFO", nil, &info); err != nil {
		return nil, err
	}
	return &info, nil
}

// UserInfo is what a server says of a connection's user.
type UserInfo struct {
	Account string `json:"account"`
	User    string `json:"user"`
	// Permissions are nil when everything is allowed.
	Permissions *struct {
		Publish   *Permission `json:"publish"`
		Subscribe *Permission `json:"subscribe"`
	} `json:"permissions"`
}

// Permission lists subjects; nil allows all of them. Without an allow list
// everything is allowed that isn't denied.
type Permission struct {
	Allow []string `json:"allow"`
	Deny  []string `json:"deny"`
}

// Allows reports whether a subject may be used.
func (p *Permission) Allows(s string) bool {
	if p == nil {
		return true
	}
	matches := func(filter string) bool { return subject.Match(filter, s) }
	return (len(p.Allow) == 0 || slices.ContainsFunc(p.Allow, matches)) && !slices.ContainsFunc(p.Deny, matches)
}

// UserInfo asks who the connection's user is and what it may do. This isn't part
// of the JetStream API, and a user may lack the permission for it.
func (c *Client) UserInfo(ctx context.Context) (*UserInfo, error) {
	const call = "$SYS.REQ.USER.INFO"
	answer, err := c.exchange(ctx, nats.NewMsg(call))
	if err != nil {
		return nil, err
	}
	var resp struct {
		Data UserInfo `json:"data"`
	}
	if err := decode(answer, call, &resp); err != nil {
		return nil, err
	}
	return &resp.Data, nil
}
