// Package repotest is the suite that every home of a repository passes.
package repotest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/iotest"
	"time"

	"github.com/jetkeep/jetkeep/backup/repo"
)

// TestStore runs the suite. Each call of newStore returns an empty home.
func TestStore(t *testing.T, newStore func(t *testing.T) repo.Store) {
	for _, c := range []struct {
		name string
		run  func(*testing.T, repo.Store)
	}{
		{"a put object reads back", readsBack},
		{"objects never change", neverChange},
		{"ranges", ranges},
		{"the list is sorted by key and filtered by prefix", list},
		{"the list can be left early", listEarly},
		{"names that need escaping", names},
		{"names that are refused", badNames},
		{"a missing object is ErrNotFound", missing},
		{"deleted objects are gone", deletes},
		{"one of many writers wins", oneWinner},
		{"writers of different keys don't meet deleters", putsBesideDeletes},
		{"a reader that fails leaves nothing", readerFails},
		{"an object being put isn't listed", unseen},
		{"a cancelled context ends everything", cancelled},
	} {
		t.Run(c.name, func(t *testing.T) { c.run(t, newStore(t)) })
	}
}

func put(t *testing.T, s repo.Store, key, data string) {
	t.Helper()
	n, err := s.Put(t.Context(), key, strings.NewReader(data))
	if err != nil || n != int64(len(data)) {
		t.Fatalf("Put(%q) = %d, %v", key, n, err)
	}
}

