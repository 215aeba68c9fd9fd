package ui

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"
)

// clock is a progress whose time a test moves on.
type clock struct {
	*Progress
	out bytes.Buffer
	at  time.Time
}

func newClock(mode Mode, columns int) *clock {
	c := &clock{at: time.Date(2026, 11, 30, 0, 0, 0, 0, time.UTC)}
	c.Progress = NewProgress(&c.out, mode, "ORDERS")
	c.now = func() time.Time { return c.at }
	c.columns = func() int { return columns }
	c.start, c.phased = c.at, c.at
	return c
}

func (c *clock) after(d time.Duration, s Status) {
	c.at = c.at.Add(d)
	c.Update(s)
}

func control(s string) bool { return regexp.MustCompile(`[\x00-\x09\x0b-\x1f\x7f]`).MatchString(s) }

func TestLinesAreRareAndPlain(t *testing.T) {
	c := newClock(Lines, 80)
	for i := range 40 {
		c.after(time.Second, Status{Phase: "backup", Bytes: int64(i) << 20, TotalBytes: 40 << 20, Messages: uint64(i) * 1000})
	}
	c.Done()
	lines := strings.Split(strings.TrimSpace(c.out.String()), "\n")
	if len(lines) != 4 { // after 5, 15, 25, 35 s
		t.Errorf("%d lines:\n%s", len(lines), &c.out)
	}
	if want := "jetkeep: backup of stream ORDERS: 10%, 4,000 messages, 4.0 MiB, 819 KiB/s, 5.0 s so far"; lines[0] != want {
		t.Errorf("first line %q", lines[0])
	}
	if control(c.out.String()) {
		t.Errorf("control characters: %q", &c.out)
	}
}

func TestShortRunsStayQuiet(t *testing.T) {
	c := newClock(Lines, 80)
	c.after(4*time.Second, Status{Phase: "backup"})
	c.Done()
	if c.out.Len() > 0 {
		t.Errorf("%q", &c.out)
	}
}

func TestJSONLinesAreAtMostOneASecond(t *testing.T) {
	c := newClock(JSON, 80)
	for range 50 {
		c.after(100*time.Millisecond, Status{Phase: "verify", Bytes: 5})
	}
	c.Note("retry", "why: %s", "because")
	c.Done()
	lines := strings.Split(strings.TrimSpace(c.out.String()), "\n")
	if len(lines) != 6 {
		t.Errorf("%d lines", len(lines))
	}
	var last Status
	for _, l := range lines {
		last = Status{}
		if err := json.Unmarshal([]byte(l), &last); err != nil || last.MessageType != "status" || last.Stream != "ORDERS" {
			t.Errorf("%v: %s", err, l)
		}
	}
	if last.Phase != "retry" || last.Note != "why: because" || last.Elapsed != 5 {
		t.Errorf("%+v", last)
	}
}

// screen shows what a terminal would, for carriage returns only.
func screen(s string) []string {
	var lines []string
	for line := range strings.SplitSeq(s, "\n") {
		var cells []rune
		at := 0
		for _, r := range line {
			if r == '\r' {
				at = 0
				continue
			}
			if at == len(cells) {
				cells = append(cells, r)
			} else {
				cells[at] = r
			}
			at++
		}
		lines = append(lines, strings.TrimRight(string(cells), " "))
	}
	return lines
}

func TestBarFitsTheTerminal(t *testing.T) {
	for _, columns := range []int{10, 20, 40, 80, 200} {
		for _, name := range []string{"S", "ORDERS", strings.Repeat("LONG_NAME_", 12)} {
			for _, total := range []int64{0, 1, 100 << 30} {
				c := newClock(Bar, columns)
				c.stream = name
				for i := range 30 {
					c.after(3*time.Second, Status{Phase: "backup", Bytes: int64(i) << 30, TotalBytes: total, Messages: 5})
					got := screen(c.out.String())
					if n := len([]rune(got[0])); n >= columns || len(got) > 1 {
						t.Fatalf("%d columns, %q: %d used: %q", columns, name, n, got)
					}
				}
				c.Done()
				if got := screen(c.out.String()); got[0] != "" || !strings.HasSuffix(c.out.String(), "\r") {
					t.Errorf("something stays: %q", got)
				}
				if strings.Contains(c.out.String(), "\x1b") {
					t.Errorf("escape sequences: %q", &c.out)
				}
			}
		}
	}
}

func TestBarShowsHowFarItIs(t *testing.T) {
	c := newClock(Bar, 80)
	c.after(0, Status{Phase: "backup", TotalBytes: 100 << 20})
	c.after(10*time.Second, Status{Phase: "backup", Bytes: 50 << 20, TotalBytes: 100 << 20})
	got := screen(c.out.String())[0]
	if !regexp.MustCompile(`^backup ORDERS  50% \[=+> +\] 5\.0 MiB/s 10 s left$`).MatchString(got) {
		t.Errorf("%q", got)
	}
	c.Note("retry", "attempt 1 failed")
	got2 := screen(c.out.String())
	if got2[0] != "jetkeep: attempt 1 failed" {
		t.Errorf("the note is covered: %q", got2)
	}
	// More than was expected isn't more than everything.
	c.after(time.Second, Status{Phase: "backup", Bytes: 500 << 20, TotalBytes: 100 << 20})
	if got := screen(c.out.String())[1]; !strings.Contains(got, " 99% ") {
		t.Errorf("%q", got)
	}
}

func TestProgressIsSafeToUseAtOnceAndAfterDone(t *testing.T) {
	c := newClock(JSON, 80)
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			for range 100 {
				c.Update(Status{Phase: fmt.Sprint(i)})
				c.Note("x", "y")
			}
		})
	}
	wg.Wait()
	c.Done()
	n := c.out.Len()
	c.Update(Status{})
	c.Note("x", "late")
	c.Done()
	if c.out.Len() != n {
		t.Error("something is written after Done")
	}
}

func TestNoBarWithoutATerminal(t *testing.T) {
	if ModeFor(&bytes.Buffer{}) != Lines {
		t.Error("a bar into a buffer")
	}
}
