package cmd

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/jetkeep/jetkeep/internal/testnats"
)

// TestReadmeExamplesWork runs every line of the README's shell blocks, in order,
// against a server with a stream ORDERS.
func TestReadmeExamplesWork(t *testing.T) {
	t.Parallel()
	peer := testnats.Peer(t)
	s := testnats.Single(t)
	testnats.Fill(t, s.Connect(t), testnats.FillOptions{Stream: "ORDERS", Consumers: true})
	root, err := filepath.Abs("..")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "bin"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(peer, filepath.Join(dir, "bin", "nats")); err != nil {
		t.Fatal(err)
	}
	script := "set -eux\n" + shellBlocks(t, filepath.Join(root, "README.md"))
	const build = "go build -o jetkeep .\n"
	if !strings.Contains(script, build) {
		t.Fatalf("the README doesn't build the binary by %q", build)
	}
	script = strings.Replace(script, build, `(cd "$ROOT" && go build -o "$DIR/jetkeep" .)`+"\n", 1)
	c := exec.Command("sh", "-c", script)
	c.Dir = dir
	c.Env = append(os.Environ(), "NATS_URL="+s.URL(), "ROOT="+root, "DIR="+dir, "PATH="+filepath.Join(dir, "bin")+":"+os.Getenv("PATH"),
		"XDG_CONFIG_HOME="+filepath.Join(dir, "config"))
	if out, err := c.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
}

// shellBlocks returns the lines of a page's ```sh blocks.
func shellBlocks(t *testing.T, page string) string {
	t.Helper()
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	for _, m := range regexp.MustCompile("(?s)```sh\n(.*?)```").FindAllStringSubmatch(string(text), -1) {
		b.WriteString(m[1])
	}
	if b.Len() == 0 {
		t.Fatalf("%s has no shell blocks", page)
	}
	return b.String()
}
