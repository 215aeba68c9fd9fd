package ui

import (
	"io"
	"strings"
	"time"

	"github.com/schollz/progressbar/v3"
)

// renderBar draws one line of at most cols columns.
func renderBar(stream string, s Status, spent time.Duration, cols int) string {
	label := s.Phase + " " + stream
	stats := stats(s, spent)
	if s.percent() < 0 {
		return clip(label+" "+stats, cols)
	}
	// What the bar leaves: " 100% [", "] " and what stands around it.
	room := func() int { return cols - len([]rune(label)) - len(stats) - len(" 100% [] ") - 1 }
	const least = 8
	if room() < least {
		label = stream
	}
	if room() < least {
		stats = Rate(s.Bytes, spent)
	}
	if n := room(); n < least {
		label = clip(label, max(0, len([]rune(label))-(least-n)))
	}
	bar := progressbar.NewOptions(100,
		progressbar.OptionSetWriter(io.Discard),
		progressbar.OptionSetWidth(max(1, room())),
		progressbar.OptionSetDescription(label),
		progressbar.OptionSetElapsedTime(false),
		progressbar.OptionSetPredictTime(false),
		progressbar.OptionSetRenderBlankState(true),
		progressbar.OptionSetTheme(progressbar.Theme{Saucer: "=", SaucerHead: ">", SaucerPadding: " ", BarStart: "[", BarEnd: "]"}),
	)
	_ = bar.Set(s.percent())
	line := strings.TrimRight(strings.TrimLeft(bar.String(), "\r"), " ")
	return clip(line+" "+stats, cols)
}

// stats says how fast it goes and how long it may still take.
func stats(s Status, spent time.Duration) string {
	var parts []string
	if s.TotalBytes <= 0 {
		parts = append(parts, Size(s.Bytes))
	}
	if r := Rate(s.Bytes, spent); r != "" && s.Bytes > 0 {
		parts = append(parts, r)
		if left := s.TotalBytes - s.Bytes; left > 0 && spent > time.Second {
			eta := time.Duration(float64(left) / float64(s.Bytes) * float64(spent))
			parts = append(parts, Duration(eta)+" left")
		}
	}
	return strings.Join(parts, " ")
}

// clip cuts s to n columns.
func clip(s string, n int) string {
	r := []rune(s)
	if len(r) <= n {
		return s
	}
	if n < 1 {
		return ""
	}
	return string(r[:n-1]) + "~"
}
