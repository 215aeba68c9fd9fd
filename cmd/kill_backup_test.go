package cmd

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/jetkeep/jetkeep/backup/repo"
	"github.com/jetkeep/jetkeep/internal/slowlink"
	"github.com/jetkeep/jetkeep/internal/testnats"
)

// killedBackup: kill -9 at ten places of a backup leaves nothing that lists
// as one, and the next run removes what was left.
func killedBackup(t *testing.T, bin string) {
	srv := testnats.Single(t)
	nc := srv.Connect(t)
	stream := testnats.Fill(t, nc, testnats.FillOptions{Messages: 500, Size: 8 << 10, Consumers: true})
	args := func(url, dir string) []string {
		return []string{"backup", stream, "--repo", dir, "-s", url, "--chunk-size", "16KiB", "--window-size", "64KiB"}
	}
	newHome := func() string {
		dir := filepath.Join(t.TempDir(), "repo")
		if _, err := repo.InitDir(dir); err != nil {
			t.Fatal(err)
		}
		return dir
	}
	whole := testnats.Proxy(t, srv.HostPort(), testnats.ProxyOptions{})
	mustSucceed(t, bin, args(whole.URL(), newHome())...)
	total := whole.Forwarded(slowlink.Down)

	points := 10
	if soak {
		points = 60
	}
	left := 0
	for i := 1; i <= points; i++ {
		dir := newHome()
		link := testnats.Proxy(t, srv.HostPort(), testnats.ProxyOptions{})
		v := newVictim()
		link.After(slowlink.Down, total*int64(i)/int64(points+1), func() {
			v.process().kill9()
			link.Cut()
		})
		if code := v.is(launch(t, bin, args(link.URL(), dir)...)).wait(t); code != -1 {
			t.Fatalf("point %d: it ended with %d: %s", i, code, v.p.err.String())
		}
		r, err := repo.OpenDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		if names, err := r.Streams(background(t)); err != nil || len(names) > 0 {
			t.Errorf("point %d: streams %v, %v", i, names, err)
		}
		left += len(files(t, dir))
		mustSucceed(t, bin, args(srv.URL(), dir)...)
		mustSucceed(t, bin, "verify", stream, "--repo", dir)
		if found := files(t, dir); len(found) != 3 {
			t.Errorf("point %d: after the next run there are %v", i, found)
		}
	}
	if left == 0 {
		t.Error("no killed run has left anything to remove: they were killed too early")
	}
}

// files returns all files of a repository but its own.
func files(t *testing.T, dir string) (found []string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if rel, _ := filepath.Rel(dir, path); !d.IsDir() && rel != "jetkeep.json" {
			found = append(found, fmt.Sprint(rel))
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}
