package cmd

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/jetkeep/jetkeep/format"
	"github.com/jetkeep/jetkeep/internal/jsapi"
	"github.com/jetkeep/jetkeep/internal/ui"
)

const (
	demoStream = "ORDERS"
	// demoTTL is short enough to run out while one watches, and long enough for
	// the backup to be taken before.
	demoTTL = 3 * time.Second
)

// fillDemo makes the stream, its messages and its consumers.
func fillDemo(ctx context.Context, nc *nats.Conn) error {
	js, err := jetstream.New(nc)
	if err != nil {
		return err
	}
	s, err := js.CreateStream(ctx, jetstream.StreamConfig{
		Name: demoStream, Description: "orders of the web shop", Subjects: []string{"orders.>"},
		AllowMsgTTL: true, MaxAge: 30 * 24 * time.Hour, Metadata: map[string]string{"team": "checkout"},
	})
	if err != nil {
		return err
	}
	for i := 1; i <= 300; i++ {
		if _, err := js.PublishMsg(ctx, demoMessage(i)); err != nil {
			return err
		}
	}
	// Cancelled orders leave gaps inside, and at the end.
	for _, seq := range []uint64{17, 18, 19, 64, 130, 131, 200, 299, 300} {
		if err := s.DeleteMsg(ctx, seq); err != nil {
			return err
		}
	}
	return demoConsumers(ctx, s)
}

func demoMessage(i int) *nats.Msg {
	countries := []string{"de", "fr", "us", "jp"}
	m := nats.NewMsg("orders." + countries[i%len(countries)] + "." + []string{"new", "paid", "shipped"}[i%3])
	m.Header.Set("Nats-Msg-Id", fmt.Sprintf("order-%d", i))
	m.Header.Set("Traceparent", fmt.Sprintf("00-%032x-%016x-01", i*7919, i))
	switch {
	case i > 285 && i <= 290: // the newest offers expire soon
		m.Header.Set("Nats-TTL", demoTTL.String())
	case i%10 == 0:
		m.Header.Set("Nats-TTL", "24h")
	}
	m.Data = fmt.Appendf(nil, `{"order":%d,"customer":"c%03d","total":%d.%02d,"note":%q}`, i, i%40, i%97, i%100, strings.Repeat("fragile ", i%7))
	return m
}

// demoConsumers makes two consumers with messages pending, some of them
// acknowledged in odd order.
func demoConsumers(ctx context.Context, s jetstream.Stream) error {
	for name, n := range map[string]int{"billing": 40, "shipping": 15} {
		c, err := s.CreateConsumer(ctx, jetstream.ConsumerConfig{
			Durable: name, AckPolicy: jetstream.AckExplicitPolicy, AckWait: time.Hour, FilterSubject: map[string]string{"shipping": "orders.*.paid"}[name],
		})
		if err != nil {
			return err
		}
		batch, err := c.Fetch(n, jetstream.FetchMaxWait(5*time.Second))
		if err != nil {
			return err
		}
		i := 0
		for m := range batch.Messages() {
			if i++; i%4 != 0 {
				if err := m.DoubleAck(ctx); err != nil {
					return err
				}
			}
		}
		if err := batch.Error(); err != nil {
			return err
		}
	}
	return nil
}

// demoContents is all that a client can see of the stream.
type demoContents struct {
	last      uint64
	messages  map[uint64]*jsapi.RawMsg
	consumers map[string]string
}

func readDemo(ctx context.Context, js *jsapi.Client) (*demoContents, error) {
	info, err := js.StreamInfo(ctx, demoStream)
	if err != nil {
		return nil, err
	}
	c := &demoContents{last: info.State.LastSeq, messages: map[uint64]*jsapi.RawMsg{}, consumers: map[string]string{}}
	for seq := uint64(1); seq <= c.last; seq++ {
		m, err := js.GetMsg(ctx, demoStream, seq)
		if jsapi.IsCode(err, jsapi.CodeNoMessageFound) {
			continue
		}
		if err != nil {
			return nil, err
		}
		c.messages[seq] = m
	}
	list, err := js.Consumers(ctx, demoStream)
	if err != nil {
		return nil, err
	}
	for _, k := range list.Consumers {
		c.consumers[k.Name] = fmt.Sprintf("delivered to %d, acknowledged to %d, %d pending", k.Delivered.Stream, k.AckFloor.Stream, k.NumAckPending)
	}
	return c, nil
}

func (c *demoContents) describe() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s, last sequence %d\n", ui.Plural(len(c.messages), "message"), c.last)
	for _, name := range []string{"billing", "shipping"} {
		fmt.Fprintf(&b, "consumer %s: %s\n", name, c.consumers[name])
	}
	return b.String()
}

// compare returns how many messages are missing since their TTL is over, and
// every other difference.
func (c *demoContents) compare(after *demoContents, now time.Time) (expired int, diffs []string) {
	for seq, was := range c.messages {
		is := after.messages[seq]
		switch {
		case is == nil && over(was, now):
			expired++
		case is == nil:
			diffs = append(diffs, fmt.Sprintf("message %d is missing", seq))
		case is.Subject != was.Subject || !is.Time.Equal(was.Time) || !bytes.Equal(is.Header, was.Header) || !bytes.Equal(is.Data, was.Data):
			diffs = append(diffs, fmt.Sprintf("message %d has changed", seq))
		}
	}
	for seq := range after.messages {
		if c.messages[seq] == nil {
			diffs = append(diffs, fmt.Sprintf("message %d is new", seq))
		}
	}
	for name, was := range c.consumers {
		if is := after.consumers[name]; is != was {
			diffs = append(diffs, fmt.Sprintf("consumer %s: %s instead of %s", name, is, was))
		}
	}
	if c.last != after.last {
		diffs = append(diffs, fmt.Sprintf("last sequence %d instead of %d", after.last, c.last))
	}
	return expired, diffs
}

// over reports whether a message's own TTL has passed.
func over(m *jsapi.RawMsg, now time.Time) bool {
	ttl, err := format.MessageTTL(m.Header)
	return err == nil && ttl > 0 && m.Time.Add(time.Duration(ttl)*time.Second).Before(now)
}

// waitForTTL waits until the short TTLs are over.
func waitForTTL(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(demoTTL):
		return nil
	}
}

// publishNext publishes one more message and returns its sequence.
func publishNext(ctx context.Context, nc *nats.Conn) (uint64, error) {
	js, err := jetstream.New(nc)
	if err != nil {
		return 0, err
	}
	ack, err := js.Publish(ctx, "orders.de.new", []byte("the first one after the restore"))
	if err != nil {
		return 0, err
	}
	return ack.Sequence, nil
}
