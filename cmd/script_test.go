package cmd

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/rogpeppe/go-internal/testscript"

	"github.com/jetkeep/jetkeep/internal/testnats"
)

// password is a secret that no output may hold.
const password = "hunter2-kilimanjaro"

// TestScripts runs the promises of the command line: testdata/script/*.txtar,
// against real servers. Beside testscript's own commands there are
//
//	exits N cmd args…        runs a command that must exit with code N
//	stream NAME MESSAGES     fills a stream, with consumers and TTLs
//	resubject NAME SUBJECT   gives a stream another subject
//	delete NAME              deletes a stream
//	context NAME USER PASS   makes a NATS context for the server
//	latest DIR STREAM        sets $ID and $DIR to a repository's latest backup
//	flip FILE N              flips a bit of the byte at N (from the end if negative)
//	cut FILE N               removes the last N bytes
//	extend FILE TEXT         appends
//	jsonlines stdout|stderr  each line is an object with a known message_type
//	plain stdout|stderr      nothing that a terminal would interpret
//	nosecret stdout|stderr   the password isn't there
func TestScripts(t *testing.T) {
	srv := testnats.Single(t)
	secured := testnats.Single(t, testnats.Options{
		Users: []testnats.User{{Name: "nobody", PubDeny: []string{">"}}, {Name: "ops", Password: password}},
	})
	nc := srv.Connect(t)
	testscript.Run(t, testscript.Params{
		Dir:                 filepath.Join("testdata", "script"),
		RequireExplicitExec: false,
		RequireUniqueNames:  true,
		Setup: func(e *testscript.Env) error {
			e.Setenv("NATS_URL", srv.URL())
			e.Setenv("SECURED", secured.HostPort())
			e.Setenv("PASSWORD", password)
			e.Setenv("XDG_CONFIG_HOME", filepath.Join(e.WorkDir, ".config"))
			return nil
		},
		Condition: func(cond string) (bool, error) {
			if cond == "devfull" {
				_, err := os.Stat("/dev/full")
				return err == nil, nil
			}
			return false, fmt.Errorf("unknown condition %q", cond)
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"exits":     cmdExits,
			"stream":    func(ts *testscript.TestScript, _ bool, args []string) { cmdStream(t, nc, ts, args) },
			"resubject": func(ts *testscript.TestScript, _ bool, args []string) { cmdResubject(nc, ts, args) },
			"latest":    cmdLatest,
			"delete":    cmdDelete(t, nc),
			"context":   cmdContext,
			"flip":      cmdEdit(flip),
			"cut":       cmdEdit(func(data []byte, arg string) []byte { n, _ := strconv.Atoi(arg); return data[:len(data)-n] }),
			"extend":    cmdEdit(func(data []byte, arg string) []byte { return append(data, arg...) }),
			"jsonlines": cmdJSONLines,
			"plain":     cmdPlain,
			"nosecret": func(ts *testscript.TestScript, _ bool, args []string) {
				if strings.Contains(ts.ReadFile(args[0]), password) {
					ts.Fatalf("%s holds the password", args[0])
				}
			},
		},
	})
}

func cmdExits(ts *testscript.TestScript, neg bool, args []string) {
	want, err := strconv.Atoi(args[0])
	if neg || err != nil || len(args) < 2 {
		ts.Fatalf("usage: exits N cmd args…")
	}
	err = ts.Exec(args[1], args[2:]...)
	got := 0
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		got = exit.ExitCode()
	} else if err != nil {
		ts.Fatalf("%v", err)
	}
	if got != want {
		ts.Fatalf("exit code %d, expected %d", got, want)
	}
}

func cmdStream(t *testing.T, nc *nats.Conn, ts *testscript.TestScript, args []string) {
	n, err := strconv.Atoi(args[1])
	ts.Check(err)
	testnats.Fill(t, nc, testnats.FillOptions{Stream: args[0], Messages: n, TTL: time.Hour, Consumers: true})
}

func cmdResubject(nc *nats.Conn, ts *testscript.TestScript, args []string) {
	js, err := jetstream.New(nc, jetstream.WithDefaultTimeout(30*time.Second))
	ts.Check(err)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	s, err := js.Stream(ctx, args[0])
	ts.Check(err)
	cfg := s.CachedInfo().Config
	cfg.Subjects = []string{args[1]}
	_, err = js.UpdateStream(ctx, cfg)
	ts.Check(err)
}

func cmdLatest(ts *testscript.TestScript, _ bool, args []string) {
	dir := ts.MkAbs(filepath.Join(args[0], args[1]))
	entries, err := os.ReadDir(dir)
	ts.Check(err)
	id := entries[len(entries)-1].Name()
	ts.Setenv("ID", id)
	ts.Setenv("DIR", filepath.Join(dir, id))
}

func cmdDelete(t *testing.T, nc *nats.Conn) func(*testscript.TestScript, bool, []string) {
	js, err := jetstream.New(nc, jetstream.WithDefaultTimeout(30*time.Second))
	if err != nil {
		t.Fatal(err)
	}
	return func(ts *testscript.TestScript, _ bool, args []string) {
		ts.Check(js.DeleteStream(context.Background(), args[0]))
	}
}

func cmdContext(ts *testscript.TestScript, _ bool, args []string) {
	dir := filepath.Join(ts.Getenv("XDG_CONFIG_HOME"), "nats", "context")
	ts.Check(os.MkdirAll(dir, 0o700))
	data, err := json.Marshal(map[string]string{"url": ts.Getenv("NATS_URL"), "user": args[1], "password": args[2]})
	ts.Check(err)
	ts.Check(os.WriteFile(filepath.Join(dir, args[0]+".json"), data, 0o600))
}

// cmdEdit makes a command that changes a file.
func cmdEdit(edit func(data []byte, arg string) []byte) func(*testscript.TestScript, bool, []string) {
	return func(ts *testscript.TestScript, _ bool, args []string) {
		path := ts.MkAbs(args[0])
		data, err := os.ReadFile(path)
		ts.Check(err)
		ts.Check(os.WriteFile(path, edit(data, args[1]), 0o600))
	}
}

func flip(data []byte, arg string) []byte {
	n, _ := strconv.Atoi(arg)
	if n < 0 {
		n += len(data)
	}
	data[n] ^= 4
	return data
}

func cmdJSONLines(ts *testscript.TestScript, _ bool, args []string) {
	lines := bytes.Split(bytes.TrimSuffix([]byte(ts.ReadFile(args[0])), []byte("\n")), []byte("\n"))
	for _, line := range lines {
		var v struct {
			Type string `json:"message_type"`
		}
		if err := json.Unmarshal(line, &v); err != nil {
			ts.Fatalf("not JSON: %v: %s", err, line)
		}
		if !slices.Contains([]string{"status", "summary", "error"}, v.Type) {
			ts.Fatalf("message_type %q: %s", v.Type, line)
		}
	}
}

func cmdPlain(ts *testscript.TestScript, _ bool, args []string) {
	for i, c := range []byte(ts.ReadFile(args[0])) {
		if c < ' ' && c != '\n' || c == 0x7f {
			ts.Fatalf("%s has the control character 0x%02x at %d", args[0], c, i)
		}
	}
}
