package verify

import (
	"fmt"
	"strings"
)

// notes says in words what the figures alone may not tell.
func notes(r *Report) []string {
	var out []string
	note := func(format string, args ...any) { out = append(out, fmt.Sprintf(format, args...)) }
	if r.Taken == nil {
		note("no manifest (the nats CLI writes none): there are no digests to compare with")
	}
	if n := len(r.MissingConsumers); n > 0 {
		note("%d of the stream's consumers aren't in the backup: %s", n, strings.Join(r.MissingConsumers, ", "))
	}
	if r.NoConsumers {
		note("consumers were left out on purpose (--no-consumers)")
	}
	for _, c := range r.Figures.Consumers {
		if l := c.Live; l != nil && l.Delivered.Stream > c.Delivered.Stream {
			note("consumer %q had got up to sequence %d and is at %d in the archive (a cluster's goes back to the ack floor): some of what it acknowledged comes again",
				c.Name, l.Delivered.Stream, c.Delivered.Stream)
		}
	}
	if u := r.Uncovered; u != nil {
		first := u.Subjects[0]
		note("%d messages are on subjects that the configuration doesn't cover, such as %q (%d): the stream's subjects were changed", u.Messages, first.Subject, first.Messages)
	}
	if r.Expired > 0 {
		note("%d of %d messages with a TTL are over by now: a restore leaves them out and keeps their sequences", r.Expired, r.Figures.TTL.Messages)
	}
	return out
}
