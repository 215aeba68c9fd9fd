package repo

// SetFault makes file operations fail: f is asked before each.
func (d *Dir) SetFault(f func(op, path string) error) { d.fault = f }

// Die gives up the lock of a writer and leaves all else, as a kill does.
func (p *Pending) Die() { p.hold.(*dirHold).lock.Close() }

// Die is the same for a plain backup.
func (p *PlainPending) Die() { p.stage.lock.Close() }

// BeginPlainIn is BeginPlain with a home whose operations can fail.
func BeginPlainIn(parent *Dir, target string) (*PlainPending, error) {
	return beginPlain(parent, target)
}

const (
	SyncEvery     = syncEvery
	ForeignMinAge = foreignMinAge
)
