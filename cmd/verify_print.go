package cmd

import (
	"cmp"
	"fmt"
	"io"
	"time"

	"github.com/jetkeep/jetkeep/format"
	"github.com/jetkeep/jetkeep/internal/ui"
	"github.com/jetkeep/jetkeep/verify"
)

// verifySummary is the result of verify.
type verifySummary struct {
	MessageType string `json:"message_type"` // "summary"
	Sound       bool   `json:"sound"`
	*verify.Report
	Seconds float64 `json:"seconds"`
}

// subjectsShown and consumersShown bound what a person gets to read; JSON has
// all of them.
const (
	subjectsShown  = 5
	consumersShown = 20
)

func printReport(p *printer, r *verify.Report, name string) error {
	s := verifySummary{"summary", true, r, r.Duration.Round(time.Millisecond).Seconds()}
	return p.result(s, func(w io.Writer) { writeReport(w, r, name) }, "the backup is sound")
}

func writeReport(w io.Writer, r *verify.Report, name string) {
	f := r.Figures
	fmt.Fprintf(w, "%s is sound: stream %s, %s\n", name, r.Stream, ui.Plural(f.Messages, "message"))
	where := r.Location
	if where == "-" {
		where = stdinName
	}
	rows := [][2]string{{"where", where}, {"id", r.ID}}
	if t := r.Taken; t != nil {
		rows = append(rows, [2]string{"taken", takenText(t)}, [2]string{"from", fromText(t)})
	}
	rows = append(rows, [][2]string{
		{"messages", sequences(f.Messages, f.FirstSeq, f.LastSeq, f.Deleted) + gaps(f.Gaps)},
		{"times", times(f)},
		{"data", fmt.Sprintf("%s of headers and payloads", ui.Size(f.Bytes))},
		{"archive", fmt.Sprintf("%s, %s uncompressed%s", ui.Size(r.Bytes), ui.Size(r.RawBytes), ratio(r.RawBytes, r.Bytes))},
		{"largest", largest(f.Largest)},
		{"ttl", ttlText(f.TTL, r.Expired)},
		{"sha256", r.SHA256},
		{"subjects", subjectsText(f.Subject)},
	}...)
	table(w, rows)
	for _, s := range f.Subject.Top[:min(len(f.Subject.Top), subjectsShown)] {
		fmt.Fprintf(w, "    %10s  %s\n", ui.Count(s.Messages), ui.Name(s.Subject))
	}
	writeConsumers(w, f.Consumers)
	for _, n := range r.Notes {
		fmt.Fprintf(w, "  note: %s\n", ui.Printable(n))
	}
}

func takenText(t *verify.Taken) string {
	return fmt.Sprintf("%s, within %s", ui.Time(t.Started), ui.Duration(t.Ended.Sub(t.Started)))
}

func fromText(t *verify.Taken) string {
	text := "server " + cmp.Or(t.Server.Name, "unknown") + " " + t.Server.Version
	if t.Server.Cluster != "" {
		text += ", cluster " + t.Server.Cluster
	}
	if t.Account != "" {
		text += ", account " + t.Account
	}
	if t.Context != "" {
		text += ", context " + t.Context
	}
	return text
}

func gaps(n uint64) string {
	if n == 0 {
		return ""
	}
	return " in " + ui.Plural(n, "gap")
}

func times(f format.Figures) string {
	if f.Messages == 0 {
		return ""
	}
	return ui.Time(f.FirstTime) + " to " + ui.Time(f.LastTime)
}

func largest(l *format.LargestMsg) string {
	if l == nil {
		return ""
	}
	return fmt.Sprintf("%s, sequence %s on %s", ui.Size(l.Bytes), ui.Count(l.Seq), ui.Name(l.Subject))
}

func ttlText(t format.TTLFigures, expired uint64) string {
	switch {
	case t.Messages == 0 && t.Never == 0:
		return ""
	case t.Messages == 0:
		return ui.Plural(t.Never, "message") + " that never expire"
	}
	return fmt.Sprintf("%s, %s over by now, from %s to %s",
		ui.Plural(t.Messages, "message"), ui.Count(expired), ui.Time(t.FirstExpiry), ui.Time(t.LastExpiry))
}

func subjectsText(s format.SubjectTally) string {
	text := ui.Count(s.Count)
	if !s.Exact {
		text = "about " + text
	}
	if s.Count > subjectsShown {
		text += ", most of all on"
	}
	return text
}

func writeConsumers(w io.Writer, list []format.ConsumerFigures) {
	fmt.Fprintf(w, "  consumers  %d\n", len(list))
	for i, c := range list {
		if i == consumersShown {
			fmt.Fprintf(w, "    … and %d more (--json has them)\n", len(list)-i)
			return
		}
		fmt.Fprintf(w, "    %s: %s, delivered to %s, acknowledged to %s, %s pending\n", ui.Name(c.Name), consumerKind(c),
			ui.Count(c.Delivered.Stream), ui.Count(c.AckFloor.Stream), ui.Count(c.Pending))
	}
}

func consumerKind(c format.ConsumerFigures) string {
	kind := "ephemeral"
	if c.Durable {
		kind = "durable"
	}
	if c.Push {
		kind += " push"
	}
	if c.Paused {
		kind += " paused"
	}
	return kind
}
