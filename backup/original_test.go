package backup

import (
	"bytes"
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/jetkeep/jetkeep/format"
)

func object(t *testing.T, text string) format.Object {
	t.Helper()
	o, err := format.ParseObject([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return o
}

// neutralised is an archive of a copy, with a consumer that was changed.
func neutralised(t *testing.T, messages int) []byte {
	t.Helper()
	var b bytes.Buffer
	w := format.NewWriter(&b)
	state := format.State{Messages: uint64(messages), FirstSeq: 1, LastSeq: uint64(messages)}
	head := &format.Head{State: state, Consumers: []format.Consumer{{
		Name:   "c",
		Config: object(t, `{"name":"c","pause_until":"2100-01-01T00:00:00Z"}`),
		State:  object(t, `{"delivered":{"consumer_seq":3,"stream_seq":3},"ack_floor":{"consumer_seq":1,"stream_seq":1},"pending":{"2":{"Sequence":2,"Timestamp":1}}}`),
	}}}
	if err := w.WriteHead(head); err != nil {
		t.Fatal(err)
	}
	for seq := range messages {
		if err := w.WriteMessage(&format.Message{Subject: []byte("a"), Seq: uint64(seq + 1), Time: 5, Payload: bytes.Repeat([]byte{byte(seq)}, 1000)}); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func TestOriginalArchive(t *testing.T) {
	ctx := context.Background()
	o := &Original{Consumers: map[string]format.Object{"c": object(t, `{"durable_name":"c","future":[1,{"x":null}]}`)}}
	for _, messages := range []int{1, 5000} {
		r := o.archive(ctx, bytes.NewReader(neutralised(t, messages)), func() {})
		var count int
		ins, err := format.Inspect(ctx, r, format.InspectOptions{OnMessage: func(m *format.Message) error {
			count++
			if m.Payload[0] != byte(m.Seq-1) || m.Time != 5 {
				t.Errorf("message %d isn't what it was", m.Seq)
			}
			return nil
		}})
		if err != nil {
			t.Fatal(err)
		}
		r.close()
		c := ins.Head.Consumers[0]
		if c.Config.Has("pause_until") || string(c.Config.Raw("future")) != `[1,{"x":null}]` || string(c.Config.Raw("name")) != `"c"` {
			t.Errorf("consumer %v", c.Config)
		}
		if got := ins.Figures.Consumers[0]; got.Pending != 1 || got.Delivered.Stream != 3 || !got.Durable {
			t.Errorf("consumer's state: %+v", got)
		}
		if count != messages || ins.Figures.LastSeq != uint64(messages) {
			t.Errorf("%d messages, %+v", count, ins.Figures)
		}
	}
}

func TestOriginalArchiveFails(t *testing.T) {
	ctx := context.Background()
	known := &Original{Consumers: map[string]format.Object{"c": object(t, `{}`)}}
	data := neutralised(t, 2000)
	t.Run("unknown consumer", func(t *testing.T) {
		r := (&Original{}).archive(ctx, bytes.NewReader(data), func() {})
		defer r.close()
		if _, err := io.Copy(io.Discard, r); err == nil || !strings.Contains(err.Error(), `consumer "c"`) {
			t.Errorf("got %v", err)
		}
	})
	t.Run("cut", func(t *testing.T) {
		r := known.archive(ctx, bytes.NewReader(data[:len(data)-10]), func() {})
		defer r.close()
		if _, err := io.Copy(io.Discard, r); !errors.Is(err, format.ErrTruncated) {
			t.Errorf("got %v", err)
		}
	})
	t.Run("closed while the source is silent", func(t *testing.T) {
		silent, w := io.Pipe()
		r := known.archive(ctx, silent, func() { silent.Close() })
		if _, err := w.Write(data[:20]); err != nil {
			t.Fatal(err)
		}
		closed := make(chan struct{})
		go func() { r.close(); close(closed) }()
		select {
		case <-closed:
		case <-time.After(30 * time.Second):
			t.Fatal("Close hangs")
		}
	})
	t.Run("closed while nobody reads", func(t *testing.T) {
		r := known.archive(ctx, bytes.NewReader(data), func() {})
		r.close()
	})
}

func TestOriginalDescribes(t *testing.T) {
	then := time.Date(2020, 1, 2, 3, 4, 5, 6, time.UTC)
	m := &format.Manifest{Created: time.Now(), Server: format.Server{Version: "2.15.3", Name: "jetkeep-x"}}
	(*Original)(nil).describe(m)
	if m.Server.Name == "" {
		t.Error("a live stream's manifest was changed")
	}
	(&Original{}).describe(m)
	if m.Created.IsZero() || m.Server.Name != "" {
		t.Errorf("%+v", m)
	}
	(&Original{Created: then}).describe(m)
	if !m.Created.Equal(then) {
		t.Errorf("created %v", m.Created)
	}
}
