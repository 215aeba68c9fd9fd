package ui

import (
	"math"
	"strings"
	"testing"
	"time"
)

func TestNumbersForPeople(t *testing.T) {
	for _, c := range []struct{ got, want string }{
		{Size(0), "0 B"},
		{Size(1023), "1023 B"},
		{Size(1024), "1.0 KiB"},
		{Size(1 << 20), "1.0 MiB"},
		{Size(int64(246 << 20)), "246 MiB"},
		{Size(uint64(math.MaxUint64)), "16.0 EiB"},
		{Count(0), "0"},
		{Count(999), "999"},
		{Count(1000), "1,000"},
		{Count(-1234567), "-1,234,567"},
		{Count(uint64(math.MaxUint64)), "18,446,744,073,709,551,615"},
		{Plural(1, "message"), "1 message"},
		{Plural(0, "message"), "0 messages"},
		{Plural(2000, "gap"), "2,000 gaps"},
		{Rate(1<<20, time.Second), "1.0 MiB/s"},
		{Rate(1<<20, 0), ""},
		{Duration(87 * time.Millisecond), "87 ms"},
		{Duration(2900 * time.Millisecond), "2.9 s"},
		{Duration(42 * time.Second), "42 s"},
		{Duration(4*time.Minute + 7*time.Second), "4m07s"},
		{Duration(3*time.Hour + 5*time.Minute), "3h05m"},
		{Duration(294 * time.Hour), "12d06h"},
		{Duration(-time.Second), "-1.0 s"},
		{Time(time.Time{}), "never"},
		{Time(time.Date(2026, 11, 30, 17, 2, 3, 9, time.FixedZone("", 3600))), "2026-11-30 16:02:03 UTC"},
		{Printable("ORDERS.späti"), "ORDERS.späti"},
		{Printable("a\x1b[31mb\nc"), `a\x1b[31mb\nc`},
		{Printable(`"quoted" \ back`), `"quoted" \ back`},
		{Name(strings.Repeat("x", 200)), strings.Repeat("x", 120) + "…"},
		{Name(strings.Repeat("ä", 200)), strings.Repeat("ä", 60) + "…"},
	} {
		if c.got != c.want {
			t.Errorf("%q, expected %q", c.got, c.want)
		}
	}
}
