package jsapi

import (
	"context"
	"encoding/json"
	"time"

	"github.com/jetkeep/jetkeep/format"
)

// StreamInfo is what the server says about a stream.
type StreamInfo struct {
	// Config is the configuration with every field that the server sent.
	Config  format.Object `json:"config"`
	Created time.Time     `json:"created"`
	State   format.State  `json:"state"`
	Domain  string        `json:"domain,omitempty"`
	// Cluster may be nil on a single server; from 2.15.3 on it has a leader there,
	// too.
	Cluster *ClusterInfo  `json:"cluster,omitempty"`
	Mirror  *SourceInfo   `json:"mirror,omitempty"`
	Sources []*SourceInfo `json:"sources,omitempty"`
	// TimeStamp is the server's time of the answer.
	TimeStamp time.Time `json:"ts"`
}

// Name returns the stream's name.
func (i *StreamInfo) Name() string {
	var name string
	_ = i.Config.Get("name", &name) // a server always sends a string
	return name
}

// ClusterInfo says which servers hold a stream or consumer.
type ClusterInfo struct {
	Name      string `json:"name,omitempty"`
	RaftGroup string `json:"raft_group,omitempty"`
	Leader    string `json:"leader,omitempty"`
	// Replicas are the followers.
	Replicas []*Replica `json:"replicas,omitempty"`
}

// Replica is a follower of a stream or consumer.
type Replica struct {
	Name    string        `json:"name"`
	Current bool          `json:"current"`
	Offline bool          `json:"offline,omitempty"`
	Active  time.Duration `json:"active"`
	Lag     uint64        `json:"lag,omitempty"`
	// Pending says that the peer is coming or going.
	Pending bool `json:"pending,omitempty"`
}

// SourceInfo is the state of a mirror's or sourcing stream's origin.
type SourceInfo struct {
	Name     string `json:"name"`
	External *struct {
		API     string `json:"api"`
		Deliver string `json:"deliver"`
	} `json:"external,omitempty"`
	Lag uint64 `json:"lag"`
	Seq uint64 `json:"seq,omitempty"`
	// Active is how long ago the origin was heard; -1 for never.
	Active        time.Duration `json:"active"`
	FilterSubject string        `json:"filter_subject,omitempty"`
	Error         *Error        `json:"error,omitempty"`
}

// StreamList is the answer of Streams.
type StreamList struct {
	Streams []*StreamInfo
	// Missing streams exist and gave no answer; Offline holds the reasons of
	// those among them that this server version can't run.
	Missing []string
	Offline map[string]string
}

type page struct {
	Total  int `json:"total"`
	Offset int `json:"offset"`
	Limit  int `json:"limit"`
}

// StreamInfo asks for a stream.
func (c *Client) StreamInfo(ctx context.Context, name string) (*StreamInfo, error) {
	if err := checkToken("stream", name); err != nil {
		return nil, err
	}
	var info StreamInfo
	if err := c.Request(ctx, "STREAM.INFO."+name, nil, &info); err != nil {
		return nil, err
	}
	return &info, nil
}

// StreamSubjects returns the messages by subject of the subjects that match
// filter (">" for all of them). It takes memory for every subject.
func (c *Client) StreamSubjects(ctx context.Context, name, filter string) (map[string]uint64, error) {
	if err := checkToken("stream", name); err != nil {
		return nil, err
	}
	all := map[string]uint64{}
	for offset := 0; ; {
		req := struct {
			Filter string `json:"subjects_filter"`
			Offset int    `json:"offset,omitempty"`
		}{filter, offset}
		var resp struct {
			page
			State struct {
				Subjects map[string]uint64 `json:"subjects"`
			} `json:"state"`
		}
		if err := c.Request(ctx, "STREAM.INFO."+name, req, &resp); err != nil {
			return nil, err
		}
		for s, n := range resp.State.Subjects {
			all[s] = n
		}
		offset += len(resp.State.Subjects)
		if len(resp.State.Subjects) == 0 || offset >= resp.Total {
			return all, nil
		}
	}
}

// StreamDeleted returns the sequences between first and last that hold no
// message. The server sends them all at once, 7 bytes for each: look at
// State.NumDeleted first.
func (c *Client) StreamDeleted(ctx context.Context, name string) ([]uint64, error) {
	if err := checkToken("stream", name); err != nil {
		return nil, err
	}
	req := struct {
		Details bool `json:"deleted_details"`
	}{true}
	var resp struct {
		State struct {
			Deleted []uint64 `json:"deleted"`
		} `json:"state"`
	}
	if err := c.Request(ctx, "STREAM.INFO."+name, req, &resp); err != nil {
		return nil, err
	}
	return resp.State.Deleted, nil
}

// Streams returns all streams of the account, sorted by name.
func (c *Client) Streams(ctx context.Context) (*StreamList, error) {
	return c.StreamsOn(ctx, "")
}

// StreamsOn returns the streams that listen on a subject that matches filter, or
// all of them for "". In a cluster those that give no answer count by what they
// were assigned with.
func (c *Client) StreamsOn(ctx context.Context, filter string) (*StreamList, error) {
	list := &StreamList{Offline: map[string]string{}}
	seen := map[string]bool{}
	for offset := 0; ; {
		var resp struct {
			page
			Streams []*StreamInfo     `json:"streams"`
			Missing []string          `json:"missing"`
			Offline map[string]string `json:"offline"`
		}
		req := struct {
			Offset  int    `json:"offset"`
			Subject string `json:"subject,omitempty"`
		}{offset, filter}
		if err := c.Request(ctx, "STREAM.LIST", req, &resp); err != nil {
			return nil, err
		}
		for _, s := range resp.Streams {
			if !seen[s.Name()] {
				seen[s.Name()] = true
				list.Streams = append(list.Streams, s)
			}
		}
		for _, m := range resp.Missing {
			if !seen[m] {
				seen[m] = true
				list.Missing = append(list.Missing, m)
			}
		}
		for name, reason := range resp.Offline {
			list.Offline[name] = reason
		}
		n := len(resp.Streams) + len(resp.Missing)
		offset += n
		if n == 0 || offset >= resp.Total {
			return list, nil
		}
	}
}

