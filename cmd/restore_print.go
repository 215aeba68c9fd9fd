package cmd

import (
	"cmp"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/jetkeep/jetkeep/internal/ui"
	"github.com/jetkeep/jetkeep/restore"
)

// planSummary is the result of restore --dry-run.
type planSummary struct {
	MessageType string `json:"message_type"` // "summary"
	DryRun      bool   `json:"dry_run"`      // true
	// Refused says that the restore would end with exit code 13.
	Refused bool `json:"refused"`
	*restore.Plan
}

// restoreSummary is the result of restore.
type restoreSummary struct {
	MessageType string `json:"message_type"` // "summary"
	Stream      string `json:"stream"`
	Backup      string `json:"backup"`
	target
	Messages  uint64 `json:"messages"`
	FirstSeq  uint64 `json:"first_seq"`
	LastSeq   uint64 `json:"last_seq"`
	Deleted   uint64 `json:"deleted"`
	Expired   uint64 `json:"expired"`
	Lost      uint64 `json:"lost"`
	Consumers int    `json:"consumers"`
	// Finished says that an interrupted activation was completed.
	Finished bool     `json:"finished,omitempty"`
	Sent     int64    `json:"bytes_sent"`
	Warnings []string `json:"warnings,omitempty"`
	Seconds  float64  `json:"seconds"`
}

func newRestoreSummary(plan *restore.Plan, r *restore.Result, l *link, took time.Duration) restoreSummary {
	s := restoreSummary{
		MessageType: "summary", Stream: r.Stream, Backup: jsonLocation(backupLabel(plan)),
		target:   l.target(),
		Messages: r.State.Messages, FirstSeq: r.State.FirstSeq, LastSeq: r.State.LastSeq, Deleted: uint64(max(r.State.NumDeleted, 0)),
		Expired: plan.Expected.Expired, Lost: plan.Expected.Lost, Consumers: r.Consumers, Finished: r.Finished, Sent: r.Sent,
		Seconds: took.Round(time.Millisecond).Seconds(),
	}
	s.Warnings = append(s.Warnings, l.warnings...)
	for _, f := range plan.Findings {
		if f.Level == restore.Warning {
			s.Warnings = append(s.Warnings, f.Text)
		}
	}
	s.Warnings = append(s.Warnings, r.Warnings...)
	return s
}

// backupLabel names the backup of a plan.
func backupLabel(plan *restore.Plan) string {
	if plan.Source.ID == "" {
		return plan.Source.Location
	}
	return plan.Source.Stream + "@" + plan.Source.ID
}

func printRestore(p *printer, s restoreSummary) error {
	from := s.Backup
	if from == "-" {
		from = stdinName
	}
	return p.result(s, func(w io.Writer) {
		took := time.Duration(s.Seconds * float64(time.Second))
		verb := "restored"
		if s.Finished {
			verb = "finished the restore of"
		}
		fmt.Fprintf(w, "%s %s from %s to %s\n", verb, s.Stream, from, s.target)
		table(w, [][2]string{
			{"messages", sequences(s.Messages, s.FirstSeq, s.LastSeq, s.Deleted)},
			{"left out", leftOut(s)},
			{"consumers", fmt.Sprint(s.Consumers)},
			{"took", join(", ", ui.Duration(took), sentText(s.Sent))},
		})
	}, fmt.Sprintf("stream %s is restored", s.Stream))
}

func sentText(n int64) string {
	if n == 0 {
		return ""
	}
	return ui.Size(n) + " sent"
}

func leftOut(s restoreSummary) string {
	var parts []string
	if s.Expired > 0 {
		parts = append(parts, ui.Plural(s.Expired, "message")+" whose TTL is over")
	}
	if s.Lost > 0 {
		parts = append(parts, ui.Plural(s.Lost, "message")+" beyond the target's limits")
	}
	return strings.Join(parts, ", ")
}

// findingsFirst orders levels by how much they matter.
var findingsFirst = []restore.Level{restore.Refusal, restore.Warning, restore.Unknown, restore.OK}

func printPlan(p *printer, plan *restore.Plan) error {
	shown := *plan
	shown.Source.Location = jsonLocation(plan.Source.Location)
	s := planSummary{"summary", true, len(plan.Refusals()) > 0, &shown}
	return p.result(s, func(w io.Writer) { writePlan(w, plan) }, "")
}

func writePlan(w io.Writer, plan *restore.Plan) {
	src, t, e := plan.Source, plan.Target, plan.Expected
	fmt.Fprintf(w, "plan: restore %s as stream %s on %s\n", backupLabel(plan), t.Stream,
		target{Server: t.Server, Account: t.Account, Context: t.Context})
	rows := [][2]string{
		{"backup", fmt.Sprintf("%s, %s, %s uncompressed", src.Location, ui.Size(src.Bytes), ui.Size(src.RawBytes))},
		{"target", fmt.Sprintf("nats-server %s%s, %s", t.Version, clusterText(t.Cluster), existingText(t.Existing))},
		{"messages", sequences(e.Messages, e.FirstSeq, e.LastSeq, spanOf(e)-e.Messages)},
		{"left out", leftOut(restoreSummary{Expired: e.Expired, Lost: e.Lost})},
		{"consumers", fmt.Sprint(len(e.Consumers))},
		{"how", howText(plan)},
	}
	table(w, rows)
	for _, level := range findingsFirst {
		for _, f := range plan.Findings {
			if f.Level == level {
				fmt.Fprintf(w, "  %-8s %s: %s\n", f.Level, f.Check, ui.Printable(f.Text))
			}
		}
	}
	if len(plan.Refusals()) == 0 {
		fmt.Fprintln(w, "nothing was touched; without --dry-run the restore would begin")
	}
}

// spanOf counts the sequences between first and last.
func spanOf(e restore.Expected) uint64 {
	if e.LastSeq < e.FirstSeq {
		return e.Messages
	}
	return e.LastSeq - e.FirstSeq + 1
}

func clusterText(name string) string {
	if name == "" {
		return ""
	}
	return " in cluster " + name
}

func existingText(existing string) string {
	return cmp.Or(map[string]string{
		restore.TargetNone:       "no such stream yet",
		restore.TargetEmpty:      "an empty stream that is replaced",
		restore.TargetMissing:    "a name that is taken, by a stream that no server has",
		restore.TargetAbandoned:  "what an interrupted restore left, which is removed",
		restore.TargetActivating: "an interrupted activation, which is finished",
		restore.TargetOccupied:   "a stream with data",
	}[existing], existing)
}

func howText(plan *restore.Plan) string {
	if plan.Rewrite {
		return "staged, checked, activated; the archive is encoded anew"
	}
	return "staged, checked, activated; the archive's blocks are passed on as they are"
}
