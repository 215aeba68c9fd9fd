package cmd

import (
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/jetkeep/jetkeep/internal/testnats"
)

// TestDocumentedPermissionsAreEnough runs both verbs as the users that
// docs/permissions.md gives, on a server with that very configuration.
func TestDocumentedPermissionsAreEnough(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../docs/permissions.md")
	if err != nil {
		t.Fatal(err)
	}
	m := regexp.MustCompile("(?s)```conf\nauthorization \\{\n  users: \\[\n(.*?)\n  \\]\n\\}\n```").FindSubmatch(page)
	if m == nil {
		t.Fatal("docs/permissions.md has no configuration of that form")
	}
	s := testnats.Single(t, testnats.Options{Conf: "accounts {\n  A { jetstream: enabled, users: [\n{user: all, password: x}\n" + string(m[1]) + "\n] }\n}\n"})
	nc := s.Connect(t, nats.UserInfo("all", "x"))
	stream := testnats.Fill(t, nc, testnats.FillOptions{Messages: 50, Consumers: true})
	repo := t.TempDir() + "/repo"
	backupUser := []string{"-s", s.URL(), "--user", "backup", "--password", "change-me"}
	restoreUser := []string{"-s", s.URL(), "--user", "restore", "--password", "change-me-too"}
	if code, out, errs := runArgs(t, append([]string{"backup", stream, "--repo", repo, "--init"}, backupUser...)...); code != exitOK || !strings.Contains(out, "account A") {
		t.Fatalf("backup: exit %d: %s%s", code, out, errs)
	}
	js, err := jetstream.New(nc, jetstream.WithDefaultTimeout(30*time.Second))
	if err != nil {
		t.Fatal(err)
	}
	if err := js.DeleteStream(t.Context(), stream); err != nil {
		t.Fatal(err)
	}
	// The backup user can't do harm.
	if code, _, errs := runArgs(t, append([]string{"restore", stream, "--repo", repo}, backupUser...)...); code == exitOK {
		t.Fatalf("the backup user may restore: %s", errs)
	}
	for _, check := range []string{"state", "full"} {
		args := append([]string{"restore", stream, "--repo", repo, "--check", check}, restoreUser...)
		if code, out, errs := runArgs(t, args...); code != exitOK {
			t.Fatalf("restore --check %s: exit %d: %s%s", check, code, out, errs)
		}
		if err := js.DeleteStream(t.Context(), stream); err != nil {
			t.Fatal(err)
		}
	}
	// Also in place of an empty stream.
	if _, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: stream, Subjects: []string{stream + ".>"}}); err != nil {
		t.Fatal(err)
	}
	if code, out, errs := runArgs(t, append([]string{"restore", stream, "--repo", repo}, restoreUser...)...); code != exitOK {
		t.Fatalf("restore in place of an empty stream: exit %d: %s%s", code, out, errs)
	}
}
