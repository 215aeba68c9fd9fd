package verify

import (
	"time"

	"github.com/jetkeep/jetkeep/format"
)

// Report says what a sound backup holds. docs/json.md explains each field.
type Report struct {
	Location string `json:"location"`
	Stream   string `json:"stream"`
	// ID is "" for a directory that the nats CLI wrote.
	ID string `json:"id,omitempty"`
	// Format is "v2".
	Format string `json:"format"`
	// Taken says when and where the backup was taken; nil without a manifest.
	Taken *Taken `json:"taken,omitempty"`
	// Bytes is the archive's size as stored, RawBytes decompressed.
	Bytes    int64 `json:"bytes"`
	RawBytes int64 `json:"raw_bytes"`
	// SHA256 is the archive's digest.
	SHA256 string `json:"sha256"`
	// BackupFileSHA256 is the digest of backup.json in the manifest, to which
	// the file is equal; "" without a manifest.
	BackupFileSHA256 string `json:"backup_json_sha256,omitempty"`

	Figures format.Figures `json:"figures"`
	// Expired counts the messages whose own TTL is over by now: a restore
	// leaves them out.
	Expired uint64 `json:"expired"`
	// NoConsumers says that consumers were left out on purpose.
	NoConsumers bool `json:"no_consumers,omitempty"`
	// MissingConsumers existed when the backup was taken and aren't in it.
	MissingConsumers []string `json:"missing_consumers,omitempty"`
	// Uncovered are messages on subjects that the configuration doesn't have:
	// legitimate after a change of the stream's subjects.
	Uncovered *Uncovered `json:"uncovered,omitempty"`
	// Notes are sentences about what a person should know.
	Notes []string `json:"notes,omitempty"`
	// Duration is how long the check took.
	Duration time.Duration `json:"-"`
}

// Taken says when and where a backup was taken, as its manifest has it.
type Taken struct {
	Started time.Time     `json:"started"`
	Ended   time.Time     `json:"ended"`
	Account string        `json:"account,omitempty"`
	Context string        `json:"context,omitempty"`
	Server  format.Server `json:"server"`
	// Jetkeep is the version that took it.
	Jetkeep string `json:"jetkeep_version"`
	// Created is when the live stream was created.
	Created time.Time `json:"stream_created"`
	// Replaces is the id of the backup that this one was rewritten from.
	Replaces string `json:"replaces,omitempty"`
}

// Uncovered counts messages that no subject of the configuration matches.
type Uncovered struct {
	Messages uint64 `json:"messages"`
	// Subjects are those met first, with their counts, at most 20.
	Subjects []format.SubjectCount `json:"subjects"`
}

func taken(m *format.Manifest) *Taken {
	return &Taken{
		Started: m.Started, Ended: m.Ended, Account: m.Account, Context: m.Context,
		Server: m.Server, Jetkeep: m.JetkeepVersion, Created: m.Created, Replaces: m.Replaces,
	}
}
