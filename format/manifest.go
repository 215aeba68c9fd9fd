package format

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"
)

// Names of the objects that make up a backup. The archive bears the name that
// the nats CLI gives it, so that each tool reads what the other wrote.
const (
	ManifestName   = "manifest.json"
	BackupFileName = "backup.json"
	ArchiveV2Name  = "stream.arc.s2"
	ArchiveV1Name  = "stream.tar.s2"
)

// ManifestVersion is the version of manifests that this package writes, and the
// only one that it reads.
const ManifestVersion = 1

// ErrManifestVersion says that a manifest was written by a newer jetkeep.
var ErrManifestVersion = errors.New("unknown manifest version")

// BackupFile is backup.json: what the snapshot API answered, kept as it came.
type BackupFile struct {
	// Config is the stream configuration.
	Config Object `json:"config"`
	// State is the stream state at the start of the snapshot.
	State json.RawMessage `json:"state"`
}

// ParseBackupFile reads backup.json and checks that it names a stream and holds
// a state.
func ParseBackupFile(data []byte) (*BackupFile, error) {
	var b BackupFile
	if err := json.Unmarshal(data, &b); err != nil {
		return nil, fmt.Errorf("%s: %w", BackupFileName, err)
	}
	if b.StreamName() == "" {
		return nil, fmt.Errorf("%s: the configuration names no stream", BackupFileName)
	}
	if _, err := b.StreamState(); err != nil {
		return nil, err
	}
	if err := CheckNotBeingRestored(b.Config); err != nil {
		return nil, fmt.Errorf("%s: %w", BackupFileName, err)
	}
	return &b, nil
}

// StreamName returns the name in the configuration, or "" when there is none.
func (b *BackupFile) StreamName() string {
	var name string
	if b.Config.Get("name", &name) != nil {
		return ""
	}
	return name
}

// StreamState decodes the state.
func (b *BackupFile) StreamState() (State, error) {
	var s State
	if len(b.State) == 0 || string(b.State) == "null" {
		return s, fmt.Errorf("%s: no stream state", BackupFileName)
	}
	if err := json.Unmarshal(b.State, &s); err != nil {
		return s, fmt.Errorf("%s: state: %w", BackupFileName, err)
	}
	return s, nil
}

// State is a stream's state as the server reports it and as state.json in an
// archive holds it. While a snapshot runs deletes go on, so Messages and Bytes
// are estimates; the sequences are exact.
type State struct {
	Messages      uint64    `json:"messages"`
	Bytes         uint64    `json:"bytes"`
	FirstSeq      uint64    `json:"first_seq"`
	FirstTime     time.Time `json:"first_ts"`
	LastSeq       uint64    `json:"last_seq"`
	LastTime      time.Time `json:"last_ts"`
	NumSubjects   int       `json:"num_subjects,omitempty"`
	NumDeleted    int       `json:"num_deleted,omitempty"`
	ConsumerCount int       `json:"consumer_count"`
}

// Manifest describes a backup: what it is of, what it's made of, and what the
// inspection found in it. docs/format.md explains each field.
type Manifest struct {
	Version int    `json:"manifest_version"`
	ID      string `json:"id"`
	Stream  string `json:"stream"`
	// Account is the account or, where that can't be known, empty; Context is
	// the label of the NATS context that was used.
	Account string `json:"account,omitempty"`
	Context string `json:"context,omitempty"`
	// Started and Ended enclose the snapshot, in UTC.
	Started time.Time `json:"started"`
	Ended   time.Time `json:"ended"`
	// Replaces is the id of the backup that this one was rewritten from.
	Replaces       string `json:"replaces,omitempty"`
	JetkeepVersion string `json:"jetkeep_version"`
	Server         Server `json:"server"`
	// Created is when the live stream was created: its identity.
	Created time.Time `json:"stream_created"`
	// NoConsumers says that consumers were left out on purpose.
	NoConsumers bool `json:"no_consumers,omitempty"`
	// MissingConsumers are those that the server listed and the archive lacks.
	MissingConsumers []string `json:"missing_consumers,omitempty"`
	// Format is "v2" for the archive of servers from 2.15 on, "v1" before.
	Format string `json:"format"`
	// Objects make up the archive, read one after another.
	Objects []ArchiveObject `json:"objects"`
	// BackupFileSHA256 is the digest of backup.json, in hexadecimal.
	BackupFileSHA256 string  `json:"backup_json_sha256"`
	Figures          Figures `json:"figures"`
}

// Server says where a backup was taken from.
type Server struct {
	Version string `json:"version"`
	Name    string `json:"name,omitempty"`
	Cluster string `json:"cluster,omitempty"`
	Domain  string `json:"domain,omitempty"`
}

// ArchiveObject is a part of an archive.
type ArchiveObject struct {
	Key string `json:"key"`
	// Bytes is the size as stored, RawBytes decompressed.
	Bytes    int64  `json:"bytes"`
	RawBytes int64  `json:"raw_bytes"`
	SHA256   string `json:"sha256"`
	FirstSeq uint64 `json:"first_seq"`
	LastSeq  uint64 `json:"last_seq"`
}

