package restore

import (
	"testing"

	"github.com/jetkeep/jetkeep/format"
)

// TestRaiseFloor: a restoring single server drops the whole state of a consumer
// that stands further back than one that has just been made.
func TestRaiseFloor(t *testing.T) {
	for _, c := range []struct {
		name, state string
		first       uint64
		want        string
	}{
		{"below", `{"ack_floor":{"consumer_seq":0,"stream_seq":0},"delivered":{"consumer_seq":10,"stream_seq":16},"pending":{"4":{}}}`, 4,
			`{"ack_floor":{"consumer_seq":0,"stream_seq":3},"delivered":{"consumer_seq":10,"stream_seq":16},"pending":{"4":{}}}`},
		{"both below", `{"ack_floor":{"consumer_seq":0,"stream_seq":0},"delivered":{"consumer_seq":0,"stream_seq":0}}`, 4,
			`{"ack_floor":{"consumer_seq":0,"stream_seq":3},"delivered":{"consumer_seq":0,"stream_seq":3}}`},
		{"above", `{"ack_floor":{"consumer_seq":1,"stream_seq":3},"delivered":{"consumer_seq":1,"stream_seq":9}}`, 4,
			`{"ack_floor":{"consumer_seq":1,"stream_seq":3},"delivered":{"consumer_seq":1,"stream_seq":9}}`},
		{"never used", `{"ack_floor":{"consumer_seq":0,"stream_seq":0},"delivered":{"consumer_seq":0,"stream_seq":0}}`, 0,
			`{"ack_floor":{"consumer_seq":0,"stream_seq":0},"delivered":{"consumer_seq":0,"stream_seq":0}}`},
	} {
		state, err := format.ParseObject([]byte(c.state))
		if err != nil {
			t.Fatal(err)
		}
		k := format.Consumer{Name: "c", State: state}
		raiseFloor(&k, c.first)
		if got, _ := k.State.MarshalJSON(); string(got) != c.want {
			t.Errorf("%s: %s", c.name, got)
		}
		if after, _ := state.MarshalJSON(); string(after) != c.state {
			t.Errorf("%s: the archive's own state was changed: %s", c.name, after)
		}
	}
}
