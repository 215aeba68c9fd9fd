package testnats

import (
	"encoding/json"
	"fmt"
	"sort"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
)

// Contents is all that a stream holds, fit for cmp.Diff.
type Contents struct {
	FirstSeq, LastSeq uint64
	Messages          []Message
}

// Message is one message with its exact header bytes.
type Message struct {
	Seq     uint64
	Subject string
	Time    time.Time
	Header  string // raw: "NATS/1.0\r\n…\r\n\r\n", or empty
	Data    []byte
}

// dumpWindow is how many requests for messages are under way at once.
const dumpWindow = 256

// Dump reads a stream message by message over STREAM.MSG.GET, which, other than
// the client's own calls, hands out header bytes as they are stored.
func Dump(t testing.TB, nc *nats.Conn, stream string) Contents {
	t.Helper()
	var info struct {
		State struct {
			FirstSeq uint64   `json:"first_seq"`
			LastSeq  uint64   `json:"last_seq"`
			Msgs     uint64   `json:"messages"`
			Deleted  []uint64 `json:"deleted"`
		} `json:"state"`
	}
	api(t, nc, "STREAM.INFO."+stream, map[string]any{"deleted_details": true}, &info)
	st := info.State
	c := Contents{FirstSeq: st.FirstSeq, LastSeq: st.LastSeq}
	if st.Msgs == 0 {
		return c
	}
	gone := make(map[uint64]bool, len(st.Deleted))
	for _, seq := range st.Deleted {
		gone[seq] = true
	}
	var wanted []uint64
	for seq := st.FirstSeq; seq <= st.LastSeq; seq++ {
		if !gone[seq] {
			wanted = append(wanted, seq)
		}
	}
	c.Messages = getMessages(t, nc, stream, wanted)
	return c
}

// getMessages asks for many messages at once. The answers come in any order,
// and are told apart by the last token of their reply subject. A message that
// is gone meanwhile, because it expired, is left out.
func getMessages(t testing.TB, nc *nats.Conn, stream string, seqs []uint64) []Message {
	t.Helper()
	inbox := nats.NewInbox()
	sub, err := nc.SubscribeSync(inbox + ".*")
	check(t, err)
	defer sub.Unsubscribe()
	check(t, sub.SetPendingLimits(-1, -1))
	ask := func(i int) {
		check(t, nc.PublishRequest("$JS.API.STREAM.MSG.GET."+stream, fmt.Sprintf("%s.%d", inbox, i),
			fmt.Appendf(nil, `{"seq":%d}`, seqs[i])))
	}
	found := make([]*Message, len(seqs))
	next := 0
	for ; next < len(seqs) && next < dumpWindow; next++ {
		ask(next)
	}
	for range seqs {
		m, err := sub.NextMsg(patience)
		if err != nil {
			t.Fatalf("dump %s: %v", stream, err)
		}
		i, _ := strconv.Atoi(strings.TrimPrefix(m.Subject, inbox+"."))
		found[i] = parseStored(t, m, stream, seqs[i])
		if next < len(seqs) {
			ask(next)
			next++
		}
	}
	msgs := make([]Message, 0, len(seqs))
	for _, m := range found {
		if m != nil {
			msgs = append(msgs, *m)
		}
	}
	return msgs
}

func parseStored(t testing.TB, m *nats.Msg, stream string, seq uint64) *Message {
	t.Helper()
	if m.Header.Get("Status") != "" {
		t.Fatalf("dump %s: message %d: status %s", stream, seq, m.Header.Get("Status"))
	}
	var r struct {
		Error *struct {
			ErrCode int `json:"err_code"`
		} `json:"error"`
		Message *struct {
			Subject string    `json:"subject"`
			Seq     uint64    `json:"seq"`
			Header  []byte    `json:"hdrs"`
			Data    []byte    `json:"data"`
			Time    time.Time `json:"time"`
		} `json:"message"`
	}
	check(t, json.Unmarshal(m.Data, &r))
	if r.Error != nil && r.Error.ErrCode == 10037 { // no message found
		return nil
	}
	if r.Message == nil || r.Message.Seq != seq {
		t.Fatalf("dump %s: message %d: %s", stream, seq, m.Data)
	}
	return &Message{
		Seq: seq, Subject: r.Message.Subject, Time: r.Message.Time.UTC(),
		Header: string(r.Message.Header), Data: r.Message.Data,
	}
}

// Consumer is one consumer as CONSUMER.LIST shows it, fit for cmp.Diff: without
// what is different after each restore or second, such as its age.
type Consumer struct {
	Name                 string
	Config               map[string]any // as JSON, so that no field is lost
	Delivered, AckFloor  Position
	AckPending           int
	Redelivered, Waiting int
	Pending              uint64
	Paused               bool
}

// Position is a pair of sequences.
type Position struct {
	Consumer uint64 `json:"consumer_seq"`
	Stream   uint64 `json:"stream_seq"`
}

// DumpConsumers reads all consumers of a stream, sorted by name.
func DumpConsumers(t testing.TB, nc *nats.Conn, stream string) []Consumer {
	t.Helper()
	var all []Consumer
	for {
		var page struct {
			Total     int `json:"total"`
			Consumers []struct {
				Name        string         `json:"name"`
				Config      map[string]any `json:"config"`
				Delivered   Position       `json:"delivered"`
				AckFloor    Position       `json:"ack_floor"`
				AckPending  int            `json:"num_ack_pending"`
				Redelivered int            `json:"num_redelivered"`
				Waiting     int            `json:"num_waiting"`
				Pending     uint64         `json:"num_pending"`
				Paused      bool           `json:"paused"`
			} `json:"consumers"`
		}
		api(t, nc, "CONSUMER.LIST."+stream, map[string]any{"offset": len(all)}, &page)
		for _, c := range page.Consumers {
			all = append(all, Consumer{
				Name: c.Name, Config: c.Config, Delivered: c.Delivered, AckFloor: c.AckFloor,
				AckPending: c.AckPending, Redelivered: c.Redelivered, Waiting: c.Waiting,
				Pending: c.Pending, Paused: c.Paused,
			})
		}
		if len(page.Consumers) == 0 || len(all) >= page.Total {
			break
		}
	}
	sort.Slice(all, func(i, j int) bool { return all[i].Name < all[j].Name })
	return all
}

// StreamConfig reads a stream's configuration as JSON, so that no field is lost.
func StreamConfig(t testing.TB, nc *nats.Conn, stream string) map[string]any {
	t.Helper()
	var info struct {
		Config map[string]any `json:"config"`
	}
	api(t, nc, "STREAM.INFO."+stream, nil, &info)
	return info.Config
}

// api makes a call of the JetStream API and fails the test on any error.
func api(t testing.TB, nc *nats.Conn, call string, request, answer any) {
	t.Helper()
	var body []byte
	if request != nil {
		var err error
		body, err = json.Marshal(request)
		check(t, err)
	}
	m, err := nc.Request("$JS.API."+call, body, patience)
	if err != nil {
		t.Fatalf("%s: %v", call, err)
	}
	if err := apiError(m.Data); err != nil {
		t.Fatalf("%s: %v", call, err)
	}
	check(t, json.Unmarshal(m.Data, answer))
}
