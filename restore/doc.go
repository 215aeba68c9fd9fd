// Package restore brings a backed-up stream back, whole or not at all.
//
//	Prepare   reads the backup, looks at the target, and returns a Plan:
//	          what would happen, what speaks against it, what should come out
//	Run       refuses what the plan refuses, with nothing touched; or
//	  stage     loads the stream under its name, on a private subject, its
//	            limits off and its consumers paused
//	  check     holds the loaded stream against the plan
//	  activate  gives it its real configuration, its consumers their state
//	  roll back deletes it, if anything failed before the activation
//
// A staged stream bears a marker in its metadata, by which a later run knows
// what an interrupted one has left. Nothing that lacks our marker is ever
// deleted; only an empty target is, and it's put back if the restore fails.
//
// [Replay] is the heart of it for archives in which something changes: it reads
// messages in order and writes them into a [Store].
//
// The package never prints, and never reads a flag.
package restore
