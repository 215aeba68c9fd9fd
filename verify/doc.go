// Package verify judges backups: is the archive sound, do the archive,
// backup.json and the manifest belong together, and what does it all hold.
//
// [Check] reads the archive once, in constant memory, and needs no server. It
// judges what jetkeep wrote and what the nats CLI wrote, which has no manifest
// and so no digests to compare with. What isn't sound comes back as an
// [UnsoundError]: either everything was checked, or there's no report.
//
// It never writes, prints or repairs anything.
package verify
