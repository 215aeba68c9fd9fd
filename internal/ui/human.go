package ui

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// Size writes a number of bytes: "512 B", "12.3 MiB".
func Size[T int | int64 | uint64](n T) string {
	const units = "KMGTPE"
	v := float64(n)
	if v < 1024 {
		return fmt.Sprintf("%d B", n)
	}
	i := -1
	for v >= 1024 && i < len(units)-1 {
		v /= 1024
		i++
	}
	digits := 1
	if v >= 100 {
		digits = 0
	}
	return fmt.Sprintf("%.*f %ciB", digits, v, units[i])
}

// Rate writes bytes per second, or "" when too little time has passed to tell.
func Rate(bytes int64, d time.Duration) string {
	if d < 10*time.Millisecond {
		return ""
	}
	return Size(int64(float64(bytes)/d.Seconds())) + "/s"
}

// Count writes a number with commas between thousands: "1,234,567".
func Count[T int | int64 | uint64](n T) string {
	s := strconv.FormatInt(int64(n), 10)
	if uint64(n) > math.MaxInt64 && n > 0 {
		s = strconv.FormatUint(uint64(n), 10)
	}
	digits := strings.TrimPrefix(s, "-")
	var b strings.Builder
	b.WriteString(s[:len(s)-len(digits)])
	for i, c := range digits {
		if i > 0 && (len(digits)-i)%3 == 0 {
			b.WriteByte(',')
		}
		b.WriteRune(c)
	}
	return b.String()
}

// Plural writes a number with its noun: "1 message", "2,000 messages".
func Plural[T int | int64 | uint64](n T, noun string) string {
	if n != 1 {
		noun += "s"
	}
	return Count(n) + " " + noun
}

// Duration writes a time span as short as its length allows: "87 ms", "2.9 s",
// "4m07s", "3h05m", "12d06h".
func Duration(d time.Duration) string {
	switch {
	case d < 0:
		return "-" + Duration(-d)
	case d < time.Second:
		return fmt.Sprintf("%d ms", d.Milliseconds())
	case d < 10*time.Second:
		return fmt.Sprintf("%.1f s", d.Seconds())
	case d < time.Minute:
		return fmt.Sprintf("%d s", int(d.Seconds()))
	case d < time.Hour:
		return fmt.Sprintf("%dm%02ds", int(d.Minutes()), int(d.Seconds())%60)
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh%02dm", int(d.Hours()), int(d.Minutes())%60)
	}
	return fmt.Sprintf("%dd%02dh", int(d.Hours())/24, int(d.Hours())%24)
}

// Time writes a moment in UTC, to the second; "never" for the zero time.
func Time(t time.Time) string {
	if t.IsZero() {
		return "never"
	}
	return t.UTC().Format("2006-01-02 15:04:05 UTC")
}

// Name is Printable for a name out of a stream's data, which is cut when it's
// too long: subjects may have 64 KiB.
func Name(s string) string {
	const most = 120
	if len(s) > most {
		s = strings.ToValidUTF8(s[:most], "") + "…"
	}
	return Printable(s)
}

// Printable makes text fit for a terminal: control and invalid characters are
// escaped.
func Printable(s string) string {
	q := strconv.Quote(s)
	if q = q[1 : len(q)-1]; !strings.Contains(q, `\`) {
		return q
	}
	return strings.ReplaceAll(strings.ReplaceAll(q, `\"`, `"`), `\\`, `\`)
}