// Figures is what the inspection of an archive found.
type Figures struct {
	Messages uint64 `json:"messages"`
	// FirstSeq and LastSeq are the stream's, as state.json has them: deleted
	// sequences at either end count.
	FirstSeq uint64 `json:"first_seq"`
	LastSeq  uint64 `json:"last_seq"`
	// FirstTime and LastTime are those of the first and last message held; zero
	// without messages.
	FirstTime time.Time `json:"first_ts,omitzero"`
	LastTime  time.Time `json:"last_ts,omitzero"`
	// Bytes sums headers and payloads.
	Bytes uint64 `json:"bytes"`
	// StoreBytes is what the messages take up in a file store, overhead
	// included: the figure that max_bytes is held against.
	StoreBytes uint64 `json:"store_bytes"`
	// Deleted counts the sequences between FirstSeq and LastSeq that hold no
	// message, Gaps the runs of them.
	Deleted uint64       `json:"deleted"`
	Gaps    uint64       `json:"gaps"`
	Largest *LargestMsg  `json:"largest,omitempty"`
	Subject SubjectTally `json:"subjects"`
	TTL     TTLFigures   `json:"ttl"`
	// Consumers in the archive's order.
	Consumers []ConsumerFigures `json:"consumers,omitempty"`
}

// LargestMsg is the message with the most header and payload bytes.
type LargestMsg struct {
	Seq     uint64 `json:"seq"`
	Subject string `json:"subject"`
	Bytes   uint64 `json:"bytes"`
}

// SubjectTally counts subjects and messages by subject.
type SubjectTally struct {
	// Count is how many different subjects there are; when Exact is false, beyond
	// 100,000 subjects or 8 MiB of their names, it is the server's own number at
	// the start of the snapshot.
	Count uint64 `json:"count"`
	Exact bool   `json:"exact"`
	// Top holds the subjects with the most messages, at most 1,000; when Exact
	// is false, both choice and counts are approximate.
	Top []SubjectCount `json:"top,omitempty"`
}

// SubjectCount is a subject with its number of messages.
type SubjectCount struct {
	Subject  string `json:"subject"`
	Messages uint64 `json:"messages"`
}

// TTLFigures counts messages with a time to live of their own.
type TTLFigures struct {
	// Messages have a TTL that ends; Never have the TTL "never".
	Messages uint64 `json:"messages"`
	Never    uint64 `json:"never,omitempty"`
	// FirstExpiry and LastExpiry bound the moments at which they end.
	FirstExpiry time.Time `json:"first_expiry,omitzero"`
	LastExpiry  time.Time `json:"last_expiry,omitzero"`
}

// ConsumerFigures sums up a consumer's state.
type ConsumerFigures struct {
	Name      string       `json:"name"`
	Durable   bool         `json:"durable"`
	Push      bool         `json:"push,omitempty"`
	Paused    bool         `json:"paused,omitempty"`
	Delivered SequencePair `json:"delivered"`
	AckFloor  SequencePair `json:"ack_floor"`
	// Pending counts messages delivered and not acknowledged.
	Pending uint64 `json:"pending"`
	// Live is what the server said of the consumer when the backup began. A
	// cluster's archive holds less: it rolls consumers back to their ack floor.
	Live *LiveConsumer `json:"live,omitempty"`
}

// LiveConsumer is a consumer's state on the server.
type LiveConsumer struct {
	Delivered  SequencePair `json:"delivered"`
	AckFloor   SequencePair `json:"ack_floor"`
	AckPending uint64       `json:"ack_pending"`
}

// SequencePair is a consumer's own sequence beside the stream's.
type SequencePair struct {
	Consumer uint64 `json:"consumer_seq"`
	Stream   uint64 `json:"stream_seq"`
}

// ParseManifest reads a manifest and refuses one of an unknown version.
func ParseManifest(data []byte) (*Manifest, error) {
	var v struct {
		Version int `json:"manifest_version"`
	}
	if err := json.Unmarshal(data, &v); err != nil {
		return nil, fmt.Errorf("%s: %w", ManifestName, err)
	}
	if v.Version == 0 {
		return nil, fmt.Errorf("%s: there is no manifest_version in it", ManifestName)
	}
	if v.Version != ManifestVersion {
		return nil, fmt.Errorf("%s: %w %d (this jetkeep reads version %d)", ManifestName, ErrManifestVersion, v.Version, ManifestVersion)
	}
	var m Manifest
	if err := json.Unmarshal(data, &m); err != nil {
		return nil, fmt.Errorf("%s: %w", ManifestName, err)
	}
	if m.ID == "" || m.Stream == "" || len(m.Objects) == 0 {
		return nil, fmt.Errorf("%s: id, stream or objects are missing", ManifestName)
	}
	for _, o := range m.Objects {
		if o.Key == "" || strings.ContainsAny(o.Key, `/\`) || o.Key[0] == '.' {
			return nil, fmt.Errorf("%s: object key %q isn't a plain file name", ManifestName, o.Key)
		}
		if o.Bytes < 0 || o.RawBytes < 0 {
			return nil, fmt.Errorf("%s: object %q has a negative size", ManifestName, o.Key)
		}
	}
	return &m, nil
}