func get(t *testing.T, s repo.Store, key string, off, n int64) string {
	t.Helper()
	r, err := s.GetRange(t.Context(), key, off, n)
	if err != nil {
		t.Fatal(err)
	}
	data, err := io.ReadAll(r)
	if err = errors.Join(err, r.Close()); err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func keys(t *testing.T, s repo.Store, prefix string) []string {
	t.Helper()
	var keys []string
	for o, err := range s.List(t.Context(), prefix) {
		if err != nil {
			t.Fatal(err)
		}
		keys = append(keys, o.Key)
	}
	return keys
}

func wantKeys(t *testing.T, s repo.Store, prefix string, want ...string) {
	t.Helper()
	if got := keys(t, s, prefix); !slices.Equal(got, want) {
		t.Errorf("List(%q) = %q, want %q", prefix, got, want)
	}
}

func readsBack(t *testing.T, s repo.Store) {
	began := time.Now()
	big := strings.Repeat("0123456789abcdef", 40<<16) // 40 MiB: more than one part
	put(t, s, "a/b/empty", "")
	put(t, s, "a/b/big", big)
	if _, err := s.PutIfAbsent(t.Context(), "a/small", iotest.OneByteReader(strings.NewReader("hello"))); err != nil {
		t.Fatal(err)
	}
	for key, want := range map[string]string{"a/b/empty": "", "a/b/big": big, "a/small": "hello"} {
		if got := get(t, s, key, 0, -1); got != want {
			t.Errorf("%s has %d bytes and differs", key, len(got))
		}
	}
	for o, err := range s.List(t.Context(), "a/b/big") {
		if err != nil || o.Size != int64(len(big)) || o.ModTime.Before(began.Add(-time.Minute)) || o.ModTime.After(time.Now().Add(time.Minute)) {
			t.Errorf("listed as %+v, %v", o, err)
		}
	}
}

func neverChange(t *testing.T, s repo.Store) {
	put(t, s, "k", "first")
	for name, f := range map[string]func(context.Context, string, io.Reader) (int64, error){"Put": s.Put, "PutIfAbsent": s.PutIfAbsent} {
		if _, err := f(t.Context(), "k", strings.NewReader("second")); !errors.Is(err, repo.ErrExists) {
			t.Errorf("%s of a key that is taken: %v", name, err)
		}
	}
	if got := get(t, s, "k", 0, -1); got != "first" {
		t.Errorf("it's now %q", got)
	}
	wantKeys(t, s, "", "k")
}

func ranges(t *testing.T, s repo.Store) {
	put(t, s, "k", "0123456789")
	for _, c := range []struct {
		off, n int64
		want   string
	}{{0, -1, "0123456789"}, {3, -1, "3456789"}, {3, 4, "3456"}, {0, 0, ""}, {8, 5, "89"}, {10, -1, ""}, {20, 5, ""}} {
		if got := get(t, s, "k", c.off, c.n); got != c.want {
			t.Errorf("%d bytes from %d: %q, want %q", c.n, c.off, got, c.want)
		}
	}
}

func list(t *testing.T, s repo.Store) {
	wantKeys(t, s, "")
	for _, key := range []string{"b/2", "b/1", "a/x/deep", "a-b/x", "a", "b.c", "ab"} {
		if key == "a" {
			continue // no object and directory of one name
		}
		put(t, s, key, key)
	}
	wantKeys(t, s, "", "a-b/x", "a/x/deep", "ab", "b.c", "b/1", "b/2")
	wantKeys(t, s, "b", "b.c", "b/1", "b/2")
	wantKeys(t, s, "b/", "b/1", "b/2")
	wantKeys(t, s, "b/2", "b/2")
	wantKeys(t, s, "a/x/d", "a/x/deep")
	wantKeys(t, s, "c/")
	wantKeys(t, s, "b/1/")
}

func listEarly(t *testing.T, s repo.Store) {
	for i := range 5 {
		put(t, s, fmt.Sprintf("d%d/k", i), "")
	}
	for o, err := range s.List(t.Context(), "") {
		if err != nil || o.Key != "d0/k" {
			t.Errorf("first: %v, %v", o, err)
		}
		break
	}
}

func names(t *testing.T, s repo.Store) {
	all := []string{"%", "%2F", "a b", "a+b", "a=b,c@d", "a%20b", "x/manifest.json", "x/20261130T155200.123Z-1a2b3c/k", "ümläut", strings.Repeat("n", 200) + "/k"}
	for _, key := range all {
		put(t, s, key, key)
	}
	slices.Sort(all)
	wantKeys(t, s, "", all...)
	for _, key := range all {
		if got := get(t, s, key, 0, -1); got != key {
			t.Errorf("%q holds %q", key, got)
		}
		if err := s.Delete(t.Context(), key); err != nil {
			t.Error(err)
		}
	}
	wantKeys(t, s, "")
}

func badNames(t *testing.T, s repo.Store) {
	for _, key := range []string{"", ".", "..", "../x", "a/../../x", "/x", "a//b", "a/", ".hidden", "a/.hidden", "a\x00b"} {
		if _, err := s.Put(t.Context(), key, strings.NewReader("x")); err == nil {
			t.Errorf("Put took %q", key)
		}
		if r, err := s.GetRange(t.Context(), key, 0, -1); err == nil {
			r.Close()
			t.Errorf("GetRange took %q", key)
		}
		if err := s.Delete(t.Context(), key); err == nil {
			t.Errorf("Delete took %q", key)
		}
	}
	wantKeys(t, s, "")
}

func missing(t *testing.T, s repo.Store) {
	put(t, s, "dir/k", "x")
	for _, key := range []string{"nothing", "no/thing", "dir", "dir/k/x"} {
		if _, err := s.GetRange(t.Context(), key, 0, -1); !errors.Is(err, repo.ErrNotFound) {
			t.Errorf("GetRange(%q): %v", key, err)
		}
		if err := s.Delete(t.Context(), key); !errors.Is(err, repo.ErrNotFound) {
			t.Errorf("Delete(%q): %v", key, err)
		}
	}
	wantKeys(t, s, "", "dir/k")
}

func deletes(t *testing.T, s repo.Store) {
	put(t, s, "a/1", "x")
	put(t, s, "a/2", "x")
	if err := s.Delete(t.Context(), "a/1"); err != nil {
		t.Fatal(err)
	}
	wantKeys(t, s, "", "a/2")
	put(t, s, "a/1", "again")
	if got := get(t, s, "a/1", 0, -1); got != "again" {
		t.Errorf("%q", got)
	}
}

func oneWinner(t *testing.T, s repo.Store) {
	const writers = 16
	for round := range 10 {
		key := fmt.Sprintf("race/%d", round)
		won := make([]bool, writers)
		start := make(chan struct{})
		var wg sync.WaitGroup
		for i := range writers {
			wg.Go(func() {
				<-start
				_, err := s.PutIfAbsent(t.Context(), key, strings.NewReader(fmt.Sprint("writer ", i)))
				won[i] = err == nil
				if err != nil && !errors.Is(err, repo.ErrExists) {
					t.Error(err)
				}
			})
		}
		close(start)
		wg.Wait()
		winner := slices.Index(won, true)
		if winner < 0 || slices.Contains(won[winner+1:], true) {
			t.Fatalf("won: %v", won)
		}
		if got := get(t, s, key, 0, -1); got != fmt.Sprint("writer ", winner) {
			t.Errorf("writer %d won, and the object says %q", winner, got)
		}
	}
}

// A home may keep directories, and remove those that become empty.
func putsBesideDeletes(t *testing.T, s repo.Store) {
	var wg sync.WaitGroup
	for i := range 4 {
		wg.Go(func() {
			for range 40 {
				key := fmt.Sprintf("shared/dir/%d", i)
				if _, err := s.Put(t.Context(), key, strings.NewReader("x")); err != nil {
					t.Error(err)
				}
				if err := s.Delete(t.Context(), key); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	wantKeys(t, s, "")
}

func readerFails(t *testing.T, s repo.Store) {
	broken := errors.New("the source broke")
	for _, size := range []int{0, 1, 20 << 20} {
		r := io.MultiReader(bytes.NewReader(make([]byte, size)), iotest.ErrReader(broken))
		if _, err := s.Put(t.Context(), "k", r); !errors.Is(err, broken) {
			t.Errorf("after %d bytes: %v", size, err)
		}
		wantKeys(t, s, "")
	}
	put(t, s, "k", "the key is free")
}

func unseen(t *testing.T, s repo.Store) {
	r, w := io.Pipe()
	done := make(chan error)
	go func() {
		_, err := s.Put(t.Context(), "a/k", r)
		done <- err
	}()
	w.Write(make([]byte, 1<<20))
	wantKeys(t, s, "")
	if _, err := s.GetRange(t.Context(), "a/k", 0, -1); !errors.Is(err, repo.ErrNotFound) {
		t.Errorf("GetRange: %v", err)
	}
	w.Close()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	wantKeys(t, s, "", "a/k")
}

func cancelled(t *testing.T, s repo.Store) {
	put(t, s, "k", "x")
	ctx, cancel := context.WithCancel(t.Context())
	open, err := s.GetRange(ctx, "k", 0, -1)
	if err != nil {
		t.Fatal(err)
	}
	defer open.Close()

	r, w := io.Pipe()
	done := make(chan error)
	go func() {
		_, err := s.Put(ctx, "new", r)
		r.CloseWithError(err)
		done <- err
	}()
	w.Write([]byte("half of it"))
	cancel()
	w.Write([]byte("the rest"))
	w.Close()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("Put: %v", err)
	}
	wantKeys(t, s, "", "k")

	if _, err := open.Read(make([]byte, 1)); !errors.Is(err, context.Canceled) {
		t.Errorf("Read: %v", err)
	}
	if _, err := s.PutIfAbsent(ctx, "new", strings.NewReader("x")); !errors.Is(err, context.Canceled) {
		t.Errorf("PutIfAbsent: %v", err)
	}
	if _, err := s.GetRange(ctx, "k", 0, -1); !errors.Is(err, context.Canceled) {
		t.Errorf("GetRange: %v", err)
	}
	if err := s.Delete(ctx, "k"); !errors.Is(err, context.Canceled) {
		t.Errorf("Delete: %v", err)
	}
	for _, err := range s.List(ctx, "") {
		if !errors.Is(err, context.Canceled) {
			t.Errorf("List: %v", err)
		}
	}
}
