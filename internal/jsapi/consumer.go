package jsapi

import (
	"context"
	"time"

	"github.com/jetkeep/jetkeep/format"
)

// ConsumerInfo is what the server says about a consumer.
type ConsumerInfo struct {
	Stream         string              `json:"stream_name"`
	Name           string              `json:"name"`
	Created        time.Time           `json:"created"`
	Config         format.Object       `json:"config"`
	Delivered      format.SequencePair `json:"delivered"`
	AckFloor       format.SequencePair `json:"ack_floor"`
	NumAckPending  int                 `json:"num_ack_pending"`
	NumRedelivered int                 `json:"num_redelivered"`
	NumWaiting     int                 `json:"num_waiting"`
	NumPending     uint64              `json:"num_pending"`
	Cluster        *ClusterInfo        `json:"cluster,omitempty"`
	PushBound      bool                `json:"push_bound,omitempty"`
	Paused         bool                `json:"paused,omitempty"`
	PauseRemaining time.Duration       `json:"pause_remaining,omitempty"`
	TimeStamp      time.Time           `json:"ts"`
}

// ConsumerList is the answer of Consumers.
type ConsumerList struct {
	Consumers []*ConsumerInfo
	// Missing consumers exist and gave no answer; Offline holds the reasons of
	// those among them that this server version can't run.
	Missing []string
	Offline map[string]string
}

// Action says what a consumer request may do.
type Action string

// The actions of the server.
const (
	ActionCreateOrUpdate Action = ""
	ActionCreate         Action = "create"
	ActionUpdate         Action = "update"
)

// Consumers returns all consumers of a stream, sorted by name.
func (c *Client) Consumers(ctx context.Context, stream string) (*ConsumerList, error) {
	if err := checkToken("stream", stream); err != nil {
		return nil, err
	}
	list := &ConsumerList{Offline: map[string]string{}}
	seen := map[string]bool{}
	for offset := 0; ; {
		var resp struct {
			page
			Consumers []*ConsumerInfo   `json:"consumers"`
			Missing   []string          `json:"missing"`
			Offline   map[string]string `json:"offline"`
		}
		if err := c.Request(ctx, "CONSUMER.LIST."+stream, page{Offset: offset}.request(), &resp); err != nil {
			return nil, err
		}
		for _, i := range resp.Consumers {
			if !seen[i.Name] {
				seen[i.Name] = true
				list.Consumers = append(list.Consumers, i)
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
		n := len(resp.Consumers) + len(resp.Missing)
		offset += n
		if n == 0 || offset >= resp.Total {
			return list, nil
		}
	}
}

// ConsumerInfo asks for a consumer.
func (c *Client) ConsumerInfo(ctx context.Context, stream, name string) (*ConsumerInfo, error) {
	call, err := consumerCall("CONSUMER.INFO.", stream, name)
	if err != nil {
		return nil, err
	}
	var info ConsumerInfo
	if err := c.Request(ctx, call, nil, &info); err != nil {
		return nil, err
	}
	return &info, nil
}

// PutConsumer creates or updates the consumer that cfg names, as far as the
// action allows.
func (c *Client) PutConsumer(ctx context.Context, stream string, cfg format.Object, action Action) (*ConsumerInfo, error) {
	name, err := configName(cfg, "consumer", "name", "durable_name")
	if err != nil {
		return nil, err
	}
	call, err := consumerCall("CONSUMER.CREATE.", stream, name)
	if err != nil {
		return nil, err
	}
	// A filter belongs in the subject too, where permissions can refer to it.
	var filter string
	if err := cfg.Get("filter_subject", &filter); err != nil {
		return nil, err
	}
	if filter != "" {
		call += "." + filter
	}
	req := struct {
		Stream string        `json:"stream_name"`
		Config format.Object `json:"config"`
		Action Action        `json:"action"`
	}{stream, cfg, action}
	var info ConsumerInfo
	if err := c.request(ctx, call, levelHeader(cfg), req, &info); err != nil {
		return nil, err
	}
	return &info, nil
}

// CreateConsumer creates the consumer that cfg names; it must not exist with
// another configuration (10148).
func (c *Client) CreateConsumer(ctx context.Context, stream string, cfg format.Object) (*ConsumerInfo, error) {
	return c.PutConsumer(ctx, stream, cfg, ActionCreate)
}

// UpdateConsumer changes the consumer that cfg names; it must exist (10149).
func (c *Client) UpdateConsumer(ctx context.Context, stream string, cfg format.Object) (*ConsumerInfo, error) {
	return c.PutConsumer(ctx, stream, cfg, ActionUpdate)
}

// DeleteConsumer deletes a consumer.
func (c *Client) DeleteConsumer(ctx context.Context, stream, name string) error {
	call, err := consumerCall("CONSUMER.DELETE.", stream, name)
	if err != nil {
		return err
	}
	return c.Request(ctx, call, nil, nil)
}

// PauseConsumer pauses deliveries until a time; a time in the past, the zero
// time included, lets them go on.
func (c *Client) PauseConsumer(ctx context.Context, stream, name string, until time.Time) error {
	call, err := consumerCall("CONSUMER.PAUSE.", stream, name)
	if err != nil {
		return err
	}
	req := struct {
		Until time.Time `json:"pause_until,omitzero"`
	}{until.UTC()}
	return c.Request(ctx, call, req, nil)
}

func consumerCall(call, stream, name string) (string, error) {
	if err := checkToken("stream", stream); err != nil {
		return "", err
	}
	if err := checkToken("consumer", name); err != nil {
		return "", err
	}
	return call + stream + "." + name, nil
}
