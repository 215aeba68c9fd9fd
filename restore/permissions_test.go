package restore_test

import (
	"strings"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/jetkeep/jetkeep/internal/testnats"
	"github.com/jetkeep/jetkeep/restore"
)

func TestMissingPermissionsAreNamedBeforehand(t *testing.T) {
	t.Parallel()
	s := testnats.Single(t, testnats.Options{Users: []testnats.User{
		{Name: "all", Password: "x"},
		{Name: "few", Password: "x", PubAllow: []string{
			"$JS.API.INFO", "$JS.API.STREAM.INFO.*", "$JS.API.STREAM.LIST", "$JS.API.STREAM.RESTORE.*", "$SYS.REQ.USER.INFO",
		}, SubAllow: []string{"_INBOX.>"}},
	}})
	nc := s.Connect(t, nats.UserInfo("all", "x"))
	stream := testnats.Fill(t, nc, testnats.FillOptions{Messages: 10})
	b := take(t, nc, stream)
	remove(t, nc, stream)
	p, err := restore.Prepare(ctx(t), s.Connect(t, nats.UserInfo("few", "x")), b, restore.Options{})
	if err != nil {
		t.Fatal(err)
	}
	f := found(p, "permissions")
	if len(f) != 1 || f[0].Level != restore.Refusal {
		t.Fatalf("%+v", p.Findings)
	}
	for _, want := range []string{"$JS.API.STREAM.UPDATE." + stream, "$JS.API.STREAM.DELETE." + stream, "$JS.SNAPSHOT.RESTORE." + stream} {
		if !strings.Contains(f[0].Text, want) {
			t.Errorf("%s isn't named: %s", want, f[0].Text)
		}
	}
	if strings.Contains(f[0].Text, "STREAM.RESTORE."+stream+",") {
		t.Errorf("what is allowed is named: %s", f[0].Text)
	}
	p, err = restore.Prepare(ctx(t), nc, b, restore.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if f := found(p, "permissions"); len(f) != 1 || f[0].Level != restore.OK {
		t.Errorf("%+v", f)
	}
}