// request is what asks for the page that begins at the offset.
func (p page) request() any {
	return struct {
		Offset int `json:"offset"`
	}{p.Offset}
}

// StreamNames returns the names of the streams that listen on a subject that
// matches subjectFilter, or of all of them for "".
func (c *Client) StreamNames(ctx context.Context, subjectFilter string) ([]string, error) {
	var names []string
	for {
		req := struct {
			Offset  int    `json:"offset"`
			Subject string `json:"subject,omitempty"`
		}{len(names), subjectFilter}
		var resp struct {
			page
			Streams []string `json:"streams"`
		}
		if err := c.Request(ctx, "STREAM.NAMES", req, &resp); err != nil {
			return nil, err
		}
		names = append(names, resp.Streams...)
		if len(resp.Streams) == 0 || len(names) >= resp.Total {
			return names, nil
		}
	}
}

// CreateStream creates the stream that cfg describes. The server accepts the
// same configuration a second time. A configuration whose metadata names a
// required API level is refused by a server below it (10185).
func (c *Client) CreateStream(ctx context.Context, cfg format.Object) (*StreamInfo, error) {
	return c.putStream(ctx, "STREAM.CREATE.", cfg)
}

// UpdateStream changes the stream that cfg names to what cfg says.
func (c *Client) UpdateStream(ctx context.Context, cfg format.Object) (*StreamInfo, error) {
	return c.putStream(ctx, "STREAM.UPDATE.", cfg)
}

func (c *Client) putStream(ctx context.Context, call string, cfg format.Object) (*StreamInfo, error) {
	name, err := configName(cfg, "stream", "name")
	if err != nil {
		return nil, err
	}
	var info StreamInfo
	if err := c.request(ctx, call+name, levelHeader(cfg), cfg, &info); err != nil {
		return nil, err
	}
	return &info, nil
}

// DeleteStream deletes a stream with its messages and consumers.
func (c *Client) DeleteStream(ctx context.Context, name string) error {
	if err := checkToken("stream", name); err != nil {
		return err
	}
	return c.Request(ctx, "STREAM.DELETE."+name, nil, nil)
}

// RawMsg is a stored message with its header block byte for byte.
type RawMsg struct {
	Subject string    `json:"subject"`
	Seq     uint64    `json:"seq"`
	Header  []byte    `json:"hdrs,omitempty"`
	Data    []byte    `json:"data,omitempty"`
	Time    time.Time `json:"time"`
}

// GetMsg returns the message with a sequence (10037 when there is none).
func (c *Client) GetMsg(ctx context.Context, stream string, seq uint64) (*RawMsg, error) {
	if err := checkToken("stream", stream); err != nil {
		return nil, err
	}
	req := struct {
		Seq uint64 `json:"seq"`
	}{seq}
	var resp struct {
		Message RawMsg `json:"message"`
	}
	if err := c.Request(ctx, "STREAM.MSG.GET."+stream, req, &resp); err != nil {
		return nil, err
	}
	return &resp.Message, nil
}

// SnapshotRequest asks for a snapshot.
type SnapshotRequest struct {
	// DeliverSubject must have a subscription already; see Client.NewInbox.
	DeliverSubject string `json:"deliver_subject"`
	NoConsumers    bool   `json:"no_consumers,omitempty"`
	// ChunkSize and WindowSize in bytes; zero leaves them to the server
	// (128 KiB and 8 MiB).
	ChunkSize  int `json:"chunk_size,omitempty"`
	WindowSize int `json:"window_size,omitempty"`
	// CheckMsgs has an older server check all messages first.
	CheckMsgs bool `json:"jsck,omitempty"`
}

// SnapshotResponse is what a snapshot begins with; both go into backup.json as
// they are.
type SnapshotResponse struct {
	Config format.Object   `json:"config"`
	State  json.RawMessage `json:"state"`
}

// StartSnapshot has the server send the stream's archive to the deliver
// subject.
func (c *Client) StartSnapshot(ctx context.Context, stream string, req SnapshotRequest) (*SnapshotResponse, error) {
	if err := checkToken("stream", stream); err != nil {
		return nil, err
	}
	var resp SnapshotResponse
	if err := c.Request(ctx, "STREAM.SNAPSHOT."+stream, req, &resp); err != nil {
		return nil, err
	}
	return &resp, nil
}

// StartRestore announces an archive and returns the subject that takes its
// chunks, each of which needs a reply subject. The name in cfg must be that of
// the stream, or absent.
func (c *Client) StartRestore(ctx context.Context, stream string, cfg format.Object, state json.RawMessage) (deliverSubject string, err error) {
	if err := checkToken("stream", stream); err != nil {
		return "", err
	}
	req := struct {
		Config format.Object   `json:"config"`
		State  json.RawMessage `json:"state"`
	}{cfg, state}
	var resp struct {
		DeliverSubject string `json:"deliver_subject"`
	}
	if err := c.request(ctx, "STREAM.RESTORE."+stream, levelHeader(cfg), req, &resp); err != nil {
		return "", err
	}
	return resp.DeliverSubject, nil
}
