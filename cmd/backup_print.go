package cmd

import (
	"fmt"
	"io"
	"time"

	"github.com/jetkeep/jetkeep/backup"
	"github.com/jetkeep/jetkeep/internal/ui"
)

// backupSummary is the result of backup.
type backupSummary struct {
	MessageType string `json:"message_type"` // "summary"
	Stream      string `json:"stream"`
	ID          string `json:"id"`
	// Location is the backup's directory, or "-" for standard output.
	Location   string `json:"location"`
	Repository string `json:"repository,omitempty"`
	target
	ServerVersion    string    `json:"server_version"`
	Started          time.Time `json:"started"`
	Messages         uint64    `json:"messages"`
	FirstSeq         uint64    `json:"first_seq"`
	LastSeq          uint64    `json:"last_seq"`
	Deleted          uint64    `json:"deleted"`
	Bytes            int64     `json:"bytes"`
	RawBytes         int64     `json:"raw_bytes"`
	SHA256           string    `json:"sha256"`
	Consumers        int       `json:"consumers"`
	MissingConsumers []string  `json:"missing_consumers,omitempty"`
	// Cleaned are ids of backups that earlier runs left unfinished.
	Cleaned []string `json:"cleaned,omitempty"`
	// Warnings say what is missing of a damaged stream.
	Warnings []string `json:"warnings,omitempty"`
	Attempts int      `json:"attempts"`
	Seconds  float64  `json:"seconds"`
}

func newBackupSummary(r *backup.Result, d *destination, l *link, took time.Duration) backupSummary {
	m := r.Manifest
	s := backupSummary{
		MessageType: "summary", Stream: m.Stream, ID: m.ID, Location: r.Backup.Location(),
		target: l.target(), ServerVersion: m.Server.Version, Started: m.Started,
		Messages: m.Figures.Messages, FirstSeq: m.Figures.FirstSeq, LastSeq: m.Figures.LastSeq, Deleted: m.Figures.Deleted,
		SHA256: m.Objects[0].SHA256, Consumers: len(m.Figures.Consumers), MissingConsumers: m.MissingConsumers,
		Cleaned: d.cleaned, Warnings: l.warnings, Attempts: r.Attempts, Seconds: took.Round(time.Millisecond).Seconds(),
	}
	for _, o := range m.Objects {
		s.Bytes += o.Bytes
		s.RawBytes += o.RawBytes
	}
	if d.repository != nil {
		s.Repository = d.repository.Location()
	}
	if d.tar {
		s.Location = "-"
	}
	return s
}

func printBackup(p *printer, s backupSummary) error {
	where := s.Location
	if where == "-" {
		where = "standard output"
	}
	return p.result(s, func(w io.Writer) {
		took := time.Duration(s.Seconds * float64(time.Second))
		fmt.Fprintf(w, "backed up %s@%s from %s\n", s.Stream, s.ID, s.target)
		table(w, [][2]string{
			{"messages", sequences(s.Messages, s.FirstSeq, s.LastSeq, s.Deleted)},
			{"archive", fmt.Sprintf("%s, %s uncompressed%s", ui.Size(s.Bytes), ui.Size(s.RawBytes), ratio(s.RawBytes, s.Bytes))},
			{"consumers", fmt.Sprint(s.Consumers)},
			{"took", join(", ", ui.Duration(took), ui.Rate(s.RawBytes, took), attempts(s.Attempts))},
			{"where", where},
			{"sha256", s.SHA256},
		})
		if len(s.Cleaned) > 0 {
			fmt.Fprintf(w, "  removed what earlier runs left unfinished: %s\n", join(", ", s.Cleaned...))
		}
	}, fmt.Sprintf("the backup %s@%s is complete in %s", s.Stream, s.ID, where))
}

func attempts(n int) string {
	if n < 2 {
		return ""
	}
	return fmt.Sprintf("%d attempts", n)
}

// sequences sums up what a stream holds.
func sequences(messages, first, last, deleted uint64) string {
	switch {
	case last == 0:
		return "none, and never any"
	case messages == 0:
		return fmt.Sprintf("none, the next sequence is %s", ui.Count(last+1))
	case deleted == 0:
		return fmt.Sprintf("%s, sequences %s to %s", ui.Count(messages), ui.Count(first), ui.Count(last))
	}
	return fmt.Sprintf("%s, sequences %s to %s, %s deleted", ui.Count(messages), ui.Count(first), ui.Count(last), ui.Count(deleted))
}

func ratio(raw, stored int64) string {
	if stored == 0 || raw < stored {
		return ""
	}
	return fmt.Sprintf(" (%.1f to 1)", float64(raw)/float64(stored))
}
