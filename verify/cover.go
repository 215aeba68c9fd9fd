package verify

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/jetkeep/jetkeep/format"
	"github.com/jetkeep/jetkeep/internal/subject"
)

// mostUncovered bounds how many subjects a report lists.
const mostUncovered = 20

// cover counts messages on subjects that the configuration doesn't have. A nil
// one counts nothing.
type cover struct {
	set      *subject.Set
	messages uint64
	subjects map[string]uint64 // those met first
}

// newCover returns nil for a stream whose subjects say nothing about its
// messages: a mirror, one with sources, one with a subject transform.
func newCover(file *format.BackupFile) (*cover, error) {
	var cfg struct {
		Subjects  []string          `json:"subjects"`
		Mirror    json.RawMessage   `json:"mirror"`
		Sources   []json.RawMessage `json:"sources"`
		Transform json.RawMessage   `json:"subject_transform"`
	}
	if err := file.Config.Decode(&cfg); err != nil {
		return nil, fmt.Errorf("%s: config: %w", format.BackupFileName, err)
	}
	given := func(v json.RawMessage) bool { return len(v) > 0 && string(v) != "null" }
	if given(cfg.Mirror) || len(cfg.Sources) > 0 || given(cfg.Transform) || len(cfg.Subjects) == 0 {
		return nil, nil
	}
	return &cover{set: subject.NewSet(cfg.Subjects), subjects: map[string]uint64{}}, nil
}

func (c *cover) message(subject []byte) {
	if c == nil || c.set.Match(subject) {
		return
	}
	c.messages++
	if _, ok := c.subjects[string(subject)]; ok || len(c.subjects) < mostUncovered {
		c.subjects[string(subject)]++
	}
}

func (c *cover) result() *Uncovered {
	if c == nil || c.messages == 0 {
		return nil
	}
	u := &Uncovered{Messages: c.messages}
	for s, n := range c.subjects {
		u.Subjects = append(u.Subjects, format.SubjectCount{Subject: s, Messages: n})
	}
	slices.SortFunc(u.Subjects, func(a, b format.SubjectCount) int {
		return cmp.Or(cmp.Compare(b.Messages, a.Messages), strings.Compare(a.Subject, b.Subject))
	})
	return u
}
